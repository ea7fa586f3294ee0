"""Draws the pieces that fill the corpus' task templates."""

import random
from collections.abc import Callable

from conductor_core.training.corpus.wording import fill, table


class SlotFiller:
    """Fills the slots of one task: numbers, formulas, sentences, code, and the terms of its topic.

    Attributes:
        slots: what ``<name>`` draws, besides the word banks.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.topic = ""
        self.slots: dict[str, Callable[[], str]] = {
            "term": lambda: str(rng.choice(table("topics")[self.topic]["terms"])),
            "n": lambda: str(rng.choice((rng.randint(10, 99), rng.randint(100, 999), rng.randint(10, 60)))),
            "k": lambda: str(rng.randint(2, 9)),
            "d": lambda: str(rng.randint(2, 4)),
            "v": lambda: rng.choice("xyzabcnmkt"),
            "u": lambda: rng.choice("yzbckw"),
            "x": self.expression,
            "e": lambda: f"{self.expression()} = {rng.choice((0, rng.randint(1, 60)))}",
            "lin": self.linear_equation,
            "sentence": self.sentence,
            "passage": lambda: self.passage(rng.randint(3, 6)),
            "long_passage": lambda: self.passage(rng.randint(9, 16)),
            "code": self.snippet,
            "foreign_text": lambda: self.fill(rng.choice(table("hints")["foreign_long"])),
        }

    def fill(self, template: str) -> str:
        return fill(template, self.rng, self.slots)

    def one(self, kind: str, key: str) -> str:
        """Draws one of the entries of ``wording/tasks.toml`` under ``kind`` and ``key``, not yet filled."""
        return str(self.rng.choice(table("tasks")[kind][key]))

    def pick_topic(self, topics: list[str]) -> str:
        self.topic = self.rng.choice(topics)
        return self.topic

    def linear_equation(self) -> str:
        rng = self.rng
        left = f"{rng.randint(2, 9)}x {rng.choice('+-')} {rng.randint(1, 30)}{rng.choice(('', 'y'))}"
        return f"{left} = {rng.randint(2, 90)}"

    def expression(self) -> str:
        """Draws a formula in LaTeX."""
        rng = self.rng
        v, a, b, c = rng.choice("xxxyntz"), rng.randint(2, 9), rng.randint(1, 20), rng.randint(2, 5)
        forms = (
            f"{a}{v} + {b}",
            f"{v}^2 - {a}{v} + {b}",
            f"{v}^{c} + {a}{v}^2 - {b}",
            f"\\frac{{{a}{v} + {b}}}{{{c}}}",
            f"\\sqrt{{{v} + {b}}}",
            f"|{v} - {a}|",
            f"\\log_{{{c}}} {v}",
            f"\\sin {a}{v}",
            f"({v} + {a})({v} - {b})",
            f"{a}^{{{v}}}",
            f"e^{{{a}{v}}} \\cos {v}",
            f"\\binom{{{b + a}}}{{{a}}}",
            f"{a}({b} - {c})^2",
            f"\\int_0^{{{a}}} {v}^{c} \\, d{v}",
            f"\\lfloor {v} \\rfloor",
            f"{a} \\cdot {b} + {c}!",
            f"\\left( {v} + \\frac{{1}}{{{v}}} \\right)^{c}",
            f"\\begin{{pmatrix}} {a} & {b} \\\\ {c} & {a} \\end{{pmatrix}}",
            f"f({v}) - {a}",
            f"\\cos {b}^\\circ",
        )
        return rng.choice(forms)

    def sentence(self) -> str:
        words = table("tasks")["sentence"]
        return self.fill(words["usual"] if self.rng.random() < 0.7 else words["other"])

    def passage(self, sentences: int) -> str:
        return " ".join(self.sentence() for _ in range(sentences))

    def snippet(self) -> str:
        """Draws a few lines of code, which may be faulty."""
        a, b = self.rng.sample("abcnxyijk", 2)
        return self.fill(table("tasks")["snippet"]["text"].replace("{a}", a).replace("{b}", b))

    def value(self) -> str:
        """Draws a Python literal."""
        rng = self.rng
        return rng.choice(
            (
                str(rng.randint(0, 99)),
                str([rng.randint(0, 20) for _ in range(rng.randint(0, 5))]),
                f"'{rng.choice(table('banks')['adjective'])}'",
                "True",
                "None",
                "[]",
                "''",
            )
        )

    def things(self, count: int) -> list[str]:
        """Draws things to compare: known things of all sorts, places, or made-up names."""
        draw = self.rng.random()
        if draw < 0.6:
            return self.rng.sample(table("banks")["option"], count)
        if draw < 0.75:
            return self.rng.sample(table("banks")[self.rng.choice(("city", "country", "name"))], count)
        return [self.coined() for _ in range(count)]

    def coined(self) -> str:
        """Draws a made-up name of one or two words, with or without capitals or a number."""
        rng = self.rng
        word = made_up_word(rng)
        word = word.capitalize() if rng.random() < 0.7 else word
        tail = rng.choice(("", "", "", f" {rng.choice(table('banks')['thing'])}", f" {rng.randint(2, 20)}", "DB", "JS"))
        return word + tail


def joined(things: list[str], word: str) -> str:
    """Joins things in the form ``a, b and c``; ``word`` stands before the last one."""
    return f"{', '.join(things[:-1])} {word} {things[-1]}" if len(things) > 1 else things[0]


_SYLLABLES = (
    "ab", "ac", "an", "ar", "ba", "be", "bo", "ca", "ch", "co", "con", "de", "di", "dis", "do", "dri", "el", "en",
    "er", "es", "fa", "fen", "fi", "for", "ga", "ge", "gra", "ha", "he", "hu", "hy", "im", "in", "ing", "ion", "is",
    "ite", "ity", "ja", "jo", "ke", "kel", "la", "le", "li", "lo", "ly", "ma", "me", "ment", "mi", "mo", "na", "ne",
    "ness", "no", "nor", "ob", "op", "or", "ous", "pa", "per", "pex", "ph", "po", "pre", "pro", "qui", "ra", "re",
    "ri", "ro", "sa", "se", "si", "so", "sta", "sub", "su", "ta", "te", "th", "ti", "tion", "to", "tra", "tri", "tu",
    "um", "un", "us", "va", "ver", "vi", "we", "wo", "xi", "yo", "zen",
)  # fmt: skip


def made_up_word(rng: random.Random) -> str:
    """Draws a made-up word that looks like a real one."""
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))

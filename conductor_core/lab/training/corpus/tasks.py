"""Tasks of the cold-start corpus: many kinds, each with a difficulty that can be seen in the text.

All wording is our own; no benchmark's text is in it. Kinds with plain templates are in ``wording/tasks.toml``; those
that need structure (stories, tables, code, lists of things) are built here. ``wording/requests.toml`` has requests as
people type them, sorted by what they ask for, which templates cannot draw.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from conductor_core.lab.training.corpus.wording import fill, table
from conductor_core.rehearsal.families import DIFFICULTIES, FAMILIES, Difficulty, RehearsalTask, generate

# Pieces that fill templates.


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
        rng = self.rng
        v, a, b, c = rng.choice("xxxyntz"), rng.randint(2, 9), rng.randint(1, 20), rng.randint(2, 5)
        formula = str(rng.choice(table("tasks")["expression"]["forms"]))
        return formula.format(v=v, a=a, b=b, c=c, more=a + b)

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


def made_up_word(rng: random.Random) -> str:
    return "".join(rng.choices(table("kinds")["syllables"], k=rng.randint(2, 4)))


# Requests as people type them.


class TypedRequest(NamedTuple):
    """One request. ``parts``: how many things it names that can be worked on side by side, 0 for none. ``topic``: the
    subject that gives it its noun, or None."""

    kind: str
    difficulty: Difficulty
    text: str
    parts: int
    topic: str | None


@cache
def typed_requests() -> tuple[TypedRequest, ...]:
    """Returns all requests of ``requests.toml``. There ``[compare_3]`` means the kind compare with three parts, and
    ``["choice.physics"]`` means the kind choice on physics."""
    found = []
    for name, texts in table("requests").items():
        named, _, topic = name.partition(".")
        kind, _, parts = named.partition("_")
        found += [
            TypedRequest(kind, difficulty, text, int(parts or 0), topic or None)
            for difficulty in DIFFICULTIES
            for text in texts.get(difficulty, ())
        ]
    return tuple(found)


@dataclass(frozen=True)
class CorpusTask:
    """A task and what a plan must know about it.

    Attributes:
        kind: decides which plans fit (``wording/plans.toml``).
        noun: how an instruction names the task, e.g. "probability problem".
        parts: how many things it names that can be worked on side by side; 0 for none.
        way: the way of working that it asks for (staged, opinions, verified, brief), if any.
        rehearsal: the rehearsal question that it holds, if any; its plans can be compared by reward.
    """

    kind: str
    noun: str
    difficulty: Difficulty
    text: str
    parts: int = 0
    way: str | None = None
    rehearsal: RehearsalTask | None = None


NOUNS: dict[str, str] = table("kinds")["nouns"]
NAMED_BY_TOPIC = frozenset({"maths", "choice", "science"})


def draw_task(rng: random.Random) -> CorpusTask:
    """Draws a task: its kind, difficulty and wording, sometimes with typing errors or a wish for a way of working."""
    source = SlotFiller(rng)
    weights = table("kinds")["weights"]
    kind = rng.choices(tuple(weights), tuple(weights.values()))[0]
    task = _BUILT[kind](source) if kind in _BUILT else _from_template(kind, source)
    return _dressed(task, rng)


def _from_template(name: str, source: SlotFiller) -> CorpusTask:
    entry, rng = table("tasks")[name], source.rng
    topic = source.pick_topic(entry.get("topics", ["history"]))
    difficulty = rng.choice([each for each in DIFFICULTIES if each in entry])
    kind = table("kinds")["of_template"].get(name, name)
    parts = 0
    if entry.get("fan"):
        parts = rng.choices((2, 3, 4, 5, 6), (35, 40, 15, 6, 4))[0]
        things = source.things(parts)
        source.slots |= {
            "items": lambda: joined(things, "and"),
            "items_or": lambda: joined(things, "or"),
            "a": lambda: things[0],
            "b": lambda: things[1],
            "c": lambda: joined(things[2:] or [things[0]], "vs"),
        }
        difficulty = "hard" if parts > 4 else difficulty
    template = rng.choice(entry[difficulty])
    if entry.get("fan") and "<a> vs" in template:
        template = "<a> vs <b> vs <c>" if parts > 2 else "<a> vs <b>: <aspect>, <aspect>?"
    noun = str(table("topics")[topic]["noun"]) if kind in NAMED_BY_TOPIC else NOUNS[kind]
    if kind == "maths" and name not in ("algebra", topic) and rng.random() < 0.5:
        noun = str(table("topics")[name]["noun"])
    return CorpusTask(kind, noun, difficulty, source.fill(template), parts)


def _word(source: SlotFiller) -> CorpusTask:
    """Draws a story with a beginning, events and a question. More events make it harder; one event at most is easy."""
    story, rng = table("hints")["story"], source.rng
    difficulty = rng.choices(DIFFICULTIES, (35, 40, 25))[0]
    events = {"easy": rng.randint(0, 1), "medium": rng.randint(2, 3), "hard": rng.randint(4, 6)}[difficulty]
    opening = rng.choice(story["opening"]) if rng.random() < 0.5 else "<happening>"
    happens = [rng.choice(story["event"]) if rng.random() < 0.4 else "<happening>" for _ in range(events)]
    question = rng.choice(story["question"]) if rng.random() < 0.5 else "<asking>"
    if difficulty != "easy" and rng.random() < 0.15:
        condition = rng.choice(("that is so", "this goes on for <k> weeks", "<name> wants the same"))
        question = f"If {condition}, {question[0].lower()}{question[1:]}"
    text = source.fill(" ".join([opening, *happens, question]))
    return CorpusTask("word", NOUNS["word"], difficulty, text)


def _arithmetic(source: SlotFiller) -> CorpusTask:
    rng, words = source.rng, table("tasks")["arithmetic"]
    difficulty = rng.choice(DIFFICULTIES)
    terms = {"easy": 2, "medium": rng.randint(3, 4), "hard": rng.randint(5, 7)}[difficulty]
    text = str(rng.randint(2, 999))
    for _ in range(terms - 1):
        small, large = str(rng.randint(2, 99)), str(rng.randint(100, 9999))
        bracket = f"({rng.randint(2, 90)} {rng.choice('+-')} {rng.randint(1, 40)})"
        operand = rng.choice((small, large, bracket))
        text += f" {rng.choice(words['operators'])} {operand}"
    if difficulty == "easy" and rng.random() < 0.3:
        gap = rng.choice(("", " "))
        text = f"{rng.randint(1, 20)}{gap}{rng.choice('+-*/x')}{gap}{rng.randint(1, 20)}"
    elif difficulty == "easy" and rng.random() < 0.6:
        number = text.split()[0]
        share = f"{rng.randint(2, 95)}% of {number}"
        text = rng.choice((share, f"the square root of {number}", f"{number} squared", f"{number} km in miles"))
    return CorpusTask("arithmetic", NOUNS["arithmetic"], difficulty, rng.choice(words["wrappings"]).format(text))


def _parts(source: SlotFiller) -> CorpusTask:
    """Draws several small questions in one task."""
    rng, words = source.rng, table("tasks")["parts"]
    parts = rng.choices((2, 3, 4), (35, 45, 20))[0]
    makers: list[Callable[[], str]] = [
        lambda: _arithmetic(source).text,
        lambda: _from_template("fact", source).text,
        lambda: _from_template("algebra", source).text,
    ]

    def mixed() -> str:
        return rng.choice(makers)()

    make = rng.choice([*makers, mixed])
    marks = rng.choice(words["marks"])
    opening = rng.choice(words["openings"])
    text = opening + " ".join(mark + make() for mark in marks[:parts])
    return CorpusTask("parts", NOUNS["parts"], "medium", text, parts)


def _choice(source: SlotFiller) -> CorpusTask:
    """Draws a multiple-choice question. Easy: recall. Medium: figures or two statements. Hard: a long scenario."""
    rng, words = source.rng, table("tasks")["choice"]
    topic = source.pick_topic(words["topics"])
    difficulty = rng.choices(DIFFICULTIES, (40, 35, 25))[0]
    question = source.fill(rng.choice(words[difficulty]))
    options = words["short_options" if rng.random() < 0.6 else "long_options"]
    mark = rng.choice(words["marks"])
    letters = "ABCD" if rng.random() < 0.85 else "ABCDE"[: rng.choice((3, 5))]
    letters = letters.lower() if rng.random() < 0.05 else letters
    separator = rng.choice((" ", "\n", "\n", "; "))
    listed = separator.join(mark.format(letter) + source.fill(rng.choice(options)) for letter in letters)
    text = question + separator + listed + rng.choice(words["closings"])
    return CorpusTask("choice", str(table("topics")[topic]["noun"]), difficulty, text)


def _table(source: SlotFiller) -> CorpusTask:
    """Draws a small table in one of the usual forms, and a question about it."""
    rng, words, banks = source.rng, table("tasks")["table"], table("banks")
    columns = rng.sample(banks["column"], rng.randint(2, 4))
    keys = ("<name>", "<city>", "<month>", "<day>", "<country>")
    rows = [
        [source.fill(rng.choice(keys)), *(str(rng.randint(1, 900)) for _ in columns[1:])]
        for _ in range(rng.randint(2, 6))
    ]
    mark = rng.choice(words["marks"])
    lines = [mark.join(line) for line in [columns, *rows]]
    if mark == " | ":
        lines = [f"| {line} |" for line in lines]
        lines.insert(1, "|" + "---|" * len(columns))
    difficulty = rng.choice(DIFFICULTIES)
    said = {"column": columns[1], "first": rows[0][0], "second": rows[1][0], "last": rows[-1][0], "value": rows[0][1]}
    ask = source.fill(rng.choice(words[difficulty]).format(**said))
    opening = rng.choice(words["openings"])
    body = "\n".join(lines)
    text = f"{opening}{body}\n{ask}" if rng.random() < 0.6 else f"{ask}\n{opening}{body}"
    return CorpusTask("table", NOUNS["table"], difficulty, text)


def _function(source: SlotFiller) -> CorpusTask:
    """Draws a function to complete from signature and docstring, or one described in a sentence with a test."""
    rng, words = source.rng, table("tasks")["function"]
    difficulty = rng.choices(DIFFICULTIES, (25, 50, 25))[0]
    tests = {"easy": 1, "medium": rng.randint(1, 3), "hard": rng.randint(3, 5)}[difficulty]
    name = source.fill("<fnname>")
    medium_more, hard_more = source.fill(words["medium_more"]), source.fill(words["hard_more"])
    more = {"easy": "", "medium": medium_more, "hard": hard_more}[difficulty]
    if rng.random() < 0.6:
        examples = "\n".join(_doctest(name, source) for _ in range(tests))
        head = source.fill(words["imports"]) + f"def {name}" + source.fill(source.one("function", "signatures"))
        text = f'{head}\n    """{source.fill(words["docstring"])}{more}\n{examples}\n    """\n'
        return CorpusTask("code", NOUNS["code"], difficulty, rng.choice(words["openings"]) + text)
    checks = " ".join(f"`assert {name}({source.value()}) == {source.value()}`" for _ in range(min(tests, 2)))
    asked = (
        source.fill(words["request"]) + f"`{name}({rng.choice(words['arguments'])})`" + source.fill(words["purpose"])
    )
    return CorpusTask("code", NOUNS["code"], difficulty, f"{asked}{more}{rng.choice(words['tests'])}{checks}.")


def _doctest(name: str, source: SlotFiller) -> str:
    forms = (
        f"    >>> {name}({source.value()})\n    {source.value()}",
        f"    {name}({source.value()}) ==> {source.value()}",
        f"    For {source.value()} the result should be {source.value()}.",
    )
    return source.rng.choice(forms)


def _foreign(source: SlotFiller) -> CorpusTask:
    long = source.rng.random() < 0.5
    text = source.fill(source.rng.choice(table("hints")["foreign_long" if long else "foreign_short"]))
    return CorpusTask("foreign", NOUNS["foreign"], "medium" if long else "easy", text)


def _unclear(source: SlotFiller) -> CorpusTask:
    """Draws nonsense: syllables, stray characters, unconnected words, or one thing repeated."""
    rng, hints, banks = source.rng, table("hints"), table("banks")
    draw = rng.random()
    if draw < 0.4:
        words = [rng.choice((*hints["gibberish"], _syllable(rng))) for _ in range(rng.randint(1, 12))]
    elif draw < 0.6:
        words = ["".join(_stray_character(rng) for _ in range(rng.randint(3, 60)))]
    elif draw < 0.8:
        lists = ("adjective", "noun", "verb", "plural", "day")
        words = [rng.choice(banks[rng.choice(lists)]) for _ in range(rng.randint(3, 14))]
    else:
        words = [rng.choice((" ", "", ".", "aaaa", "the", "0", "ha")) * rng.randint(1, 120)]
    return CorpusTask("unclear", NOUNS["unclear"], "easy", " ".join(words))


def _syllable(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9)))


def _stray_character(rng: random.Random) -> str:
    return chr(rng.choice((rng.randint(33, 126), rng.randint(161, 900))))


def _rehearsed(source: SlotFiller) -> CorpusTask:
    """Draws a task of the rehearsal world, which the app offers first. Its family decides its kind here."""
    rng = source.rng
    # Easy tasks are likelier: most of the corpus is harder, so a small model takes an unfamiliar task for a harder one.
    family, difficulty = rng.choice(tuple(FAMILIES)), rng.choices(DIFFICULTIES, (3, 2, 2))[0]
    return rehearsal_task(generate(family, difficulty, rng.randint(0, 10**6)))


def rehearsal_task(known: RehearsalTask) -> CorpusTask:
    """Returns a question of the rehearsal world as a task of the corpus."""
    family, difficulty, text = known.family, known.difficulty, known.question
    kind: str = table("kinds")["of_family"][family]
    noun, parts = NOUNS[kind], 0
    if family == "arithmetic" and difficulty == "easy":
        kind, noun = "arithmetic", NOUNS["arithmetic"]
    elif family == "algebra":
        noun = "algebra problem"
    elif family == "comparison":
        offers = 3 if known.form == "hosting" else 2
        kind, parts = ("compare", offers) if difficulty != "hard" else ("word", 0)
    elif family == "facts" and difficulty != "easy":
        kind = "multihop"
    return CorpusTask(kind, noun, difficulty, text, parts, rehearsal=known)


def typed_task(asked: TypedRequest) -> CorpusTask:
    """Returns a request that somebody typed as a task of the corpus."""
    kind = table("kinds")["of_template"].get(asked.kind, asked.kind)
    noun = str(table("topics")[asked.topic]["noun"]) if asked.topic else NOUNS[kind]
    return CorpusTask(kind, noun, asked.difficulty, asked.text, asked.parts)


_BUILT: dict[str, Callable[[SlotFiller], CorpusTask]] = {
    "word": _word,
    "arithmetic": _arithmetic,
    "parts": _parts,
    "choice": _choice,
    "table": _table,
    "function": _function,
    "foreign": _foreign,
    "unclear": _unclear,
    "rehearsed": _rehearsed,
    "typed": lambda source: typed_task(source.rng.choice(typed_requests())),
}
_WORD = re.compile(r"(?<![\\\w{_`])[A-Za-z][a-z]{3,}(?![\w(_])")
"""Matches a word of prose, but no LaTeX command and no identifier that is called or indexed."""
_PLAIN = frozenset({"hostile", "unclear", "chat", "foreign"})


def _with_unknown_words(text: str, rng: random.Random) -> str:
    """Replaces some words by made-up ones: real tasks have many words that no list has, and only their form helps."""
    share = rng.choice((0.1, 0.2, 0.4))
    # The first words stay: in a short request often only they say what it wants.
    kept = re.match(r"\s*\S+(\s+\S+)?", text)
    start = kept.end() if kept else 0

    def one(match: re.Match[str]) -> str:
        if match.start() < start or rng.random() > share:
            return match.group(0)
        word = made_up_word(rng)
        return word.capitalize() if match.group(0)[0].isupper() else word

    return _WORD.sub(one, text)


def _dressed(task: CorpusTask, rng: random.Random) -> CorpusTask:
    """Returns the task, perhaps with a greeting, a closing phrase, careless typing, or a wish for a way of working."""
    text, hints, way = task.text, table("hints"), None
    if task.kind not in _PLAIN:
        if rng.random() < 0.4:
            text = _with_unknown_words(text, rng)
        if rng.random() < 0.15:
            text = rng.choice(hints["opening"]) + text
        if rng.random() < 0.15:
            text = text.rstrip() + rng.choice(hints["closing"])
        if rng.random() < 0.14:
            way = rng.choice(("staged", "opinions", "verified", "verified", "opinions", "brief"))
            wish = rng.choice(hints[way])
            text = f"{text.rstrip()} {wish}" if rng.random() < 0.85 else f"{wish} {text}"
        if rng.random() < 0.05:
            text = text.lower() if rng.random() < 0.7 else text.upper()
        if rng.random() < 0.2:
            text = text.rstrip().removesuffix(".").removesuffix("?")
        if rng.random() < 0.05:
            cut = rng.randrange(len(text))
            text = text[:cut] + text[cut + 1 :]
    return replace(task, text=text, way=way)

"""Tasks of the cold-start corpus: many kinds, each with a difficulty that can be seen in the text.

All wording is our own; no benchmark's text is in it. Kinds with plain templates are in ``wording/tasks.toml``; those that
need structure (stories, tables, code, lists of things) are built here.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from conductor_core.rehearsal.families import FAMILIES, generate
from conductor_core.training.wording import fill, table

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Task:
    """A task and what a plan has to know of it.

    Attributes:
        kind: which plans fit (``wording/plans.toml``).
        noun: how an instruction names it, e.g. "probability problem".
        parts: how many things it names that can be worked on side by side; 0 for none.
        way: how it asks to be worked on (staged, opinions, verified, brief), if it does.
    """

    kind: str
    noun: str
    difficulty: Difficulty
    text: str
    parts: int = 0
    way: str | None = None


NOUNS = {
    "fact": "factual question", "multihop": "question", "compare": "comparison", "foreach": "request", "planning": "planning task",
    "decide": "decision", "writing": "writing task", "translate": "translation", "summary": "summary", "reading": "question about a text",
    "extract": "extraction task", "format": "task", "logic": "logic puzzle", "code": "programming task", "debug": "debugging task",
    "chat": "message", "hostile": "message", "unclear": "message", "foreign": "request", "word": "word problem",
    "arithmetic": "calculation", "parts": "set of tasks", "table": "table question", "explain": "question", "olympiad": "contest problem",
    "proof": "proof",
}  # fmt: skip
_NAMED_BY_TOPIC = frozenset({"maths", "choice", "science"})
_TEMPLATE_KINDS = {"algebra": "maths", "geometry": "maths", "counting": "maths", "program": "code"}


class Source:
    """Draws the pieces that templates are filled with."""

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
            "lin": lambda: f"{rng.randint(2, 9)}x {rng.choice('+-')} {rng.randint(1, 30)}{rng.choice(('', 'y'))} = {rng.randint(2, 90)}",
            "sentence": self.sentence,
            "passage": lambda: self.passage(rng.randint(3, 6)),
            "long_passage": lambda: self.passage(rng.randint(9, 16)),
            "code": self.code,
            "foreign_text": lambda: self.fill(rng.choice(table("hints")["foreign_long"])),
        }

    def fill(self, template: str) -> str:
        return fill(template, self.rng, self.slots)

    def pick_topic(self, topics: list[str]) -> str:
        self.topic = self.rng.choice(topics)
        return self.topic

    def expression(self) -> str:
        rng = self.rng
        v, a, b, c = rng.choice("xxxyntz"), rng.randint(2, 9), rng.randint(1, 20), rng.randint(2, 5)
        forms = (
            f"{a}{v} + {b}", f"{v}^2 - {a}{v} + {b}", f"{v}^{c} + {a}{v}^2 - {b}", f"\\frac{{{a}{v} + {b}}}{{{c}}}", f"\\sqrt{{{v} + {b}}}",
            f"|{v} - {a}|", f"\\log_{{{c}}} {v}", f"\\sin {a}{v}", f"({v} + {a})({v} - {b})", f"{a}^{{{v}}}", f"e^{{{a}{v}}} \\cos {v}",
            f"\\binom{{{b + a}}}{{{a}}}", f"{a}({b} - {c})^2", f"\\int_0^{{{a}}} {v}^{c} \\, d{v}", f"\\lfloor {v} \\rfloor", f"{a} \\cdot {b} + {c}!",
            f"\\left( {v} + \\frac{{1}}{{{v}}} \\right)^{c}", f"\\begin{{pmatrix}} {a} & {b} \\\\ {c} & {a} \\end{{pmatrix}}", f"f({v}) - {a}", f"\\cos {b}^\\circ",
        )  # fmt: skip
        return rng.choice(forms)

    def sentence(self) -> str:
        return self.fill(
            "[The|A|Our|This] <adjective> <noun> <verb> the <noun>[ in <city>| on <day>| in <month>| after <n> days| with <name>|, which the <noun> <verb>|]."
            if self.rng.random() < 0.7
            else "[<name> <verb> <n> <plural> [in|near] <city>.|In <month> the <noun> [was|is] <adjective>, but the <noun> <verb> [it|<n> <plural>].|I [like|do not like] the <adjective> <noun>, it <verb> my <noun>.|There were <n> <adjective> <plural> at the <place>, and <name> <verb> them.]"
        )

    def passage(self, sentences: int) -> str:
        return " ".join(self.sentence() for _ in range(sentences))

    def code(self) -> str:
        a, b = self.rng.sample("abcnxyijk", 2)
        return self.fill(
            f"[def <fnname>({a}):\n    [for {b} in range(len({a})):|while {a}:|{b} = 0]\n        [if {a}% 2 == 0:|{b} += {a}|{a}.append({b})|print({b})]\n    return [{b}|{a}|None|{a} + {b}]"
            f"|function <fnname>({a}) {{ [let|const] {b} = []; for (let i = 0; i <= {a}.length; i++) {{ {b}.push({a}(i)); }} return {b}; }}"
            f"|int <fnname>(int *{a}, int {b}) {{ int s; for (int i = 0; i < {b}; i++) s += {a}(i); return s; }}"
            f"|class <fnname>:\n    def __init__(self, {a}=None):\n        self.{a} = {a}\n    def get(self): return self.{b}"
            f"|SELECT <column>, COUNT(*) FROM <dbtable> WHERE <column> > <n> GROUP BY <column>]"
        )

    def things(self, count: int) -> list[str]:
        return self.rng.sample(table("banks")["option"], count)


def joined(things: list[str], word: str) -> str:
    return f"{', '.join(things[:-1])} {word} {things[-1]}" if len(things) > 1 else things[0]


def draw_task(rng: random.Random) -> Task:
    """One task: a kind, a difficulty, a wording; sometimes dressed up, in bad typing, or with a wish how to work."""
    source = Source(rng)
    kind = rng.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]
    task = _BUILT[kind](source) if kind in _BUILT else _from_template(kind, source)
    return _dressed(task, rng)


def _from_template(name: str, source: Source) -> Task:
    entry, rng = table("tasks")[name], source.rng
    topic = source.pick_topic(entry.get("topics", ["history"]))
    difficulty = rng.choice([each for each in DIFFICULTIES if each in entry])
    kind = _TEMPLATE_KINDS.get(name, name)
    parts = 0
    if entry.get("fan"):
        parts = rng.choices((2, 3, 4, 5, 6), (35, 40, 15, 6, 4))[0]
        things = source.things(parts)
        source.slots |= {
            "items": lambda: joined(things, "and"), "items_or": lambda: joined(things, "or"), "a": lambda: things[0],
            "b": lambda: things[1], "c": lambda: joined(things[2:] or [things[0]], "vs"),
        }  # fmt: skip
        difficulty = "hard" if parts > 4 else difficulty
    template = rng.choice(entry[difficulty])
    if entry.get("fan") and "<a> vs" in template:
        template = "<a> vs <b> vs <c>" if parts > 2 else "<a> vs <b>: <aspect>, <aspect>?"
    noun = str(table("topics")[topic]["noun"]) if kind in _NAMED_BY_TOPIC else NOUNS[kind]
    if kind == "maths" and name not in ("algebra", topic) and rng.random() < 0.5:
        noun = str(table("topics")[name]["noun"])
    return Task(kind, noun, difficulty, source.fill(template), parts)


def _word(source: Source) -> Task:
    story, rng = table("hints")["story"], source.rng
    difficulty = rng.choices(DIFFICULTIES, (20, 50, 30))[0]
    events = {"easy": rng.randint(0, 1), "medium": rng.randint(1, 3), "hard": rng.randint(4, 6)}[difficulty]
    lines = [rng.choice(story["opening"]), *(rng.choice(story["event"]) for _ in range(events)), rng.choice(story["question"])]
    if difficulty != "easy" and rng.random() < 0.15:
        lines[-1] = "If " + rng.choice(("that is so", "this goes on for <k> weeks", "<name> wants the same")) + ", " + lines[-1][0].lower() + lines[-1][1:]
    return Task("word", NOUNS["word"], "easy" if events == 0 else difficulty, source.fill(" ".join(lines)))


def _arithmetic(source: Source) -> Task:
    rng = source.rng
    difficulty = rng.choice(DIFFICULTIES)
    terms = {"easy": 2, "medium": rng.randint(3, 4), "hard": rng.randint(5, 7)}[difficulty]
    text = str(rng.randint(2, 999))
    for _ in range(terms - 1):
        operand = rng.choice((str(rng.randint(2, 99)), str(rng.randint(100, 9999)), f"({rng.randint(2, 90)} {rng.choice('+-')} {rng.randint(1, 40)})"))
        text += f" {rng.choice(('+', '-', '*', '/', 'x', '·', '×', 'plus', 'minus', 'times'))} {operand}"
    if difficulty == "easy" and rng.random() < 0.4:
        text = rng.choice((f"{rng.randint(2, 95)}% of {text.split()[0]}", f"the square root of {text.split()[0]}", f"{text.split()[0]} squared", f"{text.split()[0]} km in miles"))
    wrapped = rng.choice(("What is {}?", "Calculate {}.", "Compute {}", "{} = ?", "{}", "How much is {}?", "work out {}", "Evaluate {}.", "what's {}"))
    return Task("arithmetic", NOUNS["arithmetic"], difficulty, wrapped.format(text))


def _parts(source: Source) -> Task:
    """Several small questions in one."""
    rng, parts = source.rng, source.rng.choices((2, 3, 4), (35, 45, 20))[0]
    makers: list[Callable[[], str]] = [lambda: _arithmetic(source).text, lambda: _from_template("fact", source).text, lambda: _from_template("algebra", source).text]
    make = rng.choice([*makers, lambda: rng.choice(makers)()])
    marks = rng.choice((("1) ", "2) ", "3) ", "4) "), ("a) ", "b) ", "c) ", "d) "), ("(i) ", "(ii) ", "(iii) ", "(iv) "), ("1. ", "2. ", "3. ", "4. ")))
    opening = rng.choice(("Answer each part. ", "Solve all of these: ", "", "Homework: ", "Do the following. ", "Compute each of the following: "))
    return Task("parts", NOUNS["parts"], "medium", opening + " ".join(mark + make() for mark, _ in zip(marks, range(parts), strict=False)), parts)


def _choice(source: Source) -> Task:
    rng = source.rng
    topic = source.pick_topic(["abstract_algebra", "statistics", "physics", "chemistry", "biology", "anatomy", "astronomy", "computer_science", "security",
        "engineering", "machine_learning", "calculus", "algebra", "number_theory", "geometry", "history", "geography", "economics", "medicine", "law"])  # fmt: skip
    difficulty = rng.choices(DIFFICULTIES, (40, 35, 25))[0]
    stems = {
        "easy": ["Which of the following [is|describes|is not|causes|can be] [a|an|the|] <term>?", "The <term> of the <term> is [called|produced by|part of|due to]", "A <term> [arises when|is|contains|serves to]", "What is [the <term>|a <term>|meant by <term>]?", "Which <term> [is closest to|has the highest|is part of] the <term>?", "[Why|How|When|Where] is the <term> <adjective>?", "The term <term> refers to", "Most <term>s are [made of|caused by|known as]", "All of these hold for <term> EXCEPT"],
        "medium": ["A <term> with a <term> of <n> [units|kg|mol|V|m/s|cm] is [placed in|connected to|compared with] a <term> of 0.<n>. What is the <term>?", "If the <term> of a <term> is <k> times the <term>, then the <term> [is|becomes|increases by]", "[Find|Calculate|Determine] the <term> of $<x>$ [in Z_<k>|for the given <term>].", "Statement 1 | Every <term> is a <term>. Statement 2 | If a <term> is a <term>, it has a <term>.", "Judging by the <term> of the <term> in the figure, the [best|likely] way to [lower|raise] the <term> is", "In a sample of <n> <plural>, <n> percent have a <term>. Which of the following is the best [estimate|interpretation] of the <term>?", "Let p = <x>. Which of the following is [equal to|a root of] p?"],
        "hard": ["<name> [wants|plans] to [test|measure] whether the <term> of a <term> depends on the <term>. A group of <n> <plural> is <verb> at random, half with a <term> of <n> and half with <n>. After <k> weeks the <term> is measured and compared with the <term>, and the <noun> is found to be <n>. The <term> was then <verb> again under a different <term>. Which of the following conclusions about the <term> is [justified|not supported]?", "Consider a <term> with <term> <n> and <term> <n>, in which every <term> has a <term>. Suppose that $<e>$ and that the <term> satisfies $<x> = <x>$ for all <term>s. The <term> is then changed so that each <term> doubles while the <term> stays constant at <n>. If the <term> is negligible, what is the ratio of the <term> to the <term> at time <k>?", "The figure and the <noun> above describe [a program|an experiment|a system] in which a <term> is <verb> by a <term>. [Under which of the following conditions|For which value of <v>] will the <term> not [terminate|work as intended], given that the <term> contains <n> <term>s and that the <term> is initially <k>? Assume that the <term> and the <term> are <adjective> and that no <term> is lost."],
    }  # fmt: skip
    question = source.fill(rng.choice(stems[difficulty]))
    short = rng.random() < 0.6
    def option() -> str:
        form = rng.choice(("<term>", "<term>s", "<n>", "<k>.<n>", "<term> and <term>", "<adjective> <term>", "<x>", "True, <k>", "none of the above", "0.<n>", "I, II, and III", "x = <k>")) if short else rng.choice(
            ("the <term> of the <term> <verb> the <noun>", "a <adjective> <term> is <verb> by the <term> of the <term>", "keep the <term> below the <term>", "It is <adjective> when the <term> is a <term>.", "increases with the <term> and decreases with the <term>", "only if each <term> has a <term>", "True, False", "because the <noun> and the <term> <verb> each other"))  # fmt: skip
        return source.fill(form)
    style = rng.choice(("{}. ", "{}) ", "({}) ", "{}: "))
    letters = "ABCD" if rng.random() < 0.85 else "ABCDE"[: rng.choice((3, 5))]
    letters = letters.lower() if rng.random() < 0.05 else letters
    separator = rng.choice((" ", "\n", "\n", "; "))
    text = question + separator + separator.join(style.format(letter) + option() for letter in letters)
    text += rng.choice(("", "", " Answer with the letter.", " Choose one.", "\nAnswer:", " Which is correct?", "\nAnswer with the letter of the right option."))
    return Task("choice", str(table("topics")[topic]["noun"]), difficulty, text)


def _table(source: Source) -> Task:
    rng, banks = source.rng, table("banks")
    columns = rng.sample(banks["column"], rng.randint(2, 4))
    rows = [[source.fill(rng.choice(("<name>", "<city>", "<month>", "<day>", "<country>"))), *(str(rng.randint(1, 900)) for _ in columns[1:])] for _ in range(rng.randint(2, 6))]
    mark = rng.choice((" | ", ",", ", ", "; ", "\t"))
    lines = [mark.join(line) for line in [columns, *rows]]
    if mark == " | ":
        lines = [f"| {line} |" for line in lines]
        lines.insert(1, "|" + "---|" * len(columns))
    difficulty = rng.choice(DIFFICULTIES)
    c = columns[1]
    ask = source.fill(rng.choice({
        "easy": [f"What is the {c} of {rows[0][0]}?", f"Which row has {c} {rows[0][1]}?", f"Look up the {c} for {rows[-1][0]}."],
        "medium": [f"Who has the [highest|lowest] {c}?", f"What is the [total|average] {c}?", f"How many rows have {c} above <n>?", f"By how much does the {c} of {rows[0][0]} exceed that of {rows[1][0]}?", f"Which has the largest {c}, and what is the sum?"],
        "hard": [f"Which row deviates most from the average {c}, and by how many percent would it have to change to reach the [median|mean]?", f"Rank all rows by {c}, compute the share of each in the total and say which two together make up about half.", f"Rows with {c} above <n> get a discount of <k> percent. What is the total {c} before and after it, and what is the difference on average?"],
    }[difficulty]))  # fmt: skip
    opening = rng.choice(("", "Table: ", "Use this table. ", "Given the data below, answer the question. ", "Here is a CSV file: ", "From the table: "))
    body = "\n".join(lines)
    text = f"{opening}{body}\n{ask}" if rng.random() < 0.6 else f"{ask}\n{opening}{body}"
    return Task("table", NOUNS["table"], difficulty, text)


def _function(source: Source) -> Task:
    """A function to complete from signature and docstring, or described in a sentence with a test."""
    rng = source.rng
    difficulty = rng.choices(DIFFICULTIES, (25, 50, 25))[0]
    tests = {"easy": 1, "medium": rng.randint(1, 3), "hard": rng.randint(3, 5)}[difficulty]
    call = source.fill("<fnname>")
    def value() -> str:
        return rng.choice((str(rng.randint(0, 99)), str([rng.randint(0, 20) for _ in range(rng.randint(0, 5))]), f"'{rng.choice(table('banks')['adjective'])}'", "True", "None", "[]", "''"))
    more = {"easy": "", "medium": source.fill("[| If the list is empty, return None.| You may assume that the input is valid.]"),
        "hard": source.fill(" It must also handle <does>. If [several|no] <noun>s are found, return [the first|an empty list|-1]. The input may be very large, so the <noun> must not be <verb> more than once. Note: the order of the result [matters|does not matter].")}[difficulty]  # fmt: skip
    if rng.random() < 0.6:
        examples = "\n".join(rng.choice((f"    >>> {call}({value()})\n    {value()}", f"    {call}({value()}) ==> {value()}", f"    For {value()} the result should be {value()}.")) for _ in range(tests))
        head = source.fill("[from typing import List\n\n\n|import math\n\n|||from typing import List, Optional\n\n]") + f"def {call}" + source.fill(rng.choice(("(<gets>)[ -> <gives>|]:", "(<gets>):")))
        text = f'{head}\n    """{source.fill("[ |][Return|Returns|Find|Compute|Given a list, return|Write a function that returns|You are given <gets>. Return|Check and return] <does>.")}{more}\n{examples}\n    """\n'
        text = rng.choice(("", "", "Complete this function:\n", "Complete the following Python code.\n", "Implement:\n")) + text
    else:
        checks = " ".join(f"`assert {call}({value()}) == {value()}`" for _ in range(min(tests, 2)))
        text = source.fill("[Write|Implement|Give me|In Python, write] a [Python |]function ") + f"`{call}(" + rng.choice(("values", "text", "numbers", "n", "spans")) + ")`" + source.fill(" [that returns|which computes|to find] <does>.") + more + rng.choice((" It must pass ", " Unit test: ", " Tests: ")) + checks + "."
    return Task("code", NOUNS["code"], difficulty, text)


def _foreign(source: Source) -> Task:
    rng = source.rng
    long = rng.random() < 0.5
    return Task("foreign", NOUNS["foreign"], "medium" if long else "easy", source.fill(rng.choice(table("hints")["foreign_long" if long else "foreign_short"])))


def _unclear(source: Source) -> Task:
    rng, hints, banks = source.rng, table("hints"), table("banks")
    draw = rng.random()
    if draw < 0.4:
        words = [rng.choice((*hints["gibberish"], "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))))) for _ in range(rng.randint(1, 12))]
    elif draw < 0.6:
        words = ["".join(chr(rng.choice((rng.randint(33, 126), rng.randint(161, 900)))) for _ in range(rng.randint(3, 60)))]
    elif draw < 0.8:
        words = [rng.choice(banks[rng.choice(("adjective", "noun", "verb", "plural", "day"))]) for _ in range(rng.randint(3, 14))]
    else:
        words = [rng.choice((" ", "", ".", "aaaa", "the", "0", "ha")) * rng.randint(1, 120)]
    return Task("unclear", NOUNS["unclear"], "easy", " ".join(words))


_REHEARSED = {
    "arithmetic": "word", "journey": "word", "algebra": "word", "code": "code", "facts": "fact", "multi_hop": "multihop", "table": "table",
    "comparison": "compare", "planning": "planning", "format": "format",
}  # fmt: skip


def _rehearsed(source: Source) -> Task:
    """A task of the rehearsal world, which the app offers first: its families, fitted to our kinds."""
    rng = source.rng
    family, difficulty = rng.choice(tuple(FAMILIES)), rng.choice(DIFFICULTIES)
    text = generate(family, difficulty, rng.randint(0, 10**6)).question
    kind, noun, parts = _REHEARSED[family], NOUNS[_REHEARSED[family]], 0
    if family == "arithmetic" and difficulty == "easy":
        kind, noun = "arithmetic", NOUNS["arithmetic"]
    elif family == "algebra":
        noun = "algebra problem"
    elif family == "comparison":
        parts = 3 if "three" in text.lower() or " C" in text else 2
        kind, parts = ("compare", parts) if difficulty != "hard" else ("word", 0)
    elif family == "facts" and difficulty != "easy":
        kind = "multihop"
    elif family == "multi_hop" and difficulty == "easy":
        difficulty = "medium"
    return Task(kind, noun, difficulty, text, parts)


_BUILT: dict[str, Callable[[Source], Task]] = {
    "word": _word, "arithmetic": _arithmetic, "parts": _parts, "choice": _choice, "table": _table, "function": _function,
    "foreign": _foreign, "unclear": _unclear, "rehearsed": _rehearsed,
}  # fmt: skip
_WEIGHTS = {
    "word": 12, "choice": 12, "algebra": 9, "geometry": 5, "counting": 5, "olympiad": 4, "function": 7, "fact": 6, "science": 4, "arithmetic": 3,
    "parts": 2, "table": 3.5, "multihop": 2.5, "proof": 2, "explain": 3, "compare": 4, "foreach": 3, "planning": 3, "decide": 2, "writing": 3,
    "translate": 2, "summary": 2, "reading": 2, "extract": 1.5, "format": 2, "logic": 2.5, "program": 4, "debug": 2.5, "chat": 1.5,
    "hostile": 1.5, "foreign": 2, "unclear": 1.5, "rehearsed": 12,
}  # fmt: skip
"""Shares of the kinds: more of what is asked most often and is told apart least easily."""

_PLAIN = frozenset({"hostile", "unclear", "chat", "foreign"})


def _dressed(task: Task, rng: random.Random) -> Task:
    """The task with a greeting or a closing phrase, careless typing, or a wish for a way of working."""
    text, hints, way = task.text, table("hints"), None
    if task.kind not in _PLAIN:
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
        if rng.random() < 0.05:
            cut = rng.randrange(len(text))
            text = text[:cut] + text[cut + 1 :]
    return replace(task, text=text, way=way)

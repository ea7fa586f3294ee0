"""Defines a task family: question forms with slots, and a rule that computes the answer from the slots.

A form's wordings both make and recognise a question. With their slots filled in they are the question. As regular
expressions they find that question inside any text and give the slots back. So a simulated worker needs no hidden
knowledge: all that it can know about a task is in the text in front of it.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")

AnswerKind = Literal["number", "time", "text", "exact", "code"]
"""How to compare two answers: as numbers, as times of day, as words (case and articles do not matter), character by
character, or as the syntax tree of a Python function (never executed)."""

Slots = Mapping[str, str]

# Every class is bounded, so that no text can make a search run away.
_SLOT_PATTERNS = {
    "int": r"\d{1,7}",
    "decimal": r"\d{1,6}(?:\.\d{1,2})?",
    "time": r"\d{1,2}:\d{2}",
    "name": r"[A-Z][a-z]{1,14}",
    "names": r"[A-Z][a-z]{1,14}(?: [A-Z][a-z]{1,14}){0,2}",
    "word": r"[a-z]{2,16}",
    "words": r"[a-z]{1,16}(?:, [a-z]{1,16}){1,11}",
    "ident": r"[a-z_][a-z0-9_]{0,30}",
    "ints": r"\d{1,6}(?:, \d{1,6}){0,19}",
    "pairs": r"\[\d{1,5}, \d{1,5}\](?:, \[\d{1,5}, \d{1,5}\]){0,9}",
    "table": r"\|[^\n]{1,200}\|(?:\n\|[^\n]{1,200}\|){2,12}",
}
_SLOT = re.compile(r"\{(\w+):(\w+)\}")

TAILS = (
    "Check the result independently.",
    "Have the result checked by someone else.",
    "Get several independent opinions and combine them.",
    "Work it out in stages.",
)
"""Requests about *how* to work that may follow a question. They belong to the question as a worker sees it."""


@dataclass(frozen=True)
class Slip:
    """A wrong answer that a hurried person could give, with the working that leads to it."""

    answer: str
    working: tuple[str, ...]


@dataclass(frozen=True)
class Solution:
    """Everything that follows from a question.

    Attributes:
        plan: the steps of a good approach, with the task's own numbers; none gives the answer away.
        working: the right working, one line each.
        check: one sentence that confirms the answer by another way.
        risk: the mistake that this question invites.
        slips: at least one; no slip's answer is right.
    """

    answer: str
    kind: AnswerKind
    plan: tuple[str, ...]
    working: tuple[str, ...]
    check: str
    risk: str
    slips: tuple[Slip, ...]


@dataclass(frozen=True)
class RehearsalTask:
    """A question of the rehearsal world, as found in or made for a text.

    Attributes:
        question: its exact text, with the tail that may follow it.
        form: the name of the form. wording: the index among the form's wordings of the split.
        split: says whether training may use that wording.
    """

    family: str
    difficulty: Difficulty
    form: str
    split: Split
    wording: int
    question: str
    solution: Solution

    @property
    def answer(self) -> str:
        return self.solution.answer


@cache
def words(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


FOLDER = Path(__file__).parent


class Worked(NamedTuple):
    """What follows from the slots of a question: the right answer, wrong ones, and what words can say of the way.

    Several lines are a tuple.
    """

    answer: str
    slips: tuple[str, ...]
    said: Mapping[str, str | tuple[str, ...]]


Said = str | int | Fraction


def worked(answer: Said, *slips: Said, **said: Said | tuple[str, ...]) -> Worked:
    """Returns these with their figures as people write them."""
    written = {name: each if isinstance(each, tuple) else _written(each) for name, each in said.items()}
    return Worked(_written(answer), tuple(map(_written, slips)), written)


def _written(said: Said) -> str:
    return said if isinstance(said, str) else number(said)


def _lines(templates: Sequence[str], said: Mapping[str, str | tuple[str, ...]]) -> tuple[str, ...]:
    found: list[str] = []
    for template in templates:
        whole = said.get(template.strip("{}"))
        found += whole if isinstance(whole, tuple) else (template.format_map(said),)
    return tuple(found)


@dataclass(frozen=True)
class Form:
    """One kind of question: wordings with ``{slot:type}`` places, a draw of slot values, and the rule for the answer.

    ``name`` is that of its words in ``wordings.toml`` and ``solutions.toml``. ``draw`` may now and then give slots that
    ``work`` refuses. ``work`` returns None where the slots make no sense (a speed of zero, a name that is not in the
    text).
    """

    family: str
    difficulty: Difficulty
    name: str
    draw: Callable[[Random], Mapping[str, str | int]]
    work: Callable[[Slots], Worked | None]

    def wordings(self, split: Split) -> tuple[str, ...]:
        return tuple(words(FOLDER / "wordings.toml")[self.name][split])

    def solve(self, slots: Slots) -> Solution | None:
        """Returns the solution with those slips that are really wrong, each wrong answer once; None: there is none."""
        found = self.work(slots)
        if found is None:
            return None
        text = words(FOLDER / "solutions.toml")[self.name]
        figures = {name: str(int(slot)) if slot.isdecimal() else slot for name, slot in slots.items()}
        said = {**figures, **found.said, "answer": found.answer}
        slips: dict[str, Slip] = {}
        for wrong, working in zip(found.slips, text["slips"], strict=True):
            if wrong != found.answer:
                slips.setdefault(wrong, Slip(wrong, _lines(working, {**said, "wrong": wrong})))
        return Solution(
            answer=found.answer,
            kind=text["kind"],
            plan=_lines(text["plan"], said),
            working=_lines(text.get("working", text["plan"]), said),
            check=text["check"].format_map(said),
            risk=text["risk"].format_map(said),
            slips=tuple(slips.values()),
        )

    @cached_property
    def finders(self) -> tuple["Finder", ...]:
        return tuple(
            Finder(self, split, place, wording, _longest_literal(wording))
            for split in SPLITS
            for place, wording in enumerate(self.wordings(split))
        )

    def generate(self, rng: Random, split: Split) -> RehearsalTask:
        """Makes a question with its answer. Raises: ValueError if the form draws no slots that it can solve (a bug)."""
        for _ in range(100):
            slots = {name: str(value) for name, value in self.draw(rng).items()}
            solution = self.solve(slots)
            if solution is None or not solution.slips:
                continue
            wording = rng.randrange(len(self.wordings(split)))
            question = _SLOT.sub(lambda match: slots[match[1]], self.wordings(split)[wording])  # noqa: B023 - at once
            return RehearsalTask(self.family, self.difficulty, self.name, split, wording, question, solution)
        raise ValueError(f"the form {self.name} draws only questions without an answer")


@dataclass(frozen=True)
class Finder:
    """Finds one wording of a form in a text. ``literal``: without it in ``folded`` text there is nothing to find."""

    form: Form
    split: Split
    place: int
    wording: str
    literal: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return _pattern(self.wording)

    def find(self, text: str) -> tuple[int, RehearsalTask] | None:
        """Returns where the first question of this wording starts in ``text``, and the question; or None."""
        match = self.pattern.search(text)
        if match is None:
            return None
        form = self.form
        solution = form.solve({name: value for name, value in match.groupdict().items() if value is not None})
        if solution is None or not solution.slips:
            return None
        task = RehearsalTask(form.family, form.difficulty, form.name, self.split, self.place, match[0], solution)
        return match.start(), task


# Letters that a pattern takes for another one when case is ignored, but that have no such lower case.
_FOLDED = str.maketrans({"ſ": "s", "İ": "i", "ı": "i"})


def folded(text: str) -> str:
    """Returns ``text`` in lower case with single spaces. No pattern finds in ``text`` what this form of it lacks."""
    return " ".join(text.translate(_FOLDED).lower().split())


def _longest_literal(wording: str) -> str:
    # Signs that patterns take for one another are no part of it, nor is an end mark.
    body = wording[:-1] if wording[-1] in ".?" else wording
    return max((folded(piece) for piece in re.split(r"[×−]", _SLOT.sub("×", body))), key=len)


def _pattern(wording: str) -> re.Pattern[str]:
    """Makes a regular expression of the wording: any white space or multiplication sign, optional end mark and tail."""
    seen: set[str] = set()

    def slot(match: re.Match[str]) -> str:
        name, kind = match[1], match[2]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{_SLOT_PATTERNS[kind]})"

    end = wording[-1] if wording[-1] in ".?" else ""
    pieces = []
    position = 0
    body = wording[: len(wording) - len(end)]
    for match in _SLOT.finditer(body):
        pieces += [_literal(body[position : match.start()]), slot(match)]
        position = match.end()
    pieces.append(_literal(body[position:]))
    tails = "|".join(_literal(tail) for tail in TAILS)
    return re.compile(rf"(?<!\w){''.join(pieces)}(?!\w){'[.?]?' if end else ''}(?:\s+(?:{tails}))*", re.IGNORECASE)


def _literal(text: str) -> str:
    escaped = re.escape(re.sub(r"\s+", " ", text)).replace(r"\ ", r"\s+")
    return escaped.replace("×", "[×x*·]").replace("−", "[−-]")


def number(value: Fraction | int | float) -> str:
    """Writes a number as people do: at most two decimals, none where none is needed."""
    exact = Fraction(value).limit_denominator(10**6)
    if exact.denominator == 1:
        return str(exact.numerator)
    rounded = Fraction(int(exact * 100 + Fraction(1, 2) if exact >= 0 else exact * 100 - Fraction(1, 2)), 100)
    return f"{float(rounded):.2f}".rstrip("0").rstrip(".")


def money(value: Fraction | int) -> str:
    """Writes an amount with two decimals, with none if it is whole."""
    return number(value) if Fraction(value).denominator == 1 else f"{float(value):.2f}"


def clock(minutes: int) -> str:
    """Writes minutes after midnight as HH:MM; a new day starts at 00:00 again."""
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def minutes_of(time: str) -> int | None:
    """Reads HH:MM as minutes after midnight; None if there is no such time."""
    hours, minutes = (int(part) for part in time.split(":"))
    return hours * 60 + minutes if hours < 24 and minutes < 60 else None


def hours_and_minutes(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours and rest else f"{hours} h" if hours else f"{rest} min"

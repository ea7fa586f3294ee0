"""How a task family is written down: question forms with slots, and a rule that computes the answer from the slots.

A form's wordings are both the generator and the recogniser: filled in they make a question, turned into a regular
expression they find that question inside any text and give the slots back. So a simulated worker needs no hidden
knowledge: what it can know about a task is what the text in front of it says.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Literal

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")

AnswerKind = Literal["number", "time", "text", "exact", "code"]
"""How two answers are compared: as numbers, as times of day, as words (case and articles do not matter), character by
character, or as the syntax tree of a Python function (nothing is ever executed)."""

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
        question: exactly as it stands in the text, with the tail that may follow it.
        wording: index of the form's wording, so that a split by wording is possible.
    """

    family: str
    difficulty: Difficulty
    wording: int
    question: str
    solution: Solution

    @property
    def answer(self) -> str:
        return self.solution.answer


@dataclass(frozen=True)
class Form:
    """One kind of question: wordings with ``{slot:type}`` places, a draw of slot values, and the rule for the answer.

    ``solve`` returns None where the slots make no sense (a speed of zero, a name that is not in the text).
    """

    family: str
    difficulty: Difficulty
    wordings: tuple[str, ...]
    draw: Callable[[Random], Mapping[str, str | int]]
    solve: Callable[[Slots], Solution | None]

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(_pattern(wording) for wording in self.wordings)

    def generate(self, rng: Random) -> RehearsalTask:
        """A question with its answer. Raises: ValueError if the form drew slots that it cannot solve (a bug)."""
        slots = {name: str(value) for name, value in self.draw(rng).items()}
        wording = rng.randrange(len(self.wordings))
        question = _SLOT.sub(lambda match: slots[match[1]], self.wordings[wording])
        solution = self.solve(slots)
        if solution is None:
            raise ValueError(f"{self.family}/{self.difficulty} drew a question without an answer: {question}")
        return RehearsalTask(self.family, self.difficulty, wording, question, solution)

    def find(self, text: str) -> tuple[int, RehearsalTask] | None:
        """The first question of this form in ``text`` and where it starts."""
        for wording, pattern in enumerate(self.patterns):
            match = pattern.search(text)
            if match is None:
                continue
            solution = self.solve({name: value for name, value in match.groupdict().items() if value is not None})
            if solution is not None:
                return match.start(), RehearsalTask(self.family, self.difficulty, wording, match[0], solution)
        return None


def _pattern(wording: str) -> re.Pattern[str]:
    """The wording as a regular expression: any white space, any multiplication sign, optional end mark and tail."""
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
    """A number as people write it: at most two decimals, none where none is needed."""
    exact = Fraction(value).limit_denominator(10**6)
    if exact.denominator == 1:
        return str(exact.numerator)
    rounded = Fraction(int(exact * 100 + Fraction(1, 2) if exact >= 0 else exact * 100 - Fraction(1, 2)), 100)
    return f"{float(rounded):.2f}".rstrip("0").rstrip(".")


def money(value: Fraction | int) -> str:
    """An amount with its two decimals, none where it is whole."""
    return number(value) if Fraction(value).denominator == 1 else f"{float(value):.2f}"


def clock(minutes: int) -> str:
    """Minutes after midnight as HH:MM; after midnight it starts again."""
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def minutes_of(time: str) -> int | None:
    """HH:MM as minutes after midnight, None if there is no such time."""
    hours, minutes = (int(part) for part in time.split(":"))
    return hours * 60 + minutes if hours < 24 and minutes < 60 else None


def hours_and_minutes(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours and rest else f"{hours} h" if hours else f"{rest} min"


def differing(answer: str, slips: list[Slip]) -> tuple[Slip, ...]:
    """The slips that are really wrong, each answer once."""
    kept: dict[str, Slip] = {}
    for slip in slips:
        if slip.answer != answer:
            kept.setdefault(slip.answer, slip)
    return tuple(kept.values())

"""Turns rows of public benchmarks into tasks: their columns, their questions, and how answers are graded.

Each format has a function ``(row, number) -> Task``. A fault in a row raises ``RowFault``; the loader, which knows the
file and the line, adds the place.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from conductor_core.analysis.answers import boxed
from conductor_core.grading.numbers import parse_quantity
from conductor_core.grading.tasks import GRADERS, Task

Row = Mapping[str, Any]


class RowFault(Exception):
    """A row that cannot be used. ``field``: the column at fault."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"field {field!r} {what}")
        self.field = field


@dataclass(frozen=True)
class Format:
    """A kind of row.

    Attributes:
        keys: the columns by which the format is recognised, and which every row must have.
        task: makes a task of a row. ``number`` counts rows from 0 and names rows without an id.
    """

    name: str
    keys: frozenset[str]
    task: Callable[[Row, int], Task]


def text(row: Row, field: str) -> str:
    """Returns the column's text. Raises: RowFault if it is not text or empty."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise RowFault(field, f"must be a text, not {_kind(value)}")
    return value


def grade_school(row: Row, number: int) -> Task:
    """GSM8K: the answer is worked out in prose and ends in ``#### N``."""
    solution = text(row, "answer")
    _, mark, reference = solution.rpartition("####")
    reference = reference.strip().replace(",", "")
    if not mark or parse_quantity(reference) is None:
        raise RowFault("answer", "must end in '#### ' and one number")
    return Task(
        task_id=f"gsm8k/{row.get('idx', number)}",
        question=text(row, "question"),
        family="word problems",
        difficulty="",
        reference=reference,
        grader="numeric",
        extra={"solution": solution},
    )


def competition_math(row: Row, number: int) -> Task:
    r"""MATH: ``answer`` is LaTeX. Without it, the content of the solution's last ``\boxed{}`` is the answer."""
    solution = row.get("solution")
    if isinstance(row.get("answer"), str) and row["answer"].strip():
        reference = row["answer"].strip()
    else:
        boxes = boxed(text(row, "solution"))
        if not boxes:
            raise RowFault("solution", r"has no \boxed{} answer, and the field 'answer' is missing")
        reference = boxes[-1][1].strip()
    level = row.get("level")
    return Task(
        task_id=f"math/{row.get('unique_id', number)}",
        question=text(row, "problem"),
        family=str(row.get("subject") or "mathematics"),
        difficulty=f"level {level}" if isinstance(level, int) else str(level or ""),
        reference=reference,
        grader="math",
        extra={"solution": solution} if isinstance(solution, str) else {},
    )


def aime(row: Row, number: int) -> Task:
    """AIME: the answer is a whole number from 0 to 999."""
    value = row.get("answer")
    number_read = (
        None if isinstance(value, bool) else re.fullmatch(r"\s*(\d{1,3})\s*(?:\^\{?\\circ\}?)?\s*", str(value))
    )
    if number_read is None:
        raise RowFault("answer", f"must be a whole number from 0 to 999, not {value!r}")
    return Task(
        task_id=f"aime/{row.get('id', row.get('problem_idx', number))}",
        question=text(row, "problem" if "problem" in row else "question"),
        family="competition",
        difficulty="",
        reference=str(int(number_read[1])),
        grader="numeric",
        extra={"solution": row["solution"]} if isinstance(row.get("solution"), str) else {},
    )


def multiple_choice(row: Row, number: int) -> Task:
    """MMLU: ``answer`` is the index of the right one of ``choices``."""
    subject = str(row.get("type") or row.get("subject") or "knowledge")
    choices = row.get("choices")
    if (
        not isinstance(choices, Sequence)
        or isinstance(choices, str)
        or not 2 <= len(choices) <= len(ascii_uppercase)
        or not all(isinstance(choice, str) for choice in choices)
    ):
        raise RowFault("choices", "must be a list of 2 to 26 texts")
    answer = row.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        raise RowFault("answer", f"must be an index from 0 to {len(choices) - 1}, not {answer!r}")
    return choice_task(f"mmlu/{number}", text(row, "question"), list(choices), answer, family=subject)


def choice_task(task_id: str, question: str, choices: list[str], right: int, *, family: str) -> Task:
    """Makes a task of a question with its lettered choices below it."""
    lettered = "\n".join(f"({letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return Task(
        task_id=task_id,
        question=f"{question.rstrip()}\n\n{lettered}\n\nAnswer with the letter of the right choice.",
        family=family,
        difficulty="",
        reference=ascii_uppercase[right],
        grader="choice",
        extra={"choices": choices},
    )


def function_completion(row: Row, number: int) -> Task:
    """HumanEval: a signature with its docstring, to be completed; ``test`` defines ``check(candidate)``."""
    prompt = text(row, "prompt")
    solution = row.get("canonical_solution")
    return Task(
        task_id=str(row.get("task_id", f"humaneval/{number}")),
        question="Complete this Python function. Give the whole function in one code block.\n\n"
        f"```python\n{prompt.rstrip()}\n```",
        family="code",
        difficulty="",
        reference=prompt + solution if isinstance(solution, str) else "",
        grader="code",
        extra={"kind": "check", "prompt": prompt, "test": text(row, "test"), "entry_point": text(row, "entry_point")},
    )


def own_task(row: Row, number: int) -> Task:
    """Our own format: the fields of ``Task``, of which ``question``, ``reference`` and ``grader`` are needed."""
    grader = row.get("grader")
    if grader not in GRADERS or grader == "rehearsal":
        raise RowFault("grader", f"must be one of {', '.join(name for name in GRADERS if name != 'rehearsal')}")
    extra = row.get("extra", {})
    if not isinstance(extra, Mapping):
        raise RowFault("extra", f"must be an object, not {_kind(extra)}")
    reference = row.get("reference")
    if not isinstance(reference, str):
        raise RowFault("reference", f"must be a text, not {_kind(reference)}")
    return Task(
        task_id=str(row.get("task_id", number)),
        question=text(row, "question"),
        family=str(row.get("family", "tasks")),
        difficulty=str(row.get("difficulty", "")),
        reference=reference,
        grader=grader,
        extra=dict(extra),
    )


def _is_aime(row: Row) -> bool:
    return "subject" not in row and "level" not in row and str(row.get("answer", "")).strip().isdecimal()


def recognise(row: Row) -> Format | None:
    """Returns the format of a row by its keys, None if it is unknown."""
    keys = set(row)
    for known in FORMATS:
        if known.keys <= keys and (known.name != "aime" or _is_aime(row)):
            return known
    return None


FORMATS = (
    Format("own", frozenset({"question", "reference", "grader"}), own_task),
    Format("humaneval", frozenset({"prompt", "test", "entry_point"}), function_completion),
    Format("mmlu", frozenset({"question", "choices", "answer"}), multiple_choice),
    Format("aime", frozenset({"problem", "answer"}), aime),
    Format("math", frozenset({"problem", "solution"}), competition_math),
    Format("gsm8k", frozenset({"question", "answer"}), grade_school),
)
"""The formats in the order in which they are tried, the more specific ones first."""


def _kind(value: object) -> str:
    return "missing" if value is None else f"{type(value).__name__} {json.dumps(value, default=str)[:40]}"

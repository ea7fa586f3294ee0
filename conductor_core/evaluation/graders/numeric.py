"""Grades answers that are one number."""

import re
from fractions import Fraction

from conductor_core.answers.final_answer import bold, last_paragraph, stated, tail
from conductor_core.errors import BadInput
from conductor_core.evaluation.graders.quantity import Quantity, parse_quantity, quantities, same_quantity
from conductor_core.evaluation.tasks import Graded, Task

RELATIVE_TOLERANCE = Fraction(1, 10**6)
"""Default tolerance for a reference that is no whole number. A whole number must be met exactly."""

_HEDGE = re.compile(r"\s*(?:or|oder|/or)\s+(?:(?:maybe|perhaps|possibly|about)\s+)?", re.IGNORECASE)


def grade_numeric(task: Task, text: str) -> Graded:
    """Grades an answer as right if it is the reference's number.

    ``tolerance`` (absolute) and ``relative_tolerance`` in ``extra`` allow a difference.
    Raises: BadInput if the reference or a tolerance is no number.
    """
    right, absolute, relative = sought_number(task)
    given = find_number(text)
    if given is None:
        return Graded(0.0, "There is no number in the answer.")
    if isinstance(given, str):
        return Graded(0.0, given)
    if same_quantity(given, right, absolute=absolute, relative=relative):
        return Graded(1.0, f"The number given is {given}.")
    return Graded(0.0, f"The number given is {given}, not {right}.")


def find_number(text: str) -> Quantity | str | None:
    """Returns the number in ``text``: the last one called the answer, else a bold one at the end, else the last one.

    Returns None if there is no number, and a sentence if the answer names two ("18 or 20").
    """
    text = tail(text)
    for _, mark in reversed(stated(text)):
        found = _of_mark(mark)
        if found is not None:
            return found
    for _, mark in reversed(bold(last_paragraph(text))):
        found = _of_mark(mark)
        if found is not None:
            return found
    everything = quantities(text)
    return everything[-1] if everything else None


def _of_mark(mark: str) -> Quantity | str | None:
    # In "3 × 6 = 18" the answer stands behind the last equals sign.
    mark = re.split(r"(?<![<>!=])=|≈|\\approx", mark)[-1]
    found = quantities(mark)
    if not found:
        return None
    if len(found) > 1 and found[0].value != found[1].value:
        between = mark[found[0].end : found[1].start]
        if _HEDGE.fullmatch(between):
            return f"The answer names two numbers, {found[0]} and {found[1]}."
    return found[0]


def sought_number(task: Task) -> tuple[Quantity, Fraction, Fraction]:
    """Returns the reference with its absolute and relative tolerance. Raises: BadInput if one is no number."""
    right = parse_quantity(task.reference)
    if right is None:
        raise BadInput(f"task {task.task_id}: the reference {task.reference!r} is not one number")
    absolute = _non_negative(task, "tolerance")
    relative = _non_negative(task, "relative_tolerance")
    if absolute is None and relative is None and right.value.denominator != 1:
        relative = RELATIVE_TOLERANCE
    return right, absolute or Fraction(0), relative or Fraction(0)


def _non_negative(task: Task, name: str) -> Fraction | None:
    value = task.extra.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise BadInput(f"task {task.task_id}: {name} must be a number of at least 0, not {value!r}")
    return Fraction(str(value))

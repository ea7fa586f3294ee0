"""Decides when two answers count as one: by a grader where the right answer is known, else by what they conclude."""

from functools import cached_property

from conductor_core.answers.conclusion import Conclusion, conclude
from conductor_core.errors import BadInput
from conductor_core.evaluation.graders.grade import grade
from conductor_core.evaluation.graders.quantity import parse_quantity
from conductor_core.evaluation.tasks import Task
from conductor_core.rehearsal import grade as rehearsal_grade
from conductor_core.rehearsal import recognise
from conductor_core.trace import RunTrace

_LONGEST_TRUTH = 2000


class Verdicts:
    """Tells whether a replay's answer flips that of a run.

    Attributes:
        known_by: who knows the right answer: ``you``, the ``rehearsal world``, or ``nobody``: then answers are
            compared with the run's own.
        truth: the right answer; "" if nobody knows it.
    """

    def __init__(self, trace: RunTrace, truth: str | None = None) -> None:
        """Args:
        truth: the right answer; None: that of the rehearsal world, if it knows the task.

        Raises: BadInput if the run has no answer, or ``truth`` is empty or too long.
        """
        if trace.answer is None:
            raise BadInput(f"run {trace.run_id} has no answer")
        self._answer, self._task = trace.answer, trace.task
        known = recognise(trace.task) if truth is None else None
        if truth is not None and (not truth.strip() or len(truth) > _LONGEST_TRUTH):
            raise BadInput(f"the truth is the right answer to the task, in 1 to {_LONGEST_TRUTH} characters")
        self.known_by = (
            "nobody" if truth is None and known is None else "you" if truth is not None else "rehearsal world"
        )
        self.truth = truth.strip() if truth is not None else known.answer if known is not None else ""
        self._grader = _graded_by(self.truth) if truth is not None else None
        self._said = conclude(self._answer, self._task)

    @cached_property
    def recorded_right(self) -> bool | None:
        """Whether the run's own answer is right; None if nobody knows."""
        return self.right(self._answer)

    def right(self, answer: str) -> bool | None:
        """Whether ``answer`` is right; None if nobody knows."""
        if self._grader is not None:
            return grade(self._grader, answer).right
        return rehearsal_grade(self._task, answer) if self.truth else None

    def flips(self, answer: str) -> bool:
        """Whether ``answer`` is right where the run's own is wrong, or wrong where that is right.

        Where nobody knows what is right: whether it concludes something else.
        """
        if self.truth:
            return self.right(answer) != self.recorded_right
        return not same_conclusion(self._said, conclude(answer, self._task))

    @property
    def in_words(self) -> str:
        """Says in a sentence what a flip is."""
        if not self.truth:
            doubt = "" if self._said.kind == "value" else " Two wordings of one answer count as two: give the truth."
            return f"The right answer is not known: an answer flips if it concludes something else.{doubt}"
        was, becomes = ("right", "wrong") if self.recorded_right else ("wrong", "right")
        by = "" if self.known_by == "you" else f", as the {self.known_by} knows"
        return f"The answer is {was}{by}: it flips if it becomes {becomes}."


def same_conclusion(one: Conclusion, other: Conclusion) -> bool:
    """Tells whether two answers come to the same: the same number in any form, else the same words."""
    if {"declined", "empty"} & {one.kind, other.kind}:
        return one.kind == other.kind
    if _is_number(one.text) != _is_number(other.text):
        return False
    return grade(_graded_by(one.text), other.text).right


def _graded_by(truth: str) -> Task:
    return Task("truth", "", "", "", reference=truth, grader="numeric" if _is_number(truth) else "exact")


def _is_number(text: str) -> bool:
    """Whether ``text`` is one number, perhaps with a unit, and no words that could say something else: ``May 5``."""
    found = parse_quantity(text)
    return found is not None and (bool(found.unit) or not any(map(str.isalpha, text)))

"""Tasks with their reference answers, the suites that hold them, and the grade of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

GraderName = Literal["rehearsal", "exact", "numeric", "math", "choice", "code"]
GRADERS: tuple[GraderName, ...] = get_args(GraderName)


@dataclass(frozen=True)
class Task:
    """A question with its right answer and its grader.

    Attributes:
        task_id: unique in its suite, and the same in every sample of the suite.
        question: the whole prompt, as a user would give it.
        family, difficulty: groups for the results; ``difficulty`` is "" if the source has none.
        reference: the right answer as the grader reads it: a number, a LaTeX expression, a letter. For code it is a
            solution in Python, or "" if the source has none.
        extra: what else the grader needs (choices, tests, a tolerance), as JSON values.
    """

    task_id: str
    question: str
    family: str
    difficulty: str
    reference: str
    grader: GraderName
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Tasks in the order in which they are asked.

    Attributes:
        name: short, for tables: ``rehearsal``, ``gsm8k``, ``math500``.
        simulated: the tasks belong to the rehearsal world.
    """

    name: str
    split: str
    tasks: tuple[Task, ...]
    simulated: bool


@dataclass(frozen=True)
class Graded:
    """The grade of one answer.

    Attributes:
        score: 0 for wrong, 1 for right.
        reason: why, in one sentence.
    """

    score: float
    reason: str

    @property
    def right(self) -> bool:
        return self.score == 1.0

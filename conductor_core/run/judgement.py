"""What somebody holds of a run, or of one of its steps: a mark, a score, a note; or that it is better than another."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from conductor_core.run.actor import Caused
from conductor_core.run.values import Path

Mark = Literal["right", "wrong", "better", "same", "worse"]
"""``better``, ``same`` and ``worse`` compare the run with ``Judgement.compared_with``."""


class Judgement(Caused):
    """A judgement never changes. A later one of the same judge on the same thing counts in its place.

    Attributes:
        id: counts the judgements of a database, from 1.
        path: of the step; None: the run's answer.
        mark, score, note: at least one is given; ``score`` is 0 (bad) to 1 (good).
        by: ``person``; ``grader``: a program that knows the right answer; ``judge``: a worker that was asked.
        source_run_id: the run in which a judge wrote it. compared_with: the other run, for a mark that compares.
    """

    id: int
    run_id: str
    path: Path | None = None
    mark: Mark | None = None
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    note: Annotated[str, Field(max_length=4000)] = ""
    by: Literal["person", "grader", "judge"] = "person"
    source_run_id: str | None = None
    compared_with: str | None = None
    at_utc: AwareDatetime

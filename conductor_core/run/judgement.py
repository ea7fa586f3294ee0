"""What somebody holds of a run, or of one of its steps: a mark, a score, a note; or that it is better than another."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator

from conductor_core.run.actor import Caller, Caused
from conductor_core.run.values import Path
from conductor_core.text import whole_characters
from conductor_core.workflow.model import Frozen

Mark = Literal["right", "wrong", "better", "same", "worse"]
"""``better``, ``same`` and ``worse`` compare the run with ``Verdict.compared_with``."""
By = Literal["person", "grader", "judge"]
Judged = Literal["right", "wrong", "unjudged", "noted"]
"""What can be asked of a run: what counts of its answer, or that it has a note, also on a step."""
MARKS: tuple[Mark, ...] = get_args(Mark)
JUDGES: tuple[By, ...] = get_args(By)
MOST_NOTE = 4000
"""Characters of a note."""
TAKEN_BACK = "taken back"
"""The note of a judgement without mark and score that takes back what its judge held before."""


def _whole(value: object) -> object:
    return whole_characters(value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_whole)]


class Verdict(Frozen):
    """A judgement before it is kept.

    Attributes:
        path: of the step; None: the run's answer.
        mark, score, note: at least one is given; ``score`` is 0 (bad) to 1 (good).
        by: ``person``; ``grader``: a program that knows the right answer; ``judge``: a worker that was asked.
        source_run_id: the run in which a judge wrote it. compared_with: the other run, for a mark that compares.
    """

    run_id: _Text
    path: Path | None = None
    mark: Mark | None = None
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    note: Annotated[_Text, Field(max_length=MOST_NOTE)] = ""
    by: By = "person"
    source_run_id: _Text | None = None
    compared_with: _Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.mark is None and self.score is None and not self.note.strip():
            raise ValueError("a mark, a score or a note is needed")
        if self.mark in ("better", "same", "worse") and self.compared_with is None:
            raise ValueError(f"the mark {self.mark} needs the run that it compares with")
        if self.mark in ("right", "wrong") and self.compared_with is not None:
            raise ValueError(f"the mark {self.mark} compares with no run")
        return self

    @property
    def in_words(self) -> str:
        """Mark and score, such as ``right, 0.75``; ``taken back``; ``note`` if it has nothing else."""
        score = "" if self.score is None else f"{self.score:.3g}"
        said = ", ".join(part for part in (self.mark or "", score) if part)
        return said or (TAKEN_BACK if self.taken_back else "note")

    @property
    def taken_back(self) -> bool:
        return self.mark is None and self.score is None and self.note == TAKEN_BACK


def judge_of(by: By, caller: Caller) -> str:
    """Tells judges apart: a person is the same one on the page and at the command line, and in any process."""
    return by if caller.actor is None else f"{by} {caller.actor.kind} {caller.actor.id}"


class Judgement(Verdict, Caused):
    """A judgement never changes. A later one of the same judge on the same thing counts in its place.

    Attributes:
        id: counts the judgements of a database, from 1.
    """

    id: int
    at_utc: AwareDatetime

    @property
    def judge_in_words(self) -> str:
        """Who it was: a person's name; of others what they are, too."""
        name = "somebody" if self.actor is None else self.actor.short
        return name if self.by == "person" else f"{self.by} {name}"

    @property
    def judge(self) -> str:
        """See ``judge_of``."""
        return judge_of(self.by, self.caller)

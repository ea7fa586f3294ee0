"""What a person changes of a plan: in its fields, in the graph, or by keys. Pure.

The browser sends all changes that the page has not taken yet, each with its number, as one value: of two values that
wait for a busy server only the later one arrives. Steps are named by the editor's ids. Running the plan and leaving the
editor are sent so, too: they come after what was typed before them, and happen once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conductor_core.engine.request import pinned_output
from conductor_core.errors import InspectorError
from conductor_core.run.actor import Caller
from conductor_core.run.request import MOST_CHARACTERS, written_by
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Step
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft

_MOST = 200
"""Changes in one value, and pages that are remembered: far more than a person makes while a server is busy."""
NEW_INSTRUCTION = "Answer this task, using what the earlier steps found: {question}"

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int


class _OfStep(_Change):
    step: int


class GiveAccess(_OfStep):
    kind: Literal["give"]
    read: int


class CutAccess(_OfStep):
    kind: Literal["cut"]
    read: int


class ReadAll(_OfStep):
    """The step reads all earlier ones; ``only``: those that it reads now, each by itself, and nothing else."""

    kind: Literal["all", "only"]


class Instruct(_OfStep):
    kind: Literal["instruct"]
    text: Text


class Assign(_OfStep):
    kind: Literal["assign"]
    agent: str = Field(max_length=200)


class MoveStep(_OfStep):
    """``to`` is the step's new index."""

    kind: Literal["move"]
    to: int


class ShiftStep(_OfStep):
    """``by``: how many places, up where it is negative. From keys, which may be pressed before the page is drawn."""

    kind: Literal["shift"]
    by: int


class WriteOutput(_OfStep):
    kind: Literal["write"]
    text: Text


class OfStep(_OfStep):
    """``pin`` keeps the recorded output, ``release`` lets the worker answer, ``tell`` adds the task to what it is told.

    ``add`` adds a new step after it, ``copy`` another one like it.
    """

    kind: Literal["remove", "copy", "add", "pin", "release", "tell"]


class AddFirst(_Change):
    """Adds the first step to a plan that has none, or one in front of all."""

    kind: Literal["first"]


class GoBack(_Change):
    kind: Literal["undo", "redo", "reset"]


class Leave(_Change):
    """Runs the plan as it is by then, or leaves the editor."""

    kind: Literal["start", "close"]


AnyChange = (
    GiveAccess
    | CutAccess
    | ReadAll
    | Instruct
    | Assign
    | MoveStep
    | ShiftStep
    | WriteOutput
    | OfStep
    | AddFirst
    | GoBack
    | Leave
)
Change = Annotated[AnyChange, Field(discriminator="kind")]


class Sent(BaseModel):
    """The browser's value.

    ``page``: a random name of the component that sends it; its numbers count from 1. ``times``: of how many values of
    the page this is the last.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    page: str = Field(max_length=64)
    run_id: str | None
    changes: list[Change] = Field(max_length=_MOST)
    times: int = 1


@dataclass(frozen=True)
class AppliedChanges:
    """The last change that was taken of each page."""

    numbers: Mapping[str, int]
    page: str = ""

    def as_data(self) -> dict[str, Any]:
        """Returns what the component needs in order to forget what was taken."""
        return {"page": self.page, "number": self.numbers.get(self.page, 0)}

    def brings_more(self, sent: Sent) -> bool:
        """Tells whether ``sent`` has a change of the plan that was not taken yet."""
        last = self.numbers.get(sent.page, 0)
        return any(change.number > last and not isinstance(change, Leave) for change in sent.changes)


NOTHING_APPLIED = AppliedChanges({})


@dataclass(frozen=True)
class Author:
    """Who changes a plan: ``run`` is what its recorded outputs are of, ``agent`` does a first step."""

    caller: Caller
    run: RunTrace | None = None
    agent: str = ""


def read(value: object) -> Sent | None:
    """Reads the browser's value; None for any other shape, which a browser might send."""
    try:
        return Sent.model_validate(value)
    except ValidationError:
        return None


def apply_changes(
    draft: Draft, sent: Sent, applied: AppliedChanges, author: Author
) -> tuple[Draft, AppliedChanges, Literal["start", "close"] | None]:
    """Makes the changes that were not made yet. One that the plan does not allow any more is left out.

    Returns also how the person left the editor, if they did; what they sent after that counts no more.
    """
    last, left = applied.numbers.get(sent.page, 0), None
    for change in sent.changes:
        if change.number <= last:
            continue
        last = change.number
        if isinstance(change, Leave):
            left = change.kind
        elif left is None:
            draft = _made(draft, change, author)
    others = [(page, number) for page, number in applied.numbers.items() if page != sent.page]
    return draft, AppliedChanges(dict([*others[-_MOST:], (sent.page, last)]), sent.page), left


def _made(draft: Draft, change: AnyChange, author: Author) -> Draft:
    if isinstance(change, GoBack):
        return {"undo": drafts.undo, "redo": drafts.redo, "reset": drafts.reset}[change.kind](draft)
    if isinstance(change, AddFirst):
        return drafts.insert(draft, 0, Step(instruction=NEW_INSTRUCTION, agent=author.agent))
    ids = draft.now.ids
    if not isinstance(change, _OfStep) or change.step not in ids:
        return draft
    index = ids.index(change.step)
    if isinstance(change, GiveAccess | CutAccess):
        act = drafts.give_access if isinstance(change, GiveAccess) else drafts.cut_access
        return act(draft, index, ids.index(change.read)) if change.read in ids else draft
    if isinstance(change, MoveStep | ShiftStep):
        to = change.to if isinstance(change, MoveStep) else index + change.by
        return drafts.move(draft, index, to) if 0 <= to < len(ids) else draft
    if isinstance(change, WriteOutput | OfStep):
        return _given(draft, index, change, author)
    return drafts.change(draft, index, _otherwise(draft, index, change))


def _otherwise(draft: Draft, index: int, change: AnyChange) -> Step:
    """Returns the step with one of its fields changed."""
    step = draft.workflow.steps[index]
    if isinstance(change, Instruct):
        return step.model_copy(update={"instruction": change.text})
    if isinstance(change, Assign):
        return step.model_copy(update={"agent": change.agent})
    access = "all" if change.kind == "all" else tuple(draft.workflow.reads(index))
    return step.model_copy(update={"access_list": access})


def _given(draft: Draft, index: int, change: WriteOutput | OfStep, author: Author) -> Draft:
    step, step_id = draft.workflow.steps[index], change.step
    if isinstance(change, WriteOutput):
        return draft if author.run is None else drafts.give(draft, step_id, change.text, written_by(author.caller))
    if change.kind == "remove":
        return drafts.remove(draft, index)
    if change.kind == "add":
        return drafts.insert(
            draft, index + 1, Step(instruction=NEW_INSTRUCTION, agent=step.agent, access_list=(index,))
        )
    if change.kind == "copy":
        return drafts.insert(draft, index + 1, step)
    if change.kind == "release":
        return drafts.release(draft, step_id)
    if change.kind == "tell":
        return drafts.add_task(draft, index)
    return _pinned(draft, step_id, author)


def _pinned(draft: Draft, step_id: int, author: Author) -> Draft:
    """Pins the recorded output; the note says why, where that is not possible."""
    if author.run is None or not 0 <= step_id < len(author.run.steps):
        return draft
    try:
        text, by = pinned_output(author.run, step_id, author.caller)
    except InspectorError as error:
        return replace(draft, note=str(error))
    return drafts.give(draft, step_id, text, by)

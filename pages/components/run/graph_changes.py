"""What a person changes of a plan in the graph or by its keys: an access, a step's place, undo and redo. Pure.

The browser sends all changes that the page has not taken yet, each with its number, as one value: of two values that
wait for a busy server only the later one arrives. Steps are named by the editor's ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pages.components.run import draft as drafts
from pages.components.run.draft import Draft

_MOST = 200
"""Changes in one value, and pages that are remembered: far more than a person makes while a server is busy."""


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int


class GiveAccess(_Change):
    kind: Literal["give"]
    step: int
    read: int


class CutAccess(_Change):
    kind: Literal["cut"]
    step: int
    read: int


class MoveStep(_Change):
    """``to`` is the step's new index."""

    kind: Literal["move"]
    step: int
    to: int


class ShiftStep(_Change):
    """``by``: how many places, up where it is negative. From keys, which may be pressed before the page is drawn."""

    kind: Literal["shift"]
    step: int
    by: int


class GoBack(_Change):
    kind: Literal["undo", "redo"]


AnyChange = GiveAccess | CutAccess | MoveStep | ShiftStep | GoBack
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


NOTHING_APPLIED = AppliedChanges({})


def read(value: object) -> Sent | None:
    """Reads the browser's value; None for any other shape, which a browser might send."""
    try:
        return Sent.model_validate(value)
    except ValidationError:
        return None


def apply_changes(draft: Draft, sent: Sent, applied: AppliedChanges) -> tuple[Draft, AppliedChanges]:
    """Makes the changes that were not made yet. One that the plan does not allow any more is left out."""
    last = applied.numbers.get(sent.page, 0)
    for change in sent.changes:
        if change.number > last:
            draft, last = _made(draft, change), change.number
    others = [(page, number) for page, number in applied.numbers.items() if page != sent.page]
    return draft, AppliedChanges(dict([*others[-_MOST:], (sent.page, last)]), sent.page)


def _made(draft: Draft, change: AnyChange) -> Draft:
    if isinstance(change, GoBack):
        return drafts.undo(draft) if change.kind == "undo" else drafts.redo(draft)
    ids = draft.now.ids
    if change.step not in ids:
        return draft
    index = ids.index(change.step)
    if isinstance(change, MoveStep | ShiftStep):
        to = change.to if isinstance(change, MoveStep) else index + change.by
        return drafts.move(draft, index, to) if 0 <= to < len(ids) else draft
    if change.read not in ids:
        return draft
    act = drafts.give_access if isinstance(change, GiveAccess) else drafts.cut_access
    return act(draft, index, ids.index(change.read))

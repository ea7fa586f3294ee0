"""A plan that a person edits: the workflow as edited, with undo and redo. Pure; the editor draws it.

Each step keeps an *id* through every change of structure. A field on the page thus stays with its step when the step's
number changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from conductor_core.engine.request import pinned_output
from conductor_core.errors import InspectorError
from conductor_core.run.actor import Caller
from conductor_core.run.request import MOST_CHARACTERS, Given, GivenOutput, written_by
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.edits import Origins, Reference, add_step, match, move_step, remove_step, replace_step
from conductor_core.workflow.model import QUESTION, Fault, Step, Workflow


@dataclass(frozen=True)
class Version:
    """The workflow at one moment, the ids of its steps, and the outputs that a person gave, by the steps' ids."""

    workflow: Workflow
    ids: tuple[int, ...]
    given: tuple[tuple[int, str, Given], ...] = ()


@dataclass(frozen=True)
class Draft:
    """The edited plan, its original, and the versions before and after.

    Attributes:
        now: the steps of ``original`` have their indices there as ids; new steps have higher ids.
        note: what else the last change removed, in one sentence; empty: nothing.
        original_given: what a person gave before, as in ``Version``.
    """

    original: Workflow
    now: Version
    past: tuple[Version, ...] = ()
    future: tuple[Version, ...] = ()
    next_id: int = 0
    note: str = ""
    original_given: tuple[tuple[int, str, Given], ...] = ()

    @property
    def workflow(self) -> Workflow:
        return self.now.workflow

    @property
    def changed(self) -> bool:
        return self.workflow != self.original or self.now.given != self.original_given

    @property
    def outputs(self) -> tuple[GivenOutput, ...]:
        numbers = {step_id: number for number, step_id in enumerate(self.now.ids)}
        placed = [(numbers[step_id], text, given) for step_id, text, given in self.now.given if step_id in numbers]
        return tuple(
            GivenOutput(step=number, text=text, given=given)
            for number, text, given in sorted(placed, key=lambda each: each[0])
            if text
        )

    @property
    def origins(self) -> Origins:
        count = len(self.original.steps)
        return tuple(each if each < count else None for each in self.now.ids)


def begin(workflow: Workflow, outputs: Sequence[GivenOutput] = ()) -> Draft:
    count, given = len(workflow.steps), tuple((each.step, each.text, each.given) for each in outputs)
    return Draft(workflow, Version(workflow, tuple(range(count)), given), next_id=count, original_given=given)


def _step_on(draft: Draft, now: Version, note: str = "") -> Draft:
    if now == draft.now:
        return draft
    return replace(draft, now=now, past=(*draft.past, draft.now), future=(), note=note)


def change_step(draft: Draft, index: int, step: Step) -> Draft:
    return _step_on(draft, replace(draft.now, workflow=replace_step(draft.workflow, index, step)))


def give(draft: Draft, step_id: int, text: str, given: Given) -> Draft:
    """Gives a step its output, in the place of its worker's. An empty text counts as nothing yet."""
    others = tuple(each for each in draft.now.given if each[0] != step_id)
    return _step_on(draft, replace(draft.now, given=(*others, (step_id, text, given))))


def insert(draft: Draft, index: int, step: Step) -> Draft:
    ids = (*draft.now.ids[:index], draft.next_id, *draft.now.ids[index:])
    now = replace(draft.now, workflow=add_step(draft.workflow, index, step), ids=ids)
    return replace(_step_on(draft, now), next_id=draft.next_id + 1)


def remove(draft: Draft, index: int) -> Draft:
    """Removes step ``index``. The note says which references went with it."""
    workflow, lost = remove_step(draft.workflow, index)
    ids = (*draft.now.ids[:index], *draft.now.ids[index + 1 :])
    given = tuple(each for each in draft.now.given if each[0] in ids)
    return _step_on(draft, Version(workflow, ids, given), f"Step {index} is removed{_in_words(lost)}.")


def move(draft: Draft, index: int, to_index: int) -> Draft:
    """Moves step ``index``. The note says which references no longer point back and were dropped."""
    workflow, lost = move_step(draft.workflow, index, to_index)
    ids = list(draft.now.ids)
    ids.insert(to_index, ids.pop(index))
    now = replace(draft.now, workflow=workflow, ids=tuple(ids))
    return _step_on(draft, now, f"Step {index} is now step {to_index}{_in_words(lost)}.")


def undo(draft: Draft) -> Draft:
    if not draft.past:
        return draft
    return replace(draft, now=draft.past[-1], past=draft.past[:-1], future=(draft.now, *draft.future), note="")


def redo(draft: Draft) -> Draft:
    if not draft.future:
        return draft
    return replace(draft, now=draft.future[0], past=(*draft.past, draft.now), future=draft.future[1:], note="")


def reset(draft: Draft) -> Draft:
    """Returns to the original, as one more change that can be undone."""
    start = Version(draft.original, tuple(range(len(draft.original.steps))), draft.original_given)
    return _step_on(draft, start, "All changes are taken back.")


def restart(draft: Draft, workflow: Workflow) -> Draft:
    """Begins anew with ``workflow``, as one more change that can be undone. Its steps get ids that none had before."""
    count = len(workflow.steps)
    now = Version(workflow, tuple(range(draft.next_id, draft.next_id + count)))
    begun = _step_on(draft, now, "This plan takes the place of the earlier one.")
    return replace(begun, next_id=draft.next_id + count)


def rebase(draft: Draft, original: Workflow) -> Draft:
    """Returns the edit as one of ``original``, to which the plan was changed meanwhile. Undo shows that plan alone."""
    given, count = draft.original_given, len(original.steps)
    begun = Draft(original, Version(original, tuple(range(count)), given), next_id=count, original_given=given)
    if not draft.changed or (draft.workflow == original and draft.now.given == given):
        return begun
    next_id = max(draft.next_id, begun.next_id)
    ids: list[int] = []
    for origin in match(original, draft.workflow):
        ids.append(next_id if origin is None else origin)
        next_id += origin is None
    new_ids = dict(zip(draft.now.ids, ids, strict=True))
    outputs = tuple((new_ids[each], text, how) for each, text, how in draft.now.given if each in new_ids)
    note = "The plan of this run was changed meanwhile. Your edit stands beside that plan now, which Undo shows alone."
    now = Version(draft.workflow, tuple(ids), outputs)
    return replace(begun, now=now, past=(begun.now,), next_id=next_id, note=note)


def last_readable(draft: Draft, faults: Callable[[Workflow], Sequence[Fault]]) -> Draft:
    """Returns ``draft`` as it last was without a fault in a step; as it is if it always had one.

    Faults of the whole plan (no steps, too many steps) do not count: its steps can be read.
    """
    for version in (draft.now, *reversed(draft.past)):
        if all(fault.field == "workflow" for fault in faults(version.workflow)):
            return replace(draft, now=version)
    return draft


def _in_words(lost: tuple[Reference, ...]) -> str:
    if not lost:
        return ""
    named = ", ".join(f"step {reference.reader} reading step {reference.read}" for reference in lost)
    return f"; with it went: {named} (numbered as before)"


# What the browser sends of changes: in fields, in the graph, or by keys.

_MOST = 200
"""Changes in one value, and pages that are remembered: far more than a person makes while a server is busy."""
NEW_INSTRUCTION = "Answer this task, using what the earlier steps found: {question}"


class Change(BaseModel):
    """One change of the plan. Which of the other fields count, its ``kind`` says; ``step`` and ``read`` are ids.

    ``pin`` keeps the recorded output, ``write`` another one, ``release`` lets the worker answer, ``tell`` adds the task
    to what a step is told. ``add`` adds a new step after it, ``copy`` another one like it, ``first`` one in front of
    all. With ``all`` it reads all earlier ones, with ``only`` those that it reads now, each by itself, and nothing
    else. ``move`` brings it ``to`` a place, ``shift`` as many places down as ``by``: from keys, which may be pressed
    before the page is drawn. ``start`` and ``close`` leave the editor.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    number: int
    kind: Literal[
        "remove", "copy", "add", "pin", "release", "tell", "all", "only", "give", "cut", "instruct", "write", "assign",
        "move", "shift", "first", "undo", "redo", "reset", "start", "close",
    ]  # fmt: skip
    step: int = -1
    read: int = -1
    to: int = -1
    by: int = 0
    text: str = Field(default="", max_length=MOST_CHARACTERS)
    agent: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _says_all(self) -> Self:
        """Raises: ValueError for a change without what its kind is about: an output would else become empty."""
        if (needed := _NEEDED.get(self.kind)) and needed not in self.model_fields_set:
            raise ValueError(f"{self.kind} without {needed}")
        return self


_NEEDED = {
    "give": "read", "cut": "read", "instruct": "text", "write": "text", "assign": "agent", "move": "to", "shift": "by",
}  # fmt: skip


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
    numbers: Mapping[str, int]
    page: str = ""

    def as_data(self) -> dict[str, Any]:
        """Returns what the component needs in order to forget what was taken."""
        return {"page": self.page, "number": self.numbers.get(self.page, 0)}

    def brings_more(self, sent: Sent) -> bool:
        last = self.numbers.get(sent.page, 0)
        return any(change.number > last and change.kind not in ("start", "close") for change in sent.changes)


NOTHING_APPLIED = AppliedChanges({})


@dataclass(frozen=True)
class Author:
    """Who changes a plan: ``run`` is what its recorded outputs are of, ``agent`` does a first step."""

    caller: Caller
    run: RunTrace | None = None
    agent: str = ""


def read_sent(value: object) -> Sent | None:
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
    last = applied.numbers.get(sent.page, 0)
    left: Literal["start", "close"] | None = None
    for change in sent.changes:
        if change.number <= last:
            continue
        last = change.number
        if change.kind == "start" or change.kind == "close":
            left = change.kind
        elif left is None:
            draft = _made(draft, change, author)
    others = [(page, number) for page, number in applied.numbers.items() if page != sent.page]
    return draft, AppliedChanges(dict([*others[-_MOST:], (sent.page, last)]), sent.page), left


def _made(draft: Draft, change: Change, author: Author) -> Draft:
    ids = draft.now.ids
    if change.kind in _ON_PLAN:
        return _ON_PLAN[change.kind](draft)
    if change.kind == "first":
        return insert(draft, 0, Step(instruction=NEW_INSTRUCTION, agent=author.agent))
    if change.step not in ids:
        return draft
    index = ids.index(change.step)
    if change.kind in ("move", "shift"):
        to = change.to if change.kind == "move" else index + change.by
        return move(draft, index, to) if 0 <= to < len(ids) else draft
    if change.kind in ("write", "pin", "release"):
        return _given(draft, change, author)
    return _with_step(draft, index, change)


def _given(draft: Draft, change: Change, author: Author) -> Draft:
    step_id, run = change.step, author.run
    if change.kind == "release":
        given = tuple(each for each in draft.now.given if each[0] != step_id)
        return _step_on(draft, replace(draft.now, given=given))
    if run is not None and change.kind == "write":
        return give(draft, step_id, change.text, written_by(author.caller))
    if run is None or not 0 <= step_id < len(run.steps):
        return draft
    try:
        return give(draft, step_id, *pinned_output(run, step_id, author.caller))
    except InspectorError as error:
        return replace(draft, note=str(error))


def _with_step(draft: Draft, index: int, change: Change) -> Draft:
    step, reads, ids = draft.workflow.steps[index], draft.workflow.reads(index), draft.now.ids
    read = ids.index(change.read) if change.read in ids else -1

    def otherwise(**parts: Any) -> Draft:
        return change_step(draft, index, step.model_copy(update=parts))

    match change.kind:
        case "give" if step.access_list != "all" and 0 <= read < index and read not in reads:
            more = otherwise(access_list=tuple(sorted((*step.access_list, read))))
            return replace(more, note=f"Step {index} now sees step {read}.")
        case "cut" if read in reads:
            kept = reads if step.access_list == "all" else step.access_list
            less = otherwise(access_list=tuple(each for each in kept if each != read))
            return replace(less, note=f"Step {index} no longer sees step {read}.")
        case "instruct":
            return otherwise(instruction=change.text)
        case "assign":
            return otherwise(agent=change.agent)
        case "all":
            return otherwise(access_list="all")
        case "only":
            return otherwise(access_list=tuple(reads))
        case "tell":
            told = step.instruction.rstrip()
            return otherwise(instruction=f"{told}\n\n{QUESTION}" if told else QUESTION)
        case "remove":
            return remove(draft, index)
        case "add":
            return insert(draft, index + 1, Step(instruction=NEW_INSTRUCTION, agent=step.agent, access_list=(index,)))
        case "copy":
            return insert(draft, index + 1, step)
    return draft


_ON_PLAN: Mapping[str, Callable[[Draft], Draft]] = {"undo": undo, "redo": redo, "reset": reset}

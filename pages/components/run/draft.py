"""A plan that a person edits: the workflow as edited, with undo and redo. Pure; the editor draws it.

Each step keeps an *id* through every change of structure. A field on the page thus stays with its step when the step's
number changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from conductor_core.workflow.changes import Origins
from conductor_core.workflow.edit import Reference, add_step, move_step, remove_step, replace_step
from conductor_core.workflow.model import QUESTION, Fault, Step, Workflow


@dataclass(frozen=True)
class Version:
    """The workflow at one moment, and the ids of its steps."""

    workflow: Workflow
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Draft:
    """The edited plan, its original, and the versions before and after.

    Attributes:
        now: the steps of ``original`` have their indices there as ids; new steps have higher ids.
        note: what else the last change removed, in one sentence; empty: nothing.
        generation: grows whenever fields must show text that the person did not type (undo, redo, reset).
    """

    original: Workflow
    now: Version
    past: tuple[Version, ...] = ()
    future: tuple[Version, ...] = ()
    next_id: int = 0
    note: str = ""
    generation: int = 0

    @property
    def workflow(self) -> Workflow:
        return self.now.workflow

    @property
    def changed(self) -> bool:
        return self.workflow != self.original

    @property
    def origins(self) -> Origins:
        """Returns each step's index in the original; None: it is new."""
        count = len(self.original.steps)
        return tuple(each if each < count else None for each in self.now.ids)


def begin(workflow: Workflow) -> Draft:
    count = len(workflow.steps)
    return Draft(workflow, Version(workflow, tuple(range(count))), next_id=count)


def _step_on(draft: Draft, now: Version, note: str = "") -> Draft:
    if now == draft.now:
        return draft
    return replace(draft, now=now, past=(*draft.past, draft.now), future=(), note=note)


def change(draft: Draft, index: int, step: Step) -> Draft:
    """Puts ``step`` in the place of step ``index``."""
    return _step_on(draft, Version(replace_step(draft.workflow, index, step), draft.now.ids))


def tell_task(draft: Draft, index: int) -> Draft:
    """Adds the task to what step ``index`` is told. Its field then shows more than the person typed."""
    step = draft.workflow.steps[index]
    instruction = step.instruction.rstrip()
    told = step.model_copy(update={"instruction": f"{instruction}\n\n{QUESTION}" if instruction else QUESTION})
    return replace(change(draft, index, told), generation=draft.generation + 1)


def insert(draft: Draft, index: int, step: Step) -> Draft:
    """Inserts a new step ``index``."""
    ids = (*draft.now.ids[:index], draft.next_id, *draft.now.ids[index:])
    return replace(_step_on(draft, Version(add_step(draft.workflow, index, step), ids)), next_id=draft.next_id + 1)


def remove(draft: Draft, index: int) -> Draft:
    """Removes step ``index``. The note says which references went with it."""
    workflow, lost = remove_step(draft.workflow, index)
    ids = (*draft.now.ids[:index], *draft.now.ids[index + 1 :])
    return _step_on(draft, Version(workflow, ids), f"Step {index} is removed{_in_words(lost)}.")


def move(draft: Draft, index: int, to_index: int) -> Draft:
    """Moves step ``index``. The note says which references no longer point back and were dropped."""
    workflow, lost = move_step(draft.workflow, index, to_index)
    ids = list(draft.now.ids)
    ids.insert(to_index, ids.pop(index))
    return _step_on(draft, Version(workflow, tuple(ids)), f"Step {index} is now step {to_index}{_in_words(lost)}.")


def undo(draft: Draft) -> Draft:
    if not draft.past:
        return draft
    return _shown(draft, draft.past[-1], draft.past[:-1], (draft.now, *draft.future))


def redo(draft: Draft) -> Draft:
    if not draft.future:
        return draft
    return _shown(draft, draft.future[0], (*draft.past, draft.now), draft.future[1:])


def _shown(draft: Draft, now: Version, past: tuple[Version, ...], future: tuple[Version, ...]) -> Draft:
    return replace(draft, now=now, past=past, future=future, note="", generation=draft.generation + 1)


def reset(draft: Draft) -> Draft:
    """Returns to the original, as one more change that can be undone."""
    start = begin(draft.original)
    return replace(_step_on(draft, start.now, "All changes are taken back."), generation=draft.generation + 1)


def restart(draft: Draft, workflow: Workflow) -> Draft:
    """Begins anew with ``workflow``, as one more change that can be undone. Its steps get ids that none had before."""
    count = len(workflow.steps)
    now = Version(workflow, tuple(range(draft.next_id, draft.next_id + count)))
    begun = _step_on(draft, now, "This plan takes the place of the earlier one.")
    return replace(begun, next_id=draft.next_id + count, generation=draft.generation + 1)


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

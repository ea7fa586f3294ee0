"""Changes a workflow's structure. Each function returns a new workflow with renumbered access lists.

``"all"`` stays ``"all"``: it then means whatever is earlier. References that were not valid before (to the step
itself, a later or a missing step) are renumbered but never removed, so that validation goes on reporting them.
"""

from collections.abc import Callable
from typing import NamedTuple

from conductor_core.workflow.model import AccessList, Step, Workflow


class Reference(NamedTuple):
    """Says that step ``reader`` lists step ``read`` in its access list, both numbered as before the change."""

    reader: int
    read: int


def add_step(workflow: Workflow, index: int, step: Step) -> Workflow:
    """Inserts ``step`` so that it becomes step ``index``; ``index`` may be one past the end.

    The access list of ``step`` itself is taken as it is, in the new numbering. Raises: IndexError.
    """
    if not 0 <= index <= len(workflow.steps):
        raise IndexError(f"a step can be added at 0 to {len(workflow.steps)}, not at {index}")
    steps = [_renumbered(old, lambda read: read + (read >= index)) for old in workflow.steps]
    return Workflow(steps=(*steps[:index], step, *steps[index:]))


def remove_step(workflow: Workflow, index: int) -> tuple[Workflow, tuple[Reference, ...]]:
    """Removes step ``index``. Also returns the references to it, which go with it. Raises: IndexError."""
    workflow.require(index)
    kept: list[Step] = []
    removed: list[Reference] = []
    for reader, step in enumerate(workflow.steps):
        if reader == index:
            continue
        if step.access_list != "all" and index in step.access_list:
            removed.append(Reference(reader, index))
        kept.append(_renumbered(step, lambda read: None if read == index else read - (read > index)))
    return Workflow(steps=tuple(kept)), tuple(removed)


def move_step(workflow: Workflow, from_index: int, to_index: int) -> tuple[Workflow, tuple[Reference, ...]]:
    """Moves step ``from_index`` so that it becomes step ``to_index``.

    Also returns the references that were dropped because the step they name is no longer an earlier one.
    Raises: IndexError.
    """
    workflow.require(from_index)
    workflow.require(to_index)
    order = list(range(len(workflow.steps)))
    order.insert(to_index, order.pop(from_index))
    new_index = {old: new for new, old in enumerate(order)}
    dropped: list[Reference] = []
    moved: list[Step] = []
    for old_reader in order:

        def renumber(read: int, reader: int = old_reader) -> int | None:
            new = new_index.get(read, read)
            lost = read in new_index and read < reader and new > new_index[reader]
            if lost and Reference(reader, read) not in dropped:
                dropped.append(Reference(reader, read))
            return None if lost else new

        moved.append(_renumbered(workflow.steps[old_reader], renumber))
    return Workflow(steps=tuple(moved)), tuple(sorted(dropped))


def replace_step(workflow: Workflow, index: int, step: Step) -> Workflow:
    """Replaces step ``index`` by ``step``. No number changes. Raises: IndexError."""
    workflow.require(index)
    return Workflow(steps=(*workflow.steps[:index], step, *workflow.steps[index + 1 :]))


def _renumbered(step: Step, renumber: Callable[[int], int | None]) -> Step:
    access_list: AccessList = step.access_list
    if access_list != "all":
        access_list = tuple(new for new in map(renumber, access_list) if new is not None)
    return Step(instruction=step.instruction, agent=step.agent, access_list=access_list)

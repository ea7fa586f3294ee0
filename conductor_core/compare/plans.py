"""The differences of two plans as a list that leads from one to the other.

``workflow.changes`` says which step is which and what each may see now; this lists it so that a script can read it, and
so that the list, applied to the first plan, gives the second one exactly as it is written.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from conductor_core.workflow.changes import Origins, PlanChanges, compare
from conductor_core.workflow.model import AccessList, Frozen, Step, Workflow

Change = Literal["added", "removed", "changed", "moved"]
Part = Literal["instruction", "agent", "access_list"]

NO_PLAN = Workflow(steps=())


class Difference(Frozen):
    """One difference of plan B from plan A. A step that moved and changed has two.

    Attributes:
        a, b: the step's index in plan A and in plan B; None: that plan lacks it.
        fields: of a changed step, which parts are other ones. An access list whose steps only got other numbers is not.
        before, after: the step as plan A and plan B have it.
    """

    change: Change
    a: int | None = None
    b: int | None = None
    fields: tuple[Part, ...] = ()
    before: Step | None = None
    after: Step | None = None


class PlansCompared(NamedTuple):
    """Two plans, beside each other.

    Attributes:
        changes: which step is which, and what each may see now.
        differences: in the order of plan B; removed steps come last.
    """

    a: Workflow
    b: Workflow
    changes: PlanChanges
    differences: tuple[Difference, ...]

    @property
    def origins(self) -> Origins:
        return tuple(step.before for step in self.changes.steps)

    def of_step(self, a: int | None, b: int | None) -> tuple[Difference, ...]:
        """Returns the differences of the step that is ``a`` in plan A and ``b`` in plan B."""
        return tuple(each for each in self.differences if (each.a, each.b) == (a, b))

    def rows(self) -> list[tuple[int | None, int | None]]:
        """Returns each step once, as its index in A and in B: in B's order, removed steps after their predecessor."""
        rows: list[tuple[int | None, int | None]] = [(step.before, step.after) for step in self.changes.steps]
        for removed in self.changes.removed:
            before = next((place for place, (a, _) in enumerate(rows) if removed and a == removed - 1), -1)
            rows.insert(before + 1, (removed, None))
        return rows


def compare_plans(a: Workflow, b: Workflow, origins: Origins | None = None) -> PlansCompared:
    """Compares two plans. Steps are aligned by content, then by position.

    Args:
        origins: which step of ``a`` each step of ``b`` is, if that is known.

    Raises: ValueError if ``origins`` does not fit.
    """
    changes = compare(a, b, origins)
    numbers = {step.before: step.after for step in changes.steps if step.before is not None}
    found: list[Difference] = []
    for step in changes.steps:
        after = b.steps[step.after]
        if step.before is None:
            found.append(Difference(change="added", b=step.after, after=after))
            continue
        before = a.steps[step.before]
        places = {"a": step.before, "b": step.after, "before": before, "after": after}
        if step.moved:
            found.append(Difference(change="moved", **places))
        renumbered = before.model_copy(update={"access_list": _renumbered(before.access_list, numbers)})
        sees_otherwise = bool(step.gained or step.lost or step.reordered)
        fields = tuple(
            part
            for part in ("instruction", "agent", "access_list")
            if getattr(renumbered, part) != getattr(after, part) or (part == "access_list" and sees_otherwise)
        )
        if fields:
            found.append(Difference(change="changed", fields=fields, **places))
    gone = [Difference(change="removed", a=index, before=a.steps[index]) for index in changes.removed]
    return PlansCompared(a, b, changes, (*found, *gone))


def apply_differences(plan: Workflow, differences: Sequence[Difference]) -> Workflow:
    """Returns plan B, given plan A and the differences of B from A. Raises: ValueError if they do not fit ``plan``."""
    placed: dict[int, int | Step] = {}
    gone = {each.a for each in differences if each.change == "removed"}
    for each in differences:
        if each.b is not None and each.change == "moved" and each.a is not None:
            placed[each.b] = each.a
        elif each.b is not None and each.change == "added" and each.after is not None:
            placed[each.b] = each.after
    stays = [index for index in range(len(plan.steps)) if index not in gone and index not in placed.values()]
    size = len(placed) + len(stays)
    free = [index for index in range(size) if index not in placed]
    if len(free) != len(stays) or not gone | {place for place in placed.values() if isinstance(place, int)} <= set(
        range(len(plan.steps))
    ):
        raise ValueError(f"the differences do not fit a plan of {len(plan.steps)} steps")
    placed |= dict(zip(free, stays, strict=True))
    numbers = {place: index for index, place in placed.items() if isinstance(place, int)}
    changed = {each.b: each for each in differences if each.change == "changed"}
    steps: list[Step] = []
    for index in range(size):
        place = placed[index]
        step = plan.steps[place] if isinstance(place, int) else place
        if isinstance(place, int):
            step = step.model_copy(update={"access_list": _renumbered(step.access_list, numbers)})
        if (own := changed.get(index)) is not None and own.after is not None:
            step = step.model_copy(update={part: getattr(own.after, part) for part in own.fields})
        steps.append(step)
    return Workflow(steps=tuple(steps))


def _renumbered(access_list: AccessList, numbers: dict[int, int]) -> AccessList:
    """Returns ``access_list`` in the numbers of the other plan. What that plan lacks falls out."""
    if access_list == "all":
        return access_list
    return tuple(numbers[read] for read in access_list if read in numbers)

"""Edits of plans: functions that change a workflow's structure, and what a change made of each step. Pure.

Steps are told by identity and never by place: inserting one changes no other, it only renumbers them. An editor knows
the identities and gives them as ``Origins``; where nobody does (a plan from a file) ``match`` finds them by content.

Each editing function returns a new workflow with renumbered access lists. ``"all"`` stays ``"all"``: it then means
whatever is earlier. References that were not valid before (to the step itself, a later or a missing step) are
renumbered but never removed, so that validation goes on reporting them.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from conductor_core.workflow.model import Frozen, Step, Workflow

Origins = tuple[int | None, ...]
"""For each step of the later plan its index in the earlier one; None: it is new."""

ALIKE = 0.5
"""Two instructions with this share of common words are one, reworded; below it another step has taken the place."""


class StepChange(Frozen):
    """What became of one step of the later plan.

    Attributes:
        before: its index in the earlier plan, None: it is new. after: its index in the later plan.
        agent, instruction: whether that is another one.
        moved: whether it changed places with others; a step that only got another number did not.
        gained: indices in the later plan of the steps that it sees now and did not see.
        lost: indices in the earlier plan of the steps that it saw and does not see any more.
        reordered: it sees the same steps, in another order.
    """

    after: int
    before: int | None = None
    agent: bool = False
    instruction: bool = False
    moved: bool = False
    gained: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    reordered: bool = False

    @property
    def new(self) -> bool:
        return self.before is None

    @property
    def changed(self) -> bool:
        """Whether it is told, done or shown otherwise; false for a new one and for one that has only moved."""
        return not self.new and bool(self.agent or self.instruction or self.gained or self.lost or self.reordered)


class PlanChanges(Frozen):
    """The difference of two plans.

    Attributes:
        steps: one for each step of the later plan, in its order.
        removed: indices in the earlier plan of the steps that are gone.
    """

    steps: tuple[StepChange, ...]
    removed: tuple[int, ...] = ()

    @property
    def none(self) -> bool:
        return not self.removed and not any(step.new or step.changed or step.moved for step in self.steps)

    def number_now(self, before: int) -> int | None:
        """The index in the later plan of step ``before`` of the earlier one; None if it was removed."""
        return next((step.after for step in self.steps if step.before == before), None)

    @property
    def count(self) -> int:
        """How many changes there are: each field of a step, each step that is new, moved or removed."""
        fields = ("moved", "agent", "instruction", "reordered")
        counts = [
            1 if step.new else sum(getattr(step, name) for name in fields) + bool(step.gained) + bool(step.lost)
            for step in self.steps
        ]
        return sum(counts) + len(self.removed)

    def in_words(self, index: int) -> str:
        """What became of step ``index`` of the later plan, as ``moved, no longer reads step 0``; empty: nothing."""
        return ", ".join(self._parts(self.steps[index]))

    def sentences(self, before: Workflow, after: Workflow) -> tuple[str, ...]:
        """Names all changes, one text a step: ``step 2: writer → coder``, ``step 3 also reads step 1``.

        Numbers are those of the later plan; of removed steps, the earlier plan's.
        """
        named = [self._named(step, before, after) for step in self.steps if self.in_words(step.after)]
        return (*named, *(f"step {index} ({before.steps[index].agent}) removed" for index in self.removed))

    def _named(self, step: StepChange, before: Workflow, after: Workflow) -> str:
        here, agent, sight = f"step {step.after}", after.steps[step.after].agent, list(self._sight(step))
        if step.before is None:
            return f"{here} ({agent}) added"
        if step.instruction and not (step.moved or step.agent or sight):
            return f"instruction of {here} edited"
        parts = [f"moved (was step {step.before})"] if step.moved else []
        parts += [f"{before.steps[step.before].agent} → {agent}"] if step.agent else []
        parts += ["instruction edited"] if step.instruction else []
        return f"{here}{':' if parts else ''} {', '.join((*parts, *sight))}"

    def _parts(self, step: StepChange) -> Iterator[str]:
        if step.new:
            yield "new"
            return
        if step.moved:
            yield "moved"
        if own := " and ".join(name for name in ("agent", "instruction") if getattr(step, name)):
            yield f"{own} changed"
        yield from self._sight(step)

    def sight_in_words(self, index: int) -> str:
        """What step ``index`` of the later plan sees now and saw before, as ``also reads step 1``; or nothing."""
        return ", ".join(self._sight(self.steps[index]))

    def _sight(self, step: StepChange) -> Iterator[str]:
        if step.gained:
            yield f"also reads {_steps(step.gained)}"
        if left := [now for now in map(self.number_now, step.lost) if now is not None]:
            yield f"no longer reads {_steps(sorted(left))}"
        if gone := [index for index in step.lost if self.number_now(index) is None]:
            yield f"no longer reads the removed {_steps(gone)}"
        if step.reordered:
            yield "reads its steps in another order"


def compare(before: Workflow, after: Workflow, origins: Origins | None = None) -> PlanChanges:
    """What is different in ``after``.

    Args:
        origins: which step is which, if that is known; else it is found by content.

    Raises: ValueError if ``origins`` does not fit.
    """
    if origins is None:
        origins = match(before, after)
    require_fit(before, after, origins)
    known = [origin for origin in origins if origin is not None]
    in_place = _longest_ascending(known)
    steps = tuple(_change(before, after, origins, index, in_place) for index in range(len(origins)))
    return PlanChanges(steps=steps, removed=tuple(index for index in range(len(before.steps)) if index not in known))


def require_fit(before: Workflow, after: Workflow, origins: Origins) -> None:
    """Raises: ValueError if ``origins`` does not name each step of ``after`` once, with steps that ``before`` has."""
    known, places = [origin for origin in origins if origin is not None], range(len(before.steps))
    if len(origins) != len(after.steps) or len(set(known)) != len(known) or not set(known) <= set(places):
        raise ValueError(f"origins {origins} do not fit {len(places)} and {len(after.steps)} steps")


def _change(before: Workflow, after: Workflow, origins: Origins, index: int, in_place: frozenset[int]) -> StepChange:
    origin = origins[index]
    if origin is None:
        return StepChange(after=index)
    then, now = before.steps[origin], after.steps[index]
    saw = before.reads(origin)
    sees = {earlier: origins[earlier] for earlier in after.reads(index)}
    common = [each for each in sees.values() if each in saw]
    return StepChange(
        after=index,
        before=origin,
        agent=then.agent != now.agent,
        instruction=then.instruction != now.instruction,
        moved=origin not in in_place,
        gained=tuple(earlier for earlier, was in sees.items() if was not in saw),
        lost=tuple(each for each in saw if each not in sees.values()),
        reordered=common != [each for each in saw if each in common],
    )


def match(before: Workflow, after: Workflow) -> Origins:
    """Which step of ``before`` each step of ``after`` is, by content: what is the same first, then what is like it.

    Of several equal ones the one at the same place is taken, then the first.
    """
    found = _Matching(before.steps, after.steps)
    found.pair(lambda place, step: (place, step.agent, step.instruction))
    found.pair(lambda _, step: (step.agent, step.instruction))
    found.pair(lambda _, step: step.instruction)
    found.pair_alike()
    found.pair_in_gaps()
    return tuple(found.origins)


class _Matching:
    def __init__(self, before: Sequence[Step], after: Sequence[Step]) -> None:
        self._before, self._after = before, after
        self._free = dict.fromkeys(range(len(before)))  # in order
        self.origins: list[int | None] = [None] * len(after)

    def pair(self, key: Callable[[int, Step], Hashable]) -> None:
        """Pairs the steps of equal ``key``, given their index and themselves, in order."""
        waiting: dict[Hashable, deque[int]] = {}
        for place in self._free:
            waiting.setdefault(key(place, self._before[place]), deque()).append(place)
        for index in self._unknown():
            if places := waiting.get(key(index, self._after[index])):
                self._pair(places.popleft(), index)

    def pair_alike(self) -> None:
        """Pairs each step with the one whose instruction has most words in common with its own."""
        then = {place: frozenset(self._before[place].instruction.split()) for place in self._free}
        for index in self._unknown():
            words = frozenset(self._after[index].instruction.split())
            likeness = {place: len(words & then[place]) / max(1, len(words | then[place])) for place in self._free}
            best = max(likeness, key=lambda place: likeness[place], default=None)
            if best is not None and likeness[best] >= ALIKE:
                self._pair(best, index)

    def pair_in_gaps(self) -> None:
        """Pairs what is left after the same step in both plans: in order where it is as many, else by agent."""
        then, now = self._gaps()
        for gap, indices in now.items():
            places = then.get(gap, [])
            if len(places) == len(indices):
                for place, index in zip(places, indices, strict=True):
                    self._pair(place, index)
                continue
            for index in indices:
                agent = self._after[index].agent
                fits = [place for place in places if place in self._free and self._before[place].agent == agent]
                if fits:
                    self._pair(fits[0], index)

    def _gaps(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """The unpaired steps of both plans, by the paired step that they follow, as numbered before; -1: none."""
        paired = [None if place in self._free else place for place in range(len(self._before))]
        return _unpaired(paired), _unpaired(self.origins)

    def _unknown(self) -> list[int]:
        return [index for index, origin in enumerate(self.origins) if origin is None]

    def _pair(self, place: int, index: int) -> None:
        self.origins[index] = place
        del self._free[place]


def _unpaired(pairs: Sequence[int | None]) -> dict[int, list[int]]:
    """Returns the indices of None in ``pairs``, grouped by the last number before them; -1: there is none."""
    gaps: dict[int, list[int]] = {}
    last = -1
    for index, pair in enumerate(pairs):
        if pair is None:
            gaps.setdefault(last, []).append(index)
        else:
            last = pair
    return gaps


def _longest_ascending(numbers: Sequence[int]) -> frozenset[int]:
    """The members of a longest ascending subsequence: the steps that may be said to have stayed in place."""
    ends: list[int] = []
    previous: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(ends, number)
        previous[number] = ends[place - 1] if place else None
        ends[place:] = [number, *ends[place + 1 :]]
    stayed: list[int] = []
    here = ends[-1] if ends else None
    while here is not None:
        stayed.append(here)
        here = previous[here]
    return frozenset(stayed)


def _steps(indices: Sequence[int]) -> str:
    return f"step{'' if len(indices) == 1 else 's'} {', '.join(map(str, indices))}"


# Editing.


class Reference(NamedTuple):
    """Says that step ``reader`` lists step ``read`` in its access list, both numbered as before the change."""

    reader: int
    read: int


def add_step(workflow: Workflow, index: int, step: Step) -> Workflow:
    """Inserts ``step`` so that it becomes step ``index``; ``index`` may be one past the end.

    The access list of ``step`` itself is taken as it is, in the new numbering. Raises: IndexError.
    """
    count = len(workflow.steps)
    if not 0 <= index <= count:
        raise IndexError(f"a step can be added at 0 to {count}, not at {index}")
    steps, _ = _rearranged(workflow, {old: old + (old >= index) for old in range(count)}, count + 1)
    return Workflow(steps=(*steps[:index], step, *steps[index:]))


def remove_step(workflow: Workflow, index: int) -> tuple[Workflow, tuple[Reference, ...]]:
    """Removes step ``index``. Also returns the references to it, which go with it. Raises: IndexError."""
    workflow.require(index)
    count = len(workflow.steps)
    now = {old: old - (old > index) for old in range(count) if old != index}
    steps, dropped = _rearranged(workflow, now, count - 1)
    return Workflow(steps=steps), dropped


def move_step(workflow: Workflow, from_index: int, to_index: int) -> tuple[Workflow, tuple[Reference, ...]]:
    """Moves step ``from_index`` so that it becomes step ``to_index``.

    Also returns the references that were dropped because the step they name is no longer an earlier one.
    Raises: IndexError.
    """
    workflow.require(from_index)
    workflow.require(to_index)
    order = list(range(len(workflow.steps)))
    order.insert(to_index, order.pop(from_index))
    steps, dropped = _rearranged(workflow, {old: new for new, old in enumerate(order)}, len(order))
    return Workflow(steps=steps), dropped


def replace_step(workflow: Workflow, index: int, step: Step) -> Workflow:
    """Replaces step ``index`` by ``step``. No number changes. Raises: IndexError."""
    workflow.require(index)
    return Workflow(steps=(*workflow.steps[:index], step, *workflow.steps[index + 1 :]))


def _rearranged(
    workflow: Workflow, now: Mapping[int, int], count: int
) -> tuple[tuple[Step, ...], tuple[Reference, ...]]:
    """Returns the steps in another order, and the references that go: to a step without a place, or to a later one now.

    Args:
        now: the new place of each step by its old one. count: how many steps there are then.
    """
    known = len(workflow.steps)
    dropped: set[Reference] = set()

    def renumbered(reader: int) -> Step:
        step = workflow.steps[reader]
        if step.access_list == "all":
            return step
        kept: list[int] = []
        for read in step.access_list:
            new = now.get(read) if 0 <= read < known else read + (count - known if read > 0 else 0)
            if new is None or (0 <= read < reader and new > now[reader]):
                dropped.add(Reference(reader, read))
            else:
                kept.append(new)
        return step.model_copy(update={"access_list": tuple(kept)})

    return tuple(map(renumbered, sorted(now, key=now.__getitem__))), tuple(sorted(dropped))

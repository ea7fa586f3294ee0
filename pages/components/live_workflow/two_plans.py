"""Two plans in one picture: an edited plan beside the plan that it was, or the plans of two runs. Pure.

Each step of either plan stands once. Its *place* is its index in the later plan; removed steps follow, in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from conductor_core.workflow.edits import PlanChanges, StepChange
from conductor_core.workflow.model import Workflow


@dataclass(frozen=True)
class TwoPlans:
    """Plans ``before`` and ``after``, and what ``changes`` says of them."""

    before: Workflow
    after: Workflow
    changes: PlanChanges

    @cached_property
    def place_of(self) -> Mapping[int, int]:
        """The place of each step of the earlier plan."""
        kept = {step.before: step.after for step in self.changes.steps if step.before is not None}
        return kept | {index: len(self.changes.steps) + number for number, index in enumerate(self.changes.removed)}

    @cached_property
    def _removed_reads(self) -> tuple[tuple[int, ...], ...]:
        """For each place the reads that are gone. Words tell those that the change turned round: they point back."""
        kept = [tuple(self.place_of[each] for each in step.lost) for step in self.changes.steps]
        gone = [tuple(self.place_of[each] for each in self.before.reads(index)) for index in self.changes.removed]
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(kept) + len(gone)))
        graph.add_edges_from((read, index) for index in range(len(kept)) for read in self.after.reads(index))
        drawn: list[tuple[int, ...]] = []
        for place, lost in enumerate([*kept, *gone]):
            forwards = tuple(read for read in lost if not nx.has_path(graph, place, read))
            graph.add_edges_from((read, place) for read in forwards)
            drawn.append(forwards)
        return tuple(drawn)

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each place what it reads now, then what it read, as places. A step of both plans keeps its position in
        the picture as long as what it reads does."""
        now = [*(self.after.reads(index) for index in range(len(self.changes.steps)))]
        now += [() for _ in self.changes.removed]
        return tuple((*reads, *lost) for reads, lost in zip(now, self._removed_reads, strict=True))

    def edge_change(self, source: int, target: int) -> str | None:
        """Returns ``gained``, ``lost`` or None for the edge between two places."""
        if source in self._removed_reads[target]:
            return "lost"
        if target >= len(self.changes.steps):
            return None
        step = self.changes.steps[target]
        return "gained" if step.new or source in step.gained else None


def change_of(step: StepChange) -> str | None:
    """Returns ``new``, ``changed``, ``moved`` or None."""
    if step.new:
        return "new"
    return "changed" if step.changed else "moved" if step.moved else None

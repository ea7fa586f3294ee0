"""A plan under a person's hands as the graph draws it: beside the plan that it was, with what a re-run would do. Pure.

What the component is handed:

    {"steps": [{"key", "number", "was", "agent", "instruction", "reads", "change", "fate", "words"}], "layout": ...,
     "fault": ...}

``key`` is the editor's id of the step: of a step that the run has its index there, so that the graph knows it again,
and of a new one a number that no step of the run has. ``number`` is its index in the edited plan, null for a removed
step; ``was`` that in the run, null for a new one. ``reads`` are numbers of the edited plan (of a removed step, of the
run's). ``change``: new, changed, moved, removed or null. ``fate``: runs, reused, fault or null. Edges have
``change``: gained, lost or null. ``fault``: the first fault in a sentence, and whether the plan is drawn as it was
before; empty: there is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import networkx as nx

from conductor_core.engine.rerun import RerunPreview
from conductor_core.workflow.changes import PlanChanges, StepChange, compare
from conductor_core.workflow.model import Fault, Step
from pages.components.live_workflow.layout import GraphLayout, RoundShape, lay_out, network_data
from pages.components.run.draft import Draft

Change = Literal["new", "changed", "moved", "removed"]
Fate = Literal["runs", "reused", "fault"]


@dataclass(frozen=True)
class _Unit:
    """A step of either plan. ``reads``: units, as places in the list of all; ``lost``: those that it reads no more."""

    key: int
    reads: tuple[int, ...]
    lost: tuple[int, ...]


NOT_DRAWN = "Drawn as it was before."


def edited_plan(draft: Draft, shown: Draft, forecast: RerunPreview | None, faults: Sequence[Fault]) -> dict[str, Any]:
    """What the graph draws of ``draft``, which has ``faults``.

    Args:
        shown: the draft, or as it was when its steps could last be read: this is drawn, with the faults on its cards.
        forecast: what ``shown`` would call and reuse; None: it cannot run.
    """
    faulty = {draft.now.ids[fault.step]: fault.message for fault in reversed(faults) if fault.step is not None}
    said = [faults[0].message] if faults else []
    return {**_drawn(shown, forecast, faulty), "fault": " ".join(said if shown == draft else [*said, NOT_DRAWN])}


def _drawn(draft: Draft, forecast: RerunPreview | None, faulty: Mapping[int, str]) -> dict[str, Any]:
    """``faulty``: by the editor's id of a step, what is wrong with it."""
    changes = compare(draft.original, draft.workflow, draft.origins)
    ids = draft.now.ids
    steps = [
        {
            "key": str(ids[index]),
            "number": index,
            "was": changes.steps[index].before,
            **_told(step),
            "reads": list(draft.workflow.reads(index)),
            "change": _change(changes.steps[index]),
            **_fate(index, changes, forecast, faulty.get(ids[index])),
        }
        for index, step in enumerate(draft.workflow.steps)
    ]
    gone = [
        {
            "key": str(index),
            "number": None,
            "was": index,
            **_told(draft.original.steps[index]),
            "reads": list(draft.original.reads(index)),
            "change": "removed",
            "fate": None,
            "words": f"was step {index}",
        }
        for index in changes.removed
    ]
    return {"steps": [*steps, *gone], "layout": _layout(draft, changes)}


def _told(step: Step) -> dict[str, str]:
    return {"agent": step.agent, "instruction": step.instruction}


def _change(step: StepChange) -> Change | None:
    if step.new:
        return "new"
    return "changed" if step.changed else "moved" if step.moved else None


def _fate(
    index: int, changes: PlanChanges, forecast: RerunPreview | None, fault: str | None
) -> dict[str, Fate | str | None]:
    if fault is not None:
        return {"fate": "fault", "words": fault}
    if forecast is None:
        return {"fate": None, "words": "" if changes.steps[index].new else changes.in_words(index)}
    runs = next((each for each in forecast.will_run if each.index == index), None)
    if runs is not None:
        return {"fate": "runs", "words": runs.reason}
    return {"fate": "reused", "words": next(each.reason for each in forecast.will_reuse if each.index == index)}


def _layout(draft: Draft, changes: PlanChanges) -> dict[str, Any]:
    """Both plans in one picture: a step that is in both keeps its place as long as what it reads does."""
    units = _units(draft, changes)
    lost = _drawable(units)
    layout = lay_out([RoundShape((), tuple((*unit.reads, *lost[place]) for place, unit in enumerate(units)))])
    gained = {
        (_key(draft, earlier), _key(draft, step.after))
        for step in changes.steps
        for earlier in (draft.workflow.reads(step.after) if step.new else step.gained)
    }
    gone = {(units[earlier].key, units[place].key) for place in range(len(units)) for earlier in lost[place]}
    data = network_data(_named(layout, units))
    for edge in data["edges"]:
        ends = (int(edge["from"]), int(edge["to"]))
        edge["change"] = "gained" if ends in gained else "lost" if ends in gone else None
    return data


def _key(draft: Draft, index: int) -> int:
    return draft.now.ids[index]


def _units(draft: Draft, changes: PlanChanges) -> list[_Unit]:
    """The steps of the edited plan, then those that were removed."""
    place_of = {step.before: step.after for step in changes.steps if step.before is not None}
    place_of |= {before: len(changes.steps) + number for number, before in enumerate(changes.removed)}
    kept = [
        _Unit(_key(draft, step.after), draft.workflow.reads(step.after), tuple(place_of[each] for each in step.lost))
        for step in changes.steps
    ]
    gone = [
        _Unit(before, (), tuple(place_of[each] for each in draft.original.reads(before))) for before in changes.removed
    ]
    return [*kept, *gone]


def _drawable(units: Sequence[_Unit]) -> list[tuple[int, ...]]:
    """The lost reads of each unit that can be drawn forwards: what the edited plan turned round is told in words."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(units)))
    graph.add_edges_from((earlier, place) for place, unit in enumerate(units) for earlier in unit.reads)
    drawn: list[tuple[int, ...]] = []
    for place, unit in enumerate(units):
        forwards = [earlier for earlier in unit.lost if not nx.has_path(graph, place, earlier)]
        graph.add_edges_from((earlier, place) for earlier in forwards)
        drawn.append(tuple(forwards))
    return drawn


def _named(layout: GraphLayout, units: Sequence[_Unit]) -> GraphLayout:
    """With the steps' keys for their places in the list of all."""

    def key(path: tuple[int, ...]) -> tuple[int, ...]:
        return (units[path[0]].key,)

    return replace(
        layout,
        nodes=tuple(replace(node, path=key(node.path)) for node in layout.nodes),
        edges=tuple(replace(edge, source=key(edge.source), target=key(edge.target)) for edge in layout.edges),
    )

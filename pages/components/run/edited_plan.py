"""An edited plan as the graph draws it: beside the plan that it was, with what a re-run would do. Pure.

The component gets:

    {"steps": [{"key", "number", "was", "agent", "instruction", "reads", "change", "fate", "words"}], "layout": ...,
     "fault": ...}

``key`` is the editor's id of the step. A step of the run has its index there as key, so that the graph recognises it; a
new step has a number that no step of the run has. ``number`` is its index in the edited plan, null for a removed step;
``was`` is that in the run, null for a new one. ``reads`` are numbers of the edited plan (for a removed step, of the
run's). ``change`` is new, changed, moved, removed or null, ``fate`` is runs, reused, fault or null. An edge's
``change`` is gained, lost or null. ``fault`` says the first fault, and whether the plan is drawn as it was before; it
is empty where there is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx

from conductor_core.engine.rerun import RerunPreview
from conductor_core.workflow.changes import PlanChanges, StepChange, compare
from conductor_core.workflow.model import Fault, Step
from pages.components.live_workflow.layout import GraphLayout, RoundShape, lay_out, network_data
from pages.components.run.draft import Draft


@dataclass(frozen=True)
class _Unit:
    """A step of either plan. ``reads`` are places in the list of all units, ``lost`` those that it reads no more."""

    key: int
    reads: tuple[int, ...]
    lost: tuple[int, ...]


def edited_plan(draft: Draft, shown: Draft, forecast: RerunPreview | None, faults: Sequence[Fault]) -> dict[str, Any]:
    """Returns what the graph draws of ``draft``, which has ``faults``.

    Args:
        shown: the draft, or its last version whose steps could be read. This is drawn, with the faults on its cards.
        forecast: what ``shown`` would call and reuse; None: it cannot run.
    """
    faulty = {draft.now.ids[fault.step]: fault.message for fault in reversed(faults) if fault.step is not None}
    said = [fault.message for fault in faults[:1]] + (["Drawn as it was before."] if shown != draft else [])
    return {**_drawn(shown, forecast, faulty), "fault": " ".join(said)}


def _drawn(draft: Draft, forecast: RerunPreview | None, faulty: Mapping[int, str]) -> dict[str, Any]:
    """Draws ``draft``. ``faulty`` says what is wrong with a step, by the editor's id."""
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


def _change(step: StepChange) -> str | None:
    if step.new:
        return "new"
    return "changed" if step.changed else "moved" if step.moved else None


def _fate(index: int, changes: PlanChanges, forecast: RerunPreview | None, fault: str | None) -> dict[str, str | None]:
    if fault is not None:
        return {"fate": "fault", "words": fault}
    if forecast is None:
        return {"fate": None, "words": "" if changes.steps[index].new else changes.in_words(index)}
    runs = {each.index: each.reason for each in forecast.will_run}
    if index in runs:
        return {"fate": "runs", "words": runs[index]}
    return {"fate": "reused", "words": next(each.reason for each in forecast.will_reuse if each.index == index)}


def _layout(draft: Draft, changes: PlanChanges) -> dict[str, Any]:
    """Draws both plans in one picture. A step of both keeps its place as long as what it reads does."""
    units = _units(draft, changes)
    lost = _drawable(units)
    layout = lay_out([RoundShape((), tuple((*unit.reads, *lost[place]) for place, unit in enumerate(units)))])
    ids = draft.now.ids
    gained = {
        (ids[earlier], ids[step.after])
        for step in changes.steps
        for earlier in (draft.workflow.reads(step.after) if step.new else step.gained)
    }
    gone = {(units[earlier].key, units[place].key) for place in range(len(units)) for earlier in lost[place]}
    data = network_data(_named(layout, units))
    for edge in data["edges"]:
        ends = (int(edge["from"]), int(edge["to"]))
        edge["change"] = "gained" if ends in gained else "lost" if ends in gone else None
    return data


def _units(draft: Draft, changes: PlanChanges) -> list[_Unit]:
    """Lists the steps of the edited plan, then the removed ones."""
    place_of = {step.before: step.after for step in changes.steps if step.before is not None}
    place_of |= {before: len(changes.steps) + number for number, before in enumerate(changes.removed)}
    kept = [
        _Unit(draft.now.ids[step.after], draft.workflow.reads(step.after), tuple(place_of[each] for each in step.lost))
        for step in changes.steps
    ]
    gone = [
        _Unit(before, (), tuple(place_of[each] for each in draft.original.reads(before))) for before in changes.removed
    ]
    return [*kept, *gone]


def _drawable(units: Sequence[_Unit]) -> list[tuple[int, ...]]:
    """Returns the lost reads of each unit that can be drawn forwards. Words tell those that the edit turned round."""
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
    """Replaces the steps' places in the list of all by their keys."""

    def key(path: tuple[int, ...]) -> tuple[int, ...]:
        return (units[path[0]].key,)

    return replace(
        layout,
        nodes=tuple(replace(node, path=key(node.path)) for node in layout.nodes),
        edges=tuple(replace(edge, source=key(edge.source), target=key(edge.target)) for edge in layout.edges),
    )

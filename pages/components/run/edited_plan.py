"""An edited plan as the graph draws it: beside the plan that it was, with what a re-run would do. Pure.

The component gets:

    {"steps": [{"key", "number", "was", "agent", "instruction", "reads", "change", "fate", "words"}], "layout": ...,
     "stale": ...}

``key`` is the editor's id of the step. A step of the run has its index there as key, so that the graph recognises it; a
new step has a number that no step of the run has. ``number`` is its index in the edited plan, null for a removed step;
``was`` is that in the run, null for a new one. ``reads`` are numbers of the edited plan (for a removed step, of the
run's). ``change`` is new, changed, moved, removed or null, ``fate`` is runs, reused, written, pinned, fault or null. An
edge's ``change`` is gained, lost or null. ``stale``: the plan is drawn as it was
before a fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from conductor_core.engine.estimates import RerunPreview
from conductor_core.run.graph_layout import GraphLayout, RoundShape, lay_out
from conductor_core.workflow.edits import PlanChanges, compare
from conductor_core.workflow.model import Fault, Step
from pages.components.live_workflow.layout import network_data
from pages.components.live_workflow.two_plans import TwoPlans, change_of
from pages.components.run.draft import Draft


def edited_plan(draft: Draft, shown: Draft, forecast: RerunPreview | None, faults: Sequence[Fault]) -> dict[str, Any]:
    """Returns what the graph draws of ``draft``, which has ``faults``.

    Args:
        shown: the draft, or its last version whose steps could be read. This is drawn, with the faults on its cards.
        forecast: what ``shown`` would call and reuse; None: it cannot run.
    """
    return {**_drawn(shown, forecast, _faulty(draft, faults)), "stale": shown != draft}


def new_plan(
    draft: Draft, shown: Draft, forecast: RerunPreview | None, faults: Sequence[Fault], agents: Sequence[str]
) -> dict[str, Any]:
    """Returns what the graph draws of a plan that no run has: see ``edited_plan``. Nothing in it counts as changed.

    ``agents`` are the names of the pool's workers, which say the colours of the agents.
    """
    faulty = _faulty(draft, faults)
    workflow, ids = shown.workflow, shown.now.ids
    runs = {} if forecast is None else {step.index: step.reason for step in forecast.will_run}
    steps: list[dict[str, Any]] = []
    for index, step in enumerate(workflow.steps):
        fault = faulty.get(ids[index])
        fate = "fault" if fault is not None else "runs" if index in runs else None
        words = fault if fault is not None else runs.get(index, "")
        own = {"key": str(ids[index]), "number": index, "was": None, "reads": list(workflow.reads(index))}
        steps.append({**own, **_said_of(step), "change": None, "fate": fate, "words": words})
    data = network_data(_named(lay_out([RoundShape((), workflow.all_reads)]), ids))
    for edge in data["edges"]:
        edge["change"] = None
    return {"steps": steps, "layout": data, "stale": shown != draft, "agents": list(agents)}


def _faulty(draft: Draft, faults: Sequence[Fault]) -> dict[int, str]:
    """Returns what is wrong with each faulty step, by the editor's id."""
    return {draft.now.ids[fault.step]: fault.message for fault in reversed(faults) if fault.step is not None}


def _drawn(draft: Draft, forecast: RerunPreview | None, faulty: Mapping[int, str]) -> dict[str, Any]:
    """Draws ``draft``. ``faulty`` says what is wrong with a step, by the editor's id."""
    changes = compare(draft.original, draft.workflow, draft.origins)
    ids = draft.now.ids
    steps = [
        {
            "key": str(ids[index]),
            "number": index,
            "was": changes.steps[index].before,
            **_said_of(step),
            "reads": list(draft.workflow.reads(index)),
            "change": change_of(changes.steps[index]),
            **_fate(index, changes, forecast, faulty.get(ids[index])),
        }
        for index, step in enumerate(draft.workflow.steps)
    ]
    gone = [
        {
            "key": str(index),
            "number": None,
            "was": index,
            **_said_of(draft.original.steps[index]),
            "reads": list(draft.original.reads(index)),
            "change": "removed",
            "fate": None,
            "words": f"was step {index}",
        }
        for index in changes.removed
    ]
    return {"steps": [*steps, *gone], "layout": _layout(draft, changes)}


def _said_of(step: Step) -> dict[str, str]:
    return {"agent": step.agent, "instruction": step.instruction}


def _fate(index: int, changes: PlanChanges, forecast: RerunPreview | None, fault: str | None) -> dict[str, str | None]:
    if fault is not None:
        return {"fate": "fault", "words": fault}
    if forecast is None:
        return {"fate": None, "words": "" if changes.steps[index].new else changes.in_words(index)}
    runs = {each.index: each.reason for each in forecast.will_run}
    if index in runs:
        return {"fate": "runs", "words": runs[index]}
    kept = next(each for each in forecast.will_reuse if each.index == index)
    return {"fate": kept.given or "reused", "words": kept.reason}


def _layout(draft: Draft, changes: PlanChanges) -> dict[str, Any]:
    """Draws both plans in one picture."""
    plans = TwoPlans(draft.original, draft.workflow, changes)
    keys = [*draft.now.ids, *changes.removed]
    data = network_data(_named(lay_out([RoundShape((), plans.reads)]), keys))
    places = {str(key): place for place, key in enumerate(keys)}
    for edge in data["edges"]:
        edge["change"] = plans.edge_change(places[edge["from"]], places[edge["to"]])
    return data


def _named(layout: GraphLayout, keys: Sequence[int]) -> GraphLayout:
    """Replaces the steps' places in the list of all by their keys."""

    def key(path: tuple[int, ...]) -> tuple[int, ...]:
        return (keys[path[0]],)

    return replace(
        layout,
        nodes=tuple(replace(node, path=key(node.path)) for node in layout.nodes),
        edges=tuple(replace(edge, source=key(edge.source), target=key(edge.target)) for edge in layout.edges),
    )

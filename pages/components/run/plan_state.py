"""What follows from a draft: its faults, what its run would call, and what the component draws of all that. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from conductor_core.engine.estimates import RerunPreview, StepForecast
from conductor_core.engine.request import whole
from conductor_core.run.request import Overrides
from conductor_core.workflow.edits import PlanChanges, compare
from conductor_core.workflow.model import Fault, Workflow
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import UNTOLD, Checked
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft
from pages.components.run.edited_plan import edited_plan, new_plan
from pages.components.run.editing import Editing
from pages.components.style.formats import listed, numbers, plural

Preview = Callable[[Workflow, Draft], RerunPreview]
_MANY = 4
NOT_YET = {
    "waiting": "Its output can be written or kept once this run has ended: a re-run then takes it.",
    "new": "Its output can be written once a run of this plan has ended: a re-run then takes it.",
}
"""Why no output can be given to a step of such a plan: only a re-run carries one, and its record says of which run."""


@dataclass(frozen=True)
class PlanState:
    """All that follows from a draft.

    ``forecast`` is what its run would call and reuse; None: it has faults. ``drawn`` is what the graph draws of it;
    None: nothing is changed yet, so the graph draws the run.
    """

    checked: Checked
    forecast: RerunPreview | None
    drawn: dict[str, Any] | None


def read_plan(editing: Editing, preview: Preview) -> PlanState:
    """Returns what follows from the draft. ``preview`` tells what the run of a workflow would call and reuse."""
    checked, forecast = _checked(editing, editing.draft, preview)
    # A step that was removed and written again is another step.
    draft = editing.draft
    edited = draft.changed or draft.now.ids != drafts.begin(draft.original).now.ids
    drawn = _drawn(editing, checked, forecast, preview) if edited or editing.of == "new" else None
    return PlanState(checked, forecast, drawn)


def _checked(editing: Editing, draft: Draft, preview: Preview) -> tuple[Checked, RerunPreview | None]:
    checked = editing.check(draft.workflow)
    return checked, None if checked.workflow is None else preview(checked.workflow, draft)


def _drawn(editing: Editing, checked: Checked, forecast: RerunPreview | None, preview: Preview) -> dict[str, Any]:
    shown = drafts.last_readable(editing.draft, lambda workflow: editing.check(workflow).faults)
    if shown != editing.draft:
        forecast = _checked(editing, shown, preview)[1]
    if editing.of == "new":
        return new_plan(editing.draft, shown, forecast, checked.faults, editing.agents)
    return edited_plan(editing.draft, shown, forecast, checked.faults)


def as_data(editing: Editing, state: PlanState) -> dict[str, Any]:
    """Returns what the component draws of the open editor.

    {"of", "agents": [{"name", "says"}], "steps": [...], "faults", "warnings": [{"key", "field", "message", "untold"}],
     "undo", "redo", "changed", "title", "changes": [sentences], "says": [{"kind", "text"}], "start", "starts",
     "not_yet": why no output can be given, "show": the steps whose fields the page asks for}

    A step is {"key", "number", "agent", "instruction", "access": "all" or keys, "beyond": whether its access list names
    what it cannot read, "before": the keys that it read before, null for a new step, "given": {"how", "text", "says"}
    or null, "pins": whether its recorded output can be kept}. ``key`` is as in ``edited_plan``.
    """
    draft = editing.draft
    described = {spec.name: spec.description for spec in editing.specs}
    ready = state.forecast is not None and not editing.missing
    return {
        "of": editing.of,
        "agents": [{"name": name, "says": described.get(name, "")} for name in editing.offered_agents],
        "steps": [_step(editing, index) for index in range(len(draft.workflow.steps))],
        "faults": [_placed(draft, fault) for fault in state.checked.faults],
        "warnings": [_placed(draft, fault) for fault in state.checked.warnings],
        "undo": bool(draft.past),
        "redo": bool(draft.future),
        "changed": draft.changed,
        "title": _title(editing, draft),
        "changes": _changes(draft),
        "says": [{"kind": kind, "text": text} for kind, text in _says(editing, state.forecast)],
        "start": _start_label(state.forecast, editing),
        "starts": ready,
        "not_yet": NOT_YET.get(editing.of, ""),
        "show": [str(each) for each in editing.open_ids],
    }


def _step(editing: Editing, index: int) -> dict[str, Any]:
    draft = editing.draft
    step, ids = draft.workflow.steps[index], draft.now.ids
    reads, origin = draft.workflow.reads(index), draft.origins[index]
    given = draft.given_to(ids[index])
    return {
        "key": str(ids[index]),
        "number": index,
        "agent": step.agent,
        "instruction": step.instruction,
        "access": "all" if step.access_list == "all" else [str(ids[read]) for read in reads],
        "beyond": step.access_list != "all" and set(step.access_list) != set(reads),
        "before": None if origin is None else [str(read) for read in draft.original.reads(origin)],
        "given": None if given is None else {"how": given[1].how, "text": given[0], "says": given[1].in_words},
        "pins": editing.of == "ended" and _pins(editing, ids[index]),
    }


def _pins(editing: Editing, step_id: int) -> bool:
    if editing.run is None or not 0 <= step_id < len(editing.run.steps):
        return False
    recorded = editing.run.steps[step_id]
    return whole(recorded) and recorded.status != "written"


def _placed(draft: Draft, fault: Fault) -> dict[str, Any]:
    key = None if fault.step is None else str(draft.now.ids[fault.step])
    return {"key": key, "field": fault.field, "message": fault.message, "untold": fault.code == UNTOLD}


def _changes(draft: Draft) -> list[str]:
    """Says what is changed, a sentence for each."""
    said = list(_compared(draft).sentences(draft.original, draft.workflow))
    if draft.now.given != draft.original_given:
        said += Overrides(outputs=draft.outputs).sentences or ["no output is given by a person any more"]
    return said or (["the text of the plan"] if draft.changed else [])


def _title(editing: Editing, draft: Draft) -> str:
    if editing.of == "new":
        shape = topology(draft.workflow) if draft.workflow.steps else "no steps"
        return f"A plan of your own · {shape}"
    changes = _changes(draft)
    if not changes:
        return "Nothing is changed yet"
    compared = _compared(draft)
    besides = len(changes) - len(compared.sentences(draft.original, draft.workflow))
    return f"{plural(compared.count + besides, 'change')}: {'; '.join(changes)}"


def _compared(draft: Draft) -> PlanChanges:
    return compare(draft.original, draft.workflow, draft.origins)


def _says(editing: Editing, forecast: RerunPreview | None) -> list[tuple[str, str]]:
    """Says what will run, what is reused and the likely cost. The kind says its colour."""
    if forecast is None:
        return []
    if editing.missing:
        return [("warn", editing.missing)]
    runs, reused = [each.index for each in forecast.will_run], [each.index for each in forecast.will_reuse]
    if editing.of == "waiting":
        done = [("reused", f"✓ {_steps(reused, 'has', 'have')} run and {'stay' if reused[1:] else 'stays'}")]
        goes_on = ("runs", "‖ this run goes on with the plan as soon as somebody approves it")
        return [*(done if reused else []), goes_on]
    if not runs:
        return [("reused", f"↺ {_in_words(reused)} reused: nothing to pay")]
    words = "will run" if editing.of == "new" else "runs again" if len(runs) == 1 else "run again"
    kept = [("reused", f"↺ {_reused(forecast.will_reuse)}")] if reused else []
    on_top = [("", forecast.on_top)] if forecast.on_top else []
    first = [("", "Nothing is sent yet")] if editing.of == "new" else []
    tokens = ("", f"about {forecast.estimated_tokens:,} tokens")
    return [*first, ("runs", f"↻ {_in_words(runs)} {words}"), *kept, tokens, ("", forecast.cost.in_line), *on_top]


def _reused(kept: Sequence[StepForecast]) -> str:
    given = [each.index for each in kept if each.given]
    reused = [each.index for each in kept if not each.given]
    said = [f"{_in_words(reused)} reused"] if reused else []
    return ", ".join([*said, *([f"{_in_words(given)} by a person"] if given else [])])


def _in_words(steps: Sequence[int]) -> str:
    """Writes ``0, 1 and 2``; of many, what follows each other as ``4–39``."""
    return listed(list(map(str, steps))) if len(steps) < _MANY else numbers(steps)


def _steps(of: Sequence[int], one: str, several: str) -> str:
    return f"steps {_in_words(of)} {several}" if len(of) > 1 else f"step {_in_words(of)} {one}"


def _start_label(forecast: RerunPreview | None, editing: Editing) -> str:
    if editing.of != "ended":
        return "Run this plan" if editing.of == "new" else "Use this plan"
    runs = 0 if forecast is None else len(forecast.will_run)
    return f"Re-run {plural(runs, 'step')}" if runs else "Re-run"

"""One open plan editor: what it edits (a run's plan, or a new one), and the draft in the page's state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import streamlit as st

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.estimates import RerunPreview
from conductor_core.engine.pools import images_given
from conductor_core.engine.request import overrides_from, whole
from conductor_core.errors import BadInput
from conductor_core.export.formats import PLAN_FORMATS, PNG, PlanFormat
from conductor_core.export.picture import too_large
from conductor_core.export.plan import Plan, inner_plans, source_of
from conductor_core.export.script import FRAMEWORKS, check
from conductor_core.run.actor import local_caller
from conductor_core.run.graph_layout import RoundShape, lay_out
from conductor_core.run.request import GivenOutput, Overrides
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path
from conductor_core.workflow.edits import PlanChanges, compare
from conductor_core.workflow.model import CONDUCTOR_AGENT, Fault, Workflow
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import UNTOLD, Checked, validate
from pages.components.app.session import exported, this_browser
from pages.components.app.widgets import download
from pages.components.live_workflow.messages import TwoPlans, change_of, network_data
from pages.components.run import draft as drafts
from pages.components.run.draft import NOTHING_APPLIED, AppliedChanges, Author, Draft, Sent, apply_changes
from pages.components.run.draft_store import PageDraft
from pages.components.style.formats import inert, listed, numbers, plural

_APPLIED = "plan-changes-taken"

EDITING = "editing-run"
"""The key of the run whose plan is open in the editor, in the page's state."""
Of = Literal["ended", "waiting", "new"]


@dataclass(frozen=True)
class Editing:
    """The draft begins with ``original`` and with ``outputs``, which a person gave in the run.

    Attributes:
        recursive: whether a step may name the Conductor.
        conversation: all turns up to the task, with their images.
        source: what the plan is, in words, for those who get it as a file.
        imported: whether a file from elsewhere named the workers.
        inner: the rounds that recursive steps of the run opened.
        missing: what a run lacks besides a valid plan, in a sentence; empty: nothing.
        run: None for a new plan.
    """

    store: PageDraft
    of: Of
    original: Workflow
    task: str
    specs: tuple[WorkerSpec, ...]
    recursive: bool
    max_steps: int
    give_question: bool
    conversation: Sequence[Message]
    source: str = "a plan of your own"
    imported: bool = False
    inner: tuple[tuple[Path, Workflow], ...] = ()
    missing: str = ""
    outputs: tuple[GivenOutput, ...] = ()
    run: RunTrace | None = None

    @classmethod
    def of_run(cls, trace: RunTrace) -> "Editing":
        return cls(
            store=PageDraft(trace.run_id),
            of="ended" if trace.ended else "waiting",
            original=trace.root.workflow or Workflow(steps=()),
            task=trace.task,
            specs=trace.pool.workers,
            recursive=trace.limits.max_depth > 0 and trace.conductor is not None,
            max_steps=trace.limits.max_steps,
            give_question=trace.give_question,
            conversation=trace.conversation,
            source=source_of(trace),
            imported=trace.imported is not None,
            inner=inner_plans(trace),
            outputs=overrides_from(trace).outputs,
            run=trace,
        )

    @property
    def agents(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def draft(self) -> Draft:
        if (now := self.store.now) is None:
            self.store.put(now := drafts.begin(self.original, self.outputs))
        return now

    def keep(self, draft: Draft) -> None:
        self.store.keep(draft, self.task if self.of == "new" else "")

    def rebase(self) -> bool:
        """Begins the draft with the plan as it is by now. Returns whether an edit now stands beside another plan."""
        if self.draft.original == self.original:
            return False
        draft = drafts.rebase(self.draft, self.original)
        if draft.changed:
            self.keep(draft)
        else:
            self.store.put(draft)
        return draft.changed

    def apply_changes(self, sent: Sent | None) -> Literal["start", "close"] | None:
        """Makes the changes that were not made yet. Returns how the person left the editor, if they did."""
        if sent is None or sent.run_id != self.store.run_id:
            return None
        author = Author(local_caller("page"), self.run if self.of == "ended" else None, next(iter(self.agents), ""))
        draft, st.session_state[_APPLIED], left = apply_changes(self.draft, sent, applied(), author)
        if draft != self.draft:
            self.keep(draft)
        return left

    def open_only(self, *step_ids: int) -> None:
        """Has the component show the fields of these steps, the last one last."""
        st.session_state[f"open-of-{self.store.run_id}"] = step_ids

    def check(self, workflow: Workflow) -> Checked:
        task = None if self.give_question else self.task
        specs = {spec.name: spec for spec in self.specs}
        images = images_given(tuple(self.conversation), specs, every_step=self.give_question)
        return validate(
            workflow,
            self.agents,
            max_steps=self.max_steps,
            allow_recursion=self.recursive,
            allow_stop=False if self.of == "new" else None,
            task=task,
            images=images,
        )


def applied() -> AppliedChanges:
    """Returns what was taken from the browser so far. It outlives the draft, which its next value may still name."""
    kept: AppliedChanges = st.session_state.get(_APPLIED, NOTHING_APPLIED)
    return kept


# What the graph draws.


def edited_plan(draft: Draft, shown: Draft, forecast: RerunPreview | None, faults: Sequence[Fault]) -> dict[str, Any]:
    """Returns what the graph draws of ``draft``, which has ``faults``.

    Args:
        shown: the draft, or its last version whose steps could be read. This is drawn, with the faults on its cards.
        forecast: what ``shown`` would call and reuse; None: it cannot run.
    """
    faulty = {draft.now.ids[fault.step]: fault.message for fault in reversed(faults) if fault.step is not None}
    stale, draft = shown != draft, shown
    changes, ids = _compared(draft), draft.now.ids
    steps = [
        {
            "key": str(ids[index]),
            "number": index,
            "was": changes.steps[index].before,
            "agent": step.agent,
            "instruction": step.instruction,
            "reads": list(draft.workflow.reads(index)),
            "change": change_of(changes.steps[index]),
            **_fate(index, changes, forecast, faulty.get(ids[index])),
        }
        for index, step in enumerate(draft.workflow.steps)
    ]
    for index, step in ((index, draft.original.steps[index]) for index in changes.removed):
        gone = {"key": str(index), "number": None, "was": index, "agent": step.agent, "instruction": step.instruction}
        words = {"change": "removed", "fate": None, "words": f"was step {index}"}
        steps.append({**gone, "reads": list(draft.original.reads(index)), **words})
    return {"steps": steps, "layout": _layout(draft, changes), "stale": stale}


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
    plans = TwoPlans(draft.original, draft.workflow, changes)
    keys = [*draft.now.ids, *changes.removed]
    layout = lay_out([RoundShape((), plans.reads)])
    # Steps go by their keys, not by their places in the list of all.
    nodes = tuple(replace(node, path=(keys[node.path[0]],)) for node in layout.nodes)
    ends = ((keys[edge.source[0]], keys[edge.target[0]]) for edge in layout.edges)
    edges = tuple(replace(edge, source=(a,), target=(b,)) for edge, (a, b) in zip(layout.edges, ends, strict=True))
    data = network_data(replace(layout, nodes=nodes, edges=edges))
    places = {str(key): place for place, key in enumerate(keys)}
    for edge in data["edges"]:
        edge["change"] = plans.edge_change(places[edge["from"]], places[edge["to"]])
    return data


# What follows from a draft.

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
    draft = editing.draft

    def expected(of: Draft) -> tuple[Checked, RerunPreview | None]:
        checked = editing.check(of.workflow)
        return checked, None if checked.workflow is None else preview(checked.workflow, of)

    checked, forecast = expected(draft)
    # A step that was removed and written again is another step.
    if editing.of != "new" and not draft.changed and draft.now.ids == drafts.begin(draft.original).now.ids:
        return PlanState(checked, forecast, None)
    shown = drafts.last_readable(draft, lambda workflow: editing.check(workflow).faults)
    of_shown = forecast if shown == draft else expected(shown)[1]
    if editing.of != "new":
        return PlanState(checked, forecast, edited_plan(draft, shown, of_shown, checked.faults))
    # No run has this plan: nothing of it counts as changed.
    draft, shown = (replace(each, original=Workflow(steps=())) for each in (draft, shown))
    drawn = edited_plan(draft, shown, of_shown, checked.faults) | {"agents": editing.agents}
    for part in (*drawn["steps"], *drawn["layout"]["edges"]):
        part["change"] = None
    return PlanState(checked, forecast, drawn)


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
    agents = [{"name": spec.name, "says": spec.description} for spec in editing.specs]
    runs = 0 if state.forecast is None else len(state.forecast.will_run)
    rerun = f"Re-run {plural(runs, 'step')}" if runs else "Re-run"
    return {
        "of": editing.of,
        "agents": [*agents, *([{"name": CONDUCTOR_AGENT, "says": ""}] if editing.recursive else [])],
        "steps": [_step(editing, index) for index in range(len(draft.workflow.steps))],
        "faults": [_placed(draft, fault) for fault in state.checked.faults],
        "warnings": [_placed(draft, fault) for fault in state.checked.warnings],
        "undo": bool(draft.past),
        "redo": bool(draft.future),
        "changed": draft.changed,
        "title": _title(editing, draft),
        "changes": _changes(draft),
        "says": [{"kind": kind, "text": text} for kind, text in _says(editing, state.forecast)],
        "start": {"new": "Run this plan", "waiting": "Use this plan"}.get(editing.of, rerun),
        "starts": state.forecast is not None and not editing.missing,
        "not_yet": NOT_YET.get(editing.of, ""),
        "show": [str(each) for each in st.session_state.get(f"open-of-{editing.store.run_id}", ())],
    }


def _step(editing: Editing, index: int) -> dict[str, Any]:
    draft = editing.draft
    step, ids = draft.workflow.steps[index], draft.now.ids
    reads, origin = draft.workflow.reads(index), draft.origins[index]
    step_id = ids[index]
    given = {each: {"how": how.how, "text": text, "says": how.in_words} for each, text, how in draft.now.given}
    run = editing.run if editing.of == "ended" else None
    recorded = run.steps[step_id] if run is not None and 0 <= step_id < len(run.steps) else None
    return {
        "key": str(ids[index]),
        "number": index,
        "agent": step.agent,
        "instruction": step.instruction,
        "access": "all" if step.access_list == "all" else [str(ids[read]) for read in reads],
        "beyond": step.access_list != "all" and set(step.access_list) != set(reads),
        "before": None if origin is None else [str(read) for read in draft.original.reads(origin)],
        "given": given.get(step_id),
        "pins": recorded is not None and whole(recorded) and recorded.status != "written",
    }


def _placed(draft: Draft, fault: Fault) -> dict[str, Any]:
    key = None if fault.step is None else str(draft.now.ids[fault.step])
    return {"key": key, "field": fault.field, "message": fault.message, "untold": fault.code == UNTOLD}


def _changes(draft: Draft) -> list[str]:
    said = list(_compared(draft).sentences(draft.original, draft.workflow))
    if draft.now.given != draft.original_given:
        said += Overrides(outputs=draft.outputs).sentences or ["no output is given by a person any more"]
    return said or (["the text of the plan"] if draft.changed else [])


def _title(editing: Editing, draft: Draft) -> str:
    if editing.of == "new":
        shape = topology(draft.workflow) if draft.workflow.steps else "no steps"
        return f"A plan of your own · {shape}"
    changes, compared = _changes(draft), _compared(draft)
    if not changes:
        return "Nothing is changed yet"
    besides = len(changes) - len(compared.sentences(draft.original, draft.workflow))
    return f"{plural(compared.count + besides, 'change')}: {'; '.join(changes)}"


def _compared(draft: Draft) -> PlanChanges:
    return compare(draft.original, draft.workflow, draft.origins)


def _says(editing: Editing, forecast: RerunPreview | None) -> list[tuple[str, str]]:
    if forecast is None:
        return []
    if editing.missing:
        return [("warn", editing.missing)]
    runs, reused = [each.index for each in forecast.will_run], [each.index for each in forecast.will_reuse]
    if editing.of == "waiting":
        goes_on = ("runs", "‖ this run goes on with the plan as soon as somebody approves it")
        done = f"steps {_in_words(reused)} have run and stay"
        done = done if reused[1:] else f"step {_in_words(reused)} has run and stays"
        return [("reused", f"✓ {done}"), goes_on] if reused else [goes_on]
    if not runs:
        return [("reused", f"↺ {_in_words(reused)} reused: nothing to pay")]
    words = "will run" if editing.of == "new" else "runs again" if len(runs) == 1 else "run again"
    given = [each.index for each in forecast.will_reuse if each.given]
    others = [index for index in reused if index not in given]
    told = [f"{_in_words(of)} {how}" for of, how in ((others, "reused"), (given, "by a person")) if of]
    said = [
        ("", "Nothing is sent yet" if editing.of == "new" else ""),
        ("runs", f"↻ {_in_words(runs)} {words}"),
        ("warn", f"◆ {forecast.effects_again}" if forecast.effects_again else ""),
        ("reused", f"↺ {', '.join(told)}" if told else ""),
        ("", f"about {forecast.estimated_tokens:,} tokens"),
        ("", forecast.cost.in_line),
        ("", forecast.on_top),
    ]
    return [(kind, text) for kind, text in said if text]


def _in_words(steps: Sequence[int]) -> str:
    """Writes ``0, 1 and 2``; of many, what follows each other as ``4–39``."""
    return listed(list(map(str, steps))) if len(steps) < _MANY else numbers(steps)


# The plan in other forms, to download.


@st.dialog("Export the plan", width="small")
def export_dialog(editing: Editing, valid: Workflow | None) -> None:
    """Draws the forms. ``valid``: the workflow of the draft; None: it has faults.

    A draft with faults can be saved as a workflow file alone, which can keep it as it is.
    """
    draft = editing.draft
    *before, asked = editing.conversation
    plan = Plan(
        task=editing.task,
        workflow=draft.workflow,
        workers=editing.specs,
        source=f"{editing.source}, edited" if draft.changed and editing.of != "new" else editing.source,
        give_question=editing.give_question,
        has_images=any(not isinstance(turn.content, str) for turn in (*before, asked)),
        turns_before=tuple(before),
        imported=editing.imported,
        inner=() if draft.changed else editing.inner,
    )
    fault = "the plan has faults" if valid is None else None  # why there can be no script; None: there can
    if valid is not None:
        try:
            check(plan)
        except BadInput as error:
            fault = str(error)
    run_ids, browser = [] if editing.run is None else [editing.run.run_id], this_browser()

    def written(name: str, form: PlanFormat[str] | PlanFormat[bytes]) -> str | bytes:
        exported(run_ids, f"plan as {name}", browser)
        return form.write(plan)

    def draw(name: str, form: PlanFormat[str] | PlanFormat[bytes], blocked: bool) -> None:
        file = f"workflow-{name}{form.suffix}" if name in FRAMEWORKS else f"workflow{form.suffix}"
        how: dict[str, Any] = {"icon": "", "type": "tertiary", "disabled": blocked, "width": "stretch"}
        # It is written when it is asked for.
        download(form.title, partial(written, name, form), file, form.mime, f"export-{name}", **how)

    with st.container(gap=None, key="export-forms"):
        for name, form in PLAN_FORMATS.items():
            blocked = fault is not None if name in FRAMEWORKS else valid is None and name != "json"
            draw(name, form, blocked)
            if name == "svg":
                draw("png", PNG, blocked or too_large(plan))
        if valid is None:
            st.caption("This plan has faults, so only a workflow file can hold it.")
        elif fault is not None:
            why, _, other_workers = fault.partition("; export with ")
            more = " On the command line, `export --pool FILE` takes other workers." if other_workers else ""
            st.caption(f"No script: {inert(why)}.{more}")

"""Run: a task in, its workflow drawn and run live, edited and re-run. The main job."""

import streamlit as st

from conductor_core.engine.pool import reopen_pool
from conductor_core.engine.request import RunRequest
from conductor_core.engine.rerun import preview
from conductor_core.errors import InspectorError, RunUnreadable
from conductor_core.trace import RunTrace
from pages.components import places
from pages.components.damage import damage, notes
from pages.components.lineage import lineage
from pages.components.live_workflow.component import Intent, live_workflow
from pages.components.plan_editor import open_editor, plan_editor
from pages.components.session import current
from pages.components.task_box import task_box

LIVE = "live"
EDITING = "editing-run"
RERUN_ERROR = "rerun-error"


def show() -> None:
    run_id = st.query_params.get("run")
    trace, fault = _read(run_id) if run_id else (None, None)
    notes()
    task_box(trace)
    if trace is None:
        if fault is not None:
            damage(fault)
        live_workflow(None, key=LIVE)
        return
    if fault is not None:
        live_workflow(trace.run_id, key=LIVE)
        damage(fault)
        return
    if message := st.session_state.pop(RERUN_ERROR, None):
        st.error(message, icon=":material/error:")
    lineage(trace)
    # The editor stands above the graph but is drawn after it: the graph says that it shall open, and at which step.
    editor_at = st.container()
    _take_intent(trace, live_workflow(trace.run_id, key=LIVE, editable=True, go_on=_go_on_label(trace)).intent)
    if _editable(trace) and st.session_state.get(EDITING) == trace.run_id:
        with editor_at:
            _editor(trace)


def _editable(trace: RunTrace) -> bool:
    """A plan can be changed once it is whole and nothing runs on it."""
    return trace.ended and trace.root.workflow is not None


def _read(run_id: str) -> tuple[RunTrace | None, RunUnreadable | None]:
    """The run, and why that is not all of it."""
    try:
        return current().store.trace(run_id)[0], None
    except RunUnreadable as fault:
        return fault.trace, fault
    except InspectorError as error:
        st.error(str(error), icon=":material/error:")
        return None, None


def _take_intent(trace: RunTrace, intent: Intent | None) -> None:
    """``ended`` needs no handling: the rerun that it brings draws what ended runs have."""
    if intent is None or intent.run_id != trace.run_id:
        return
    if intent.kind == "edit":
        st.session_state[EDITING] = trace.run_id
        open_editor(trace, intent.path)
    elif intent.kind == "workers":
        st.switch_page(places.WORKERS)
    elif intent.kind == "go-on" and _go_on_label(trace) is not None:
        _begin(trace, _go_on(trace))


def _go_on_label(trace: RunTrace) -> str | None:
    """What a run that stopped or was only planned offers. Finished steps are never paid again."""
    if not trace.ended or trace.status == "completed" or trace.root.workflow is None:
        return None
    if trace.status == "planned":
        return "Run this plan"
    return "Resume" if any(step.answered for step in trace.steps) else "Run again"


def _go_on(trace: RunTrace) -> RunRequest:
    if trace.status == "planned":
        return RunRequest.rerun(trace, by="page")
    return RunRequest.resume(trace, by="page")


def _editor(trace: RunTrace) -> None:
    try:
        pool = reopen_pool(trace.pool, current().settings, seed=trace.seed)
    except InspectorError as error:
        st.session_state[RERUN_ERROR] = str(error)
        _close_editor()
        return
    plan_editor(
        trace,
        preview=lambda workflow, origins: preview(trace, workflow, pool, origins=origins),
        start=lambda workflow, origins: _begin(trace, RunRequest.rerun(trace, workflow, by="page", origins=origins)),
        close=_close_editor,
    )


def _close_editor() -> None:
    st.session_state.pop(EDITING, None)
    st.rerun()


def _begin(trace: RunTrace, request: RunRequest) -> None:
    """Starts ``request``, which takes up ``trace``, with the pool and the Conductor that ``trace`` had."""
    conductor = trace.conductor.name if trace.conductor is not None else None
    try:
        run_id = current().host.start(request, conductor, trace.pool)
    except InspectorError as error:
        st.session_state[RERUN_ERROR] = str(error)
    else:
        st.session_state.pop(EDITING, None)
        st.query_params["run"] = run_id
    st.rerun()


show()

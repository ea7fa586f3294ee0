"""Run: a task in, its workflow drawn and run live, edited and re-run. The main job."""

from functools import partial

import streamlit as st

from conductor_core.engine.pool import Pool, reopen_pool
from conductor_core.engine.request import RunRequest
from conductor_core.engine.rerun import RerunPreview, preview
from conductor_core.errors import InspectorError
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import Workflow
from pages.components.charts import critical_path_s, timeline
from pages.components.live_workflow.component import live_workflow
from pages.components.plan_editor import plan_editor
from pages.components.session import current
from pages.components.task_box import TASK, task_box
from pages.components.words import inert, seconds

LIVE = "live"
EDITING = "editing-run"
RERUN_ERROR = "rerun-error"


def show() -> None:
    run_id = st.query_params.get("run")
    trace = _read(run_id) if run_id else None
    if trace is not None and not st.session_state.get(TASK):
        st.session_state[TASK] = trace.task
    task_box()
    if trace is None:
        live_workflow(None, key=LIVE)
        return
    _way_here(trace)
    if _editable(trace) and st.session_state.get(EDITING) == trace.run_id:
        _editor(trace)
    _live(trace)
    if trace.ended and trace.steps and not trace.plan_only:
        _timeline(trace)


def _editable(trace: RunTrace) -> bool:
    """A plan can be changed once it is whole and nothing runs on it."""
    return trace.ended and trace.root.workflow is not None


def _read(run_id: str) -> RunTrace | None:
    try:
        return current().store.trace(run_id)[0]
    except InspectorError as error:
        st.error(str(error), icon=":material/error:")
        return None


def _live(trace: RunTrace) -> None:
    """The run itself. Its intent ``ended`` needs no handling: the rerun that it brings draws what ended runs have."""
    intent = live_workflow(trace.run_id, key=LIVE, editable=True).intent
    if intent is not None and intent.kind == "edit" and st.session_state.get(EDITING) != trace.run_id:
        st.session_state[EDITING] = trace.run_id
        st.rerun()


def _way_here(trace: RunTrace) -> None:
    """Where this run comes from, and how to take up one that stopped."""
    if trace.parent_run_id:
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.caption("Takes up" if trace.resumed else "Re-run of", width="content")
            st.page_link(
                "pages/run.py",
                label=inert(trace.parent_run_id),
                query_params={"run": trace.parent_run_id},
                width="content",
            )
    if trace.status in ("interrupted", "cancelled", "failed") and trace.root.workflow is not None:
        finished = sum(step.answered for step in trace.steps)
        label = f"Resume: {finished} finished steps are not paid again" if finished else "Run again"
        if st.button(label, icon=":material/resume:", key="resume"):
            _begin(trace, RunRequest.resume(trace, by="page"))
    if message := st.session_state.pop(RERUN_ERROR, None):
        st.error(message, icon=":material/error:")


def _editor(trace: RunTrace) -> None:
    pool = reopen_pool(trace.pool, current().settings, seed=trace.seed)
    plan_editor(
        trace,
        preview=partial(_preview, trace, pool),
        start=lambda workflow: _begin(trace, RunRequest.rerun(trace, workflow, by="page")),
        close=_close_editor,
    )


def _preview(trace: RunTrace, pool: Pool, workflow: Workflow) -> RerunPreview:
    return preview(trace, workflow, pool, current().settings)


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


def _timeline(trace: RunTrace) -> None:
    with st.container(border=True, key="timeline"):
        st.markdown(f"**Timeline** · critical path {critical_path_s(trace):.1f} s of {seconds(trace.duration_ms)}")
        st.plotly_chart(
            timeline(trace, dark=st.context.theme.type == "dark"),
            key="timeline-chart",
            config={"displayModeBar": False},
            alt="Timeline of the steps",
        )


show()

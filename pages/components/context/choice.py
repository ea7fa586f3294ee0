"""Which run the Context page shows: a picker of recent runs beside the title, and the page without a run."""

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.run.request import REPLAY_PURPOSE
from pages.components.app import address, places
from pages.components.app.session import current
from pages.components.app.widgets import chosen, worded
from pages.components.run_list.rows import by_task
from pages.components.run_list.table import OFFERED, known, table
from pages.components.style.formats import RUN_STATUSES, ago, inert, plural
from storage import RunSummary

MOST_RUNS = 30
PICKED = "context-run"


def choose_run() -> str | None:
    """Draws the title with the picker. Returns the id of the run in the address; None: there is none."""
    run_id = address.read("run")
    with st.container(horizontal=True, vertical_alignment="center", key="context-choice"):
        st.title("Context", anchor=False, width="content")
        try:
            runs = current().store.runs(limit=MOST_RUNS, without=REPLAY_PURPOSE, answers=run_id is None)
            recent = {run.run_id: run for run in runs}
        except StoreError as error:
            st.error(inert(str(error)), icon=":material/error:")
            return run_id
        ids = [*([run_id] if run_id and run_id not in recent else []), *recent]
        if ids:
            st.session_state[PICKED] = run_id
            st.selectbox(
                "Run",
                ids,
                format_func=worded(PICKED, {each: _label(each, recent.get(each)) for each in ids}),
                key=PICKED,
                placeholder="Choose a run",
                label_visibility="collapsed",
                on_change=_go,
            )
        if run_id:
            label = "Open the run"
            st.page_link(places.RUN, label=label, icon=":material/play_circle:", query_params={"run": run_id})
    if run_id is None:
        _offer(runs)
    return run_id


def _go() -> None:
    address.write("run", chosen(PICKED))


def _label(run_id: str, run: RunSummary | None) -> str:
    if run is None:
        return f"run {run_id}"
    task = " ".join(run.task.split())[:80] or "no task"
    facts = f"{plural(run.steps, 'step')} · {ago(run.created_at_utc)} · {run_id[-6:]}"
    return f"{RUN_STATUSES[run.status][0]} {task} · {facts}"


def _offer(recent: list[RunSummary]) -> None:
    """Draws the page without a run: what it is for, and the newest runs."""
    if recent:
        st.caption("Choose a run. You see who saw the task and each output, and what each prompt was made of.")
        opened = ("context-of-", lambda run_id: address.write("run", run_id))
        table(by_task(recent, known(recent)), OFFERED, opened=opened)
        return
    with st.container(border=True, key="context-empty"):
        st.markdown("**Where does the context go?** This page shows for one run who saw the task and each output.")
        st.markdown("No runs yet. Every run can be opened here.")
        st.page_link(places.RUN, label="Start one", icon=":material/play_circle:")

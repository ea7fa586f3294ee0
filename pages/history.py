"""History: every run in the database, newest first; open one."""

import streamlit as st

from conductor_core.errors import StoreError
from pages.components.session import current
from pages.components.words import STATUS_WORDS, ago, seconds, usd
from storage import RunSummary

PAGE_ROWS = 50
CURSORS = "history-cursors"


def _filters() -> tuple[str | None, str | None]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        search = st.text_input(
            "Search tasks",
            placeholder="words in the task",
            icon=":material/search:",
            key="history-search",
            on_change=_first_page,
        )
        status = st.selectbox(
            "Status",
            [None, *STATUS_WORDS],
            format_func=lambda each: "any" if each is None else STATUS_WORDS[each],
            key="history-status",
            width=220,
            on_change=_first_page,
        )
    return (search or "").strip() or None, status


def _first_page() -> None:
    st.session_state[CURSORS] = []


def _table(runs: list[RunSummary]) -> None:
    chosen = st.dataframe(
        {
            "Run": [f"/run?run={run.run_id}" for run in runs],
            "Status": [STATUS_WORDS[run.status] for run in runs],
            "Task": [" ".join(run.task.split())[:200] for run in runs],
            "Topology": [run.topology or "—" for run in runs],
            "Agents": [", ".join(run.agents) for run in runs],
            "Steps": [_steps(run) for run in runs],
            "Tokens": [run.usage.total_tokens for run in runs],
            "Cost": [_cost(run) for run in runs],
            "Duration": [seconds(run.duration_ms) for run in runs],
            "When": [ago(run.created_at_utc) for run in runs],
            "Re-run of": [f"/run?run={run.parent_run_id}" if run.parent_run_id else None for run in runs],
        },
        hide_index=True,
        height="content",
        on_select="rerun",
        selection_mode="single-row",
        key=f"history-table-{len(st.session_state[CURSORS])}",
        column_config={
            "Run": st.column_config.LinkColumn(display_text="open", width=60),
            "Re-run of": st.column_config.LinkColumn(display_text="open", width=80),
            "Task": st.column_config.TextColumn(width="large"),
            "Tokens": st.column_config.NumberColumn(format="localized"),
        },
    )
    if chosen["selection"]["rows"]:
        st.switch_page("pages/run.py", query_params={"run": runs[chosen["selection"]["rows"][0]].run_id})


def _steps(run: RunSummary) -> str:
    parts = [f"{run.steps_completed} run"] + ([f"{run.steps_reused} reused"] if run.steps_reused else [])
    return " · ".join(parts + ([f"{run.steps_failed} failed"] if run.steps_failed else []))


def _cost(run: RunSummary) -> str:
    return f"{usd(run.cost_usd)}{' simulated' if run.simulated else ''}"


def _paging(runs: list[RunSummary]) -> None:
    cursors: list[int] = st.session_state[CURSORS]
    with st.container(horizontal=True):
        if st.button("Newer", icon=":material/chevron_left:", disabled=not cursors):
            cursors.pop()
            st.rerun()
        if st.button("Older", icon=":material/chevron_right:", disabled=len(runs) <= PAGE_ROWS):
            cursors.append(runs[PAGE_ROWS - 1].sequence)
            st.rerun()


def show() -> None:
    st.title("History", anchor=False)
    cursors: list[int] = st.session_state.setdefault(CURSORS, [])
    search, status = _filters()
    try:
        runs = current().store.runs(
            limit=PAGE_ROWS + 1, before=cursors[-1] if cursors else None, search=search, status=status
        )
    except StoreError as error:
        st.error(str(error), icon=":material/error:")
        return
    if not runs:
        _empty(filtered=bool(search or status))
        return
    _table(runs[:PAGE_ROWS])
    _paging(runs)


def _empty(filtered: bool) -> None:
    with st.container(border=True, horizontal_alignment="center"):
        if filtered:
            st.markdown("**No run matches.** Take a word out of the search, or choose another status.")
        else:
            st.markdown("**No runs yet.** Every run is kept here, with all that its steps were told and answered.")
            st.page_link("pages/run.py", label="Start one", icon=":material/play_circle:")


show()

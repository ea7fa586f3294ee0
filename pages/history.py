"""History: every run in the database, newest first; open one."""

from html import escape

import streamlit as st

from conductor_core.errors import StoreError
from pages.components import places
from pages.components.damage import notes
from pages.components.session import current
from pages.components.words import STATUS_WORDS, ago, inert, right_to_left, seconds, usd
from storage import RunSummary

PAGE_ROWS = 30
CURSORS = "history-cursors"
_HEAD = ("Status", "Shape", "Steps", "Agents", "Tokens", "Cost", "Time", "When")
_NUMBERS = ("Steps", "Tokens", "Cost", "Time", "When")


def _filters() -> tuple[str | None, str | None]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        search = st.text_input(
            "Search tasks",
            placeholder="Words in the task",
            icon=":material/search:",
            key="history-search",
            label_visibility="collapsed",
            on_change=_first_page,
        )
        status = st.selectbox(
            "Status",
            [None, *STATUS_WORDS],
            format_func=lambda each: "any status" if each is None else STATUS_WORDS[each],
            key="history-status",
            width=220,
            label_visibility="collapsed",
            on_change=_first_page,
        )
    return (search or "").strip() or None, status


def _first_page() -> None:
    st.session_state[CURSORS] = []


def _table(runs: list[RunSummary]) -> None:
    """A row per run: its task is the link that opens it, the rest stands in columns."""
    with st.container(key="runs"):
        with st.container(key="run-row-head", horizontal=True):
            st.html('<div class="cells head">Task</div>')
            heads = "".join(f'<span class="{_kind(name)}">{name}</span>' for name in _HEAD)
            st.html(f'<div class="cells head runs">{heads}</div>', width="content")
        for run in runs:
            # A page link takes no direction: its row is named after the task's.
            way = "-rtl" if right_to_left(run.task) else ""
            with st.container(key=f"run-row-{run.run_id}{way}", horizontal=True):
                st.page_link(
                    places.RUN, label=_task(run), query_params={"run": run.run_id}, width="stretch", help=_more(run)
                )
                st.html(_cells(run), width="content")


def _kind(column: str) -> str:
    return "number" if column in _NUMBERS else "ellipsis"


def _task(run: RunSummary) -> str:
    task = inert(run.task[:300]) or "no task"
    return f"↻ {task}" if run.parent_run_id else task


def _more(run: RunSummary) -> str:
    """What the row has no room for."""
    if run.damage:
        return inert(f"Run {run.run_id}") + "  \n" + inert(run.damage)
    lines = [f"Run {run.run_id}, {run.created_at_utc:%Y-%m-%d %H:%M} UTC, started by {run.by}"]
    if run.parent_run_id:
        lines.append(f"Re-run of {run.parent_run_id}")
    lines.append(f"Conductor: {run.conductor or 'none'}; pool: {run.pool}")
    if run.error:
        lines.append(run.error)
    return "  \n".join(inert(line) for line in lines)


def _cells(run: RunSummary) -> str:
    """The columns after the task, as HTML; every text is escaped."""
    agents = ", ".join(run.agents)
    cells = {
        "Status": f'<span class="pill {run.status}">{STATUS_WORDS[run.status]}</span>',
        "Shape": escape(run.topology or "—"),
        "Steps": _steps(run),
        "Agents": f'<span title="{escape(agents)}">{escape(agents) or "—"}</span>',
        "Tokens": f"{run.usage.total_tokens:,}",
        "Cost": _cost(run),
        "Time": seconds(run.duration_ms),
        "When": ago(run.created_at_utc),
    }
    # The names stand in the head; where there is no room for columns, each before its cell.
    inner = "".join(f'<span class="{_kind(name)}" data-name="{name}">{cells[name]}</span>' for name in _HEAD)
    return f'<div class="cells runs">{inner}</div>'


def _steps(run: RunSummary) -> str:
    """How many, and how many of them were reused or failed."""
    called = f"{run.steps_completed} called, {run.steps_reused} reused"
    said = f"{called}, {run.steps_failed} failed or without a whole answer, of {run.steps}"
    parts = [str(run.steps)]
    if run.steps_reused:
        parts.append(f"↺{run.steps_reused}")
    if run.steps_failed:
        parts.append(f"✕{run.steps_failed}")
    return f'<span title="{said}">{" ".join(parts)}</span>'


def _cost(run: RunSummary) -> str:
    if run.simulated and run.cost_usd == 0:
        return f'<span class="pill simulated" title="{usd(run.cost_usd)}: no real worker answered">simulated</span>'
    return usd(run.cost_usd)


def _paging(more: bool) -> None:
    cursors: list[int] = st.session_state[CURSORS]
    if not cursors and not more:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Newer", key="newer", icon=":material/chevron_left:", disabled=not cursors, on_click=_newer)
        st.caption(f"page {len(cursors) + 1}", width="content")
        st.button("Older", key="older", icon=":material/chevron_right:", disabled=not more, on_click=_older)


def _newer() -> None:
    st.session_state[CURSORS].pop()


def _older() -> None:
    st.session_state[CURSORS].append(st.session_state["history-last"])


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
    shown = runs[:PAGE_ROWS]
    notes(shown)
    if not runs:
        _empty(filtered=bool(search or status))
        return
    st.session_state["history-last"] = shown[-1].sequence
    _table(shown)
    _paging(more=len(runs) > PAGE_ROWS)


def _empty(filtered: bool) -> None:
    with st.container(border=True, horizontal_alignment="center"):
        if filtered:
            st.markdown("**No run matches.** Take a word out of the search, or choose another status.")
        else:
            st.markdown("**No runs yet.** Every run is kept here, with all that its steps were told and answered.")
            st.page_link(places.RUN, label="Start one", icon=":material/play_circle:")


show()

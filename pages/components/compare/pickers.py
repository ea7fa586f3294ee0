"""The two choices of runs at the head of the Compare page."""

import streamlit as st

from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import RunTrace
from pages.components.app import address
from pages.components.app.session import current
from pages.components.app.widgets import chosen, worded
from pages.components.style.formats import ago, run_status
from storage import RunSummary

NAMES = ("a", "b")
SIDES = {"a": "A before", "b": "B after"}
MOST_OFFERED = 100
_LONGEST_TASK = 48


def pickers(runs: dict[str, str | None], traces: dict[str, RunTrace | None]) -> None:
    """Draws a choice for run A, the one before, and for run B, the one after, and what exchanges them.

    Args:
        runs: the run's id by ``a`` and ``b``, as the address has it. traces: the run itself, where it can be read.
    """
    offered = {
        run.run_id: _summary_label(run) for run in current().store.runs(limit=MOST_OFFERED, without=REPLAY_PURPOSE)
    }
    for trace in traces.values():
        if trace is not None and trace.run_id not in offered:
            offered[trace.run_id] = _label(trace.task, trace.status, ago(trace.created_at_utc), trace.run_id)
    for name in NAMES:
        shown = traces[name]
        key = f"compare-{name}"
        # The address is the truth: whoever comes here by a link sees its runs in the choices.
        st.session_state[key] = None if shown is None else shown.run_id
        with st.container(key=f"compare-pick-{name}", horizontal=True, vertical_alignment="center", gap="xsmall"):
            side = SIDES[name]
            st.html(f'<span class="pill side-{name}">{side}</span>', width="content")
            st.selectbox(
                f"Run {side}",
                list(offered),
                index=None,
                format_func=worded(key, offered),
                placeholder="Choose a run, or type words of its task",
                key=key,
                label_visibility="collapsed",
                on_change=_chosen,
                args=(name,),
            )
        if name == "a":
            ready = all(runs.values())
            help_ = "Exchange A and B"
            with st.container(key="icon-only-swap", width="content"):
                swap = ":material/swap_horiz:"
                st.button("Swap", key="swap", icon=swap, help=help_, disabled=not ready, on_click=_swap, args=(runs,))


def _chosen(name: str) -> None:
    address.write(name, chosen(f"compare-{name}"))


def _swap(runs: dict[str, str | None]) -> None:
    compare(runs["b"] or "", runs["a"] or "")


def compare(a: str, b: str) -> None:
    """Shows these two runs. For buttons: a link to the page itself would leave the browser's address as it was."""
    for name, run_id in (("a", a), ("b", b), ("more", None)):
        address.write(name, run_id)


def _summary_label(run: RunSummary) -> str:
    return _label(run.task, run.status, ago(run.created_at_utc), run.run_id, rerun=run.parent_run_id is not None)


def _label(task: str, status: str, when: str, run_id: str, *, rerun: bool = False) -> str:
    short = " ".join(task.split())
    short = short if len(short) <= _LONGEST_TASK else f"{short[: _LONGEST_TASK - 1]}…"
    # First what tells two runs of one task apart: the field cuts the rest.
    return f"{'↻ ' if rerun else ''}{when} · {run_status(status)} · {run_id[-6:]} · {short or 'no task'}"

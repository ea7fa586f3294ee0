"""The tree of runs: which run was made from which, and what was edited between them."""

from collections.abc import Callable
from html import escape

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.run.request import REPLAY_PURPOSE
from pages.components.app import address, places
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.run_list.rows import branches
from pages.components.run_list.table import guide_html
from pages.components.style.formats import ago, inert, plural, run_status, seconds
from storage import RunSummary
from storage.records import ERASED

MOST = 60
"""Runs of a tree that are shown, the newest: of each, the record is read."""


def tree_words(run_id: str) -> str:
    """Returns ``Tree of 3 runs``; empty: the run has no relatives, or they cannot be read."""
    try:
        count = len(current().store.runs(limit=MOST + 1, tree=run_id, without=REPLAY_PURPOSE))
    except StoreError:
        return ""  # the lines beside it say what is wrong
    if count < 2:
        return ""
    return f"Tree of {plural(count, 'run')}" if count <= MOST else f"Tree of over {MOST} runs"


@st.dialog("Tree of runs", width="large", icon=":material/account_tree:")
def tree_dialog(run_id: str) -> None:
    def opened(chosen: str) -> None:
        address.write("run", chosen)
        st.rerun()

    tree(run_id, opened)
    st.page_link(places.HISTORY, label="Show in History", query_params={"tree": run_id}, icon=":material/history:")


def tree(run_id: str, opened: Callable[[str], None] | None = None) -> None:
    """Draws the tree of ``run_id``: a line per run, with what was edited and its answer.

    Args:
        opened: called with the run that a person chooses; None: the choices are links to the Run page.
    """
    found = current().store.runs(limit=MOST, tree=run_id, without=REPLAY_PURPOSE, answers=True)
    if not found:
        st.markdown(f"Unknown run {inert(run_id)}.")
        return
    st.caption(
        f"{plural(len(found), 'run')}{', the newest' if len(found) == MOST else ''} · {inert(found[-1].task[:200])}"
    )
    viewed([run.run_id for run in found if run.status != ERASED], "tree of runs")
    here = next((run for run in found if run.run_id == run_id), None)
    with st.container(key="tree"):
        for number, (run, guide) in enumerate(branches(found)):
            key = "tree-row-here" if run.run_id == run_id else f"tree-row-{number}"
            with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
                if guide:
                    st.html(guide_html(guide), width="content")
                _row(run, here, opened)


def _row(run: RunSummary, here: RunSummary | None, opened: Callable[[str], None] | None) -> None:
    label = inert(f"{run_status(run.status)} {ago(run.created_at_utc)}, {seconds(run.duration_ms)}")
    help_text = inert(f"Run {run.run_id}")
    if opened is not None and here is not None and run.run_id == here.run_id:
        st.html(f"<b>{escape(run_status(run.status))} {ago(run.created_at_utc)}, this run</b>", width="content")
    elif opened is None:
        st.page_link(places.RUN, label=label, query_params={"run": run.run_id}, help=help_text)
    elif st.button(label, key=f"tree-{run.run_id}", type="tertiary", help=help_text):
        opened(run.run_id)
    answer = "" if run.conclusion is None else run.conclusion.text
    cells = "".join(
        f'<span class="ellipsis" dir="auto" title="{escape(each)}">{escape(each)}</span>'
        for each in (run.named or run.damage or "", answer)
    )
    st.html(f'<div class="tree-said">{cells}</div>', width="stretch")
    if here is not None and run.run_id != here.run_id:
        older, newer = sorted((here, run), key=lambda each: each.sequence)
        pair = {"a": older.run_id, "b": newer.run_id}
        st.page_link(places.COMPARE, label="Compare", icon=":material/compare_arrows:", query_params=pair)

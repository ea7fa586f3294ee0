"""The components of the Compare page: two compared runs, and what hands a comparison over.

They share their scripts with the live workflow: one graph, one timeline, one dialog.
"""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from conductor_core.analysis.compare import compare_rounds, compare_runs, kept_answer, opened_rounds
from conductor_core.errors import StoreError
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label, round_name
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import across, button, choose_run, open_link, segments
from pages.components.compare.view import HEADS, compared_view, run_rows
from pages.components.run_list.table import branches, mark_words, run_label
from pages.components.style.formats import ago, html, inert, instruction_markdown, plural, run_status, seconds
from storage import RunSummary
from storage.records import ERASED

# The room that the answers and the graph take, so that nothing below jumps when the script is there.
_RESERVED = '<div class="reserved" style="min-height: 560px"></div>'
_component = st.components.v2.component(
    "conductor-inspector.compared", html=_RESERVED, js="compare.js", isolate_styles=True
)

_share = st.components.v2.component(
    "conductor-inspector.share_comparison",
    html='<div class="reserved" style="width: 71px; height: 34px"></div>',
    js="share_comparison.js",
    isolate_styles=True,
)


def compared_runs(view: dict[str, Any], *, key: str) -> None:
    _component(key=key, data=view, width="stretch", height="content")


def share(run_ids: Sequence[str], *, ended: bool) -> None:
    """Draws a button that opens to the dialog that saves the comparison as a file. ``ended``: whether all runs have."""
    with st.container(key="share-comparison", width="content"):
        _share(key="share", data={"run_ids": list(run_ids), "ended": ended}, width="content", height="content")


TEMPLATE = "compare/compare"
SIDES = {"a": "A before", "b": "B after"}
_MOST_OFFERED = 100


def pickers(runs: dict[str, str | None], traces: dict[str, RunTrace | None]) -> None:
    """Draws a choice for run A, the one before, and for run B, the one after, and what exchanges them.

    ``runs``: as the address has them. ``traces``: those that can be read.
    """
    known: list[RunSummary | RunTrace] = [*current().store.runs(limit=_MOST_OFFERED, without=UNLISTED_PURPOSES)]
    known += [trace for trace in traces.values() if trace is not None]
    judged = current().store.judgements.latest({run.run_id for run in known})
    facts = {run.run_id: mark_words(judged.get(run.run_id, ())) for run in known}
    offered = {run.run_id: run_label(run, run_status(run.status), *facts[run.run_id]) for run in known}
    for name, side in SIDES.items():
        shown = traces[name]
        with across(f"compare-pick-{name}", gap="xsmall"):
            st.html(html(TEMPLATE, "side", name=name, words=side), width="content")
            run_id = None if shown is None else shown.run_id
            says = "Choose a run, or type words of its task"
            choose_run(f"Run {side}", offered, f"compare-{name}", name, run_id, says, index=None)
        if name == "a":
            with st.container(key="icon-only-swap", width="content"):
                pair, off, says = (runs["b"] or "", runs["a"] or ""), not all(runs.values()), "Exchange A and B"
                button("Swap", "swap", compare, *pair, icon="swap_horiz", help=says, disabled=off)


def compare(a: str, b: str) -> None:
    """Shows these two runs. For buttons: a link to the page itself would leave the browser's address as it was."""
    for name, run_id in (("a", a), ("b", b), ("more", None)):
        places.write(name, run_id)


PARAMETER = "round"
_CHOICE = "compared-round"


def rounds_head(trace: RunTrace, named: str | None) -> None:
    """Draws the way back to the run and, where it has several rounds, the choice of the two that are compared.

    ``named``: the round that the address names, by the step that opened it.
    """
    open_link(trace.run_id, f"Run {inert(trace.run_id)}")
    found = opened_rounds(trace)
    if len(found) < 2:
        return
    # The address is the truth, as for two runs.
    st.session_state[_CHOICE] = label(_chosen_round(trace, named))
    words = {
        label(path): f"{round_name(path[:-1]).capitalize()} → {round_name(path)} (step {label(path)})" for path in found
    }

    def go() -> None:
        places.write(PARAMETER, st.session_state[_CHOICE])

    segments("Rounds", words, _CHOICE, format_func=words.__getitem__, required=True, on_change=go)


def rounds(trace: RunTrace, named: str | None) -> None:
    if not opened_rounds(trace):
        st.info(
            "This run has one round. It gets more where a step's agent is the Conductor itself, which then writes a "
            "plan of its own. *Depth* in the settings of a run allows it.",
            icon=":material/info:",
        )
        return
    path = _chosen_round(trace, named)
    opener = trace.step_at(path)
    st.caption(f"Step {label(path)} opened {round_name(path)}: {instruction_markdown(opener.instruction, 300)}")
    if kept_answer(trace, path):
        said = "The Conductor wrote three empty lists in this round: the answer stays as it was."
        st.info(said, icon=":material/info:")
        return
    compared_runs(compared_view(compare_rounds(trace, path)), key="compared")


def _chosen_round(trace: RunTrace, named: str | None) -> Path:
    found = opened_rounds(trace)
    return next((path for path in found if label(path) == named), found[0])


def table(traces: Sequence[RunTrace]) -> None:
    with st.container(key="compared-many"):
        with st.container(key="compared-line-head", horizontal=True):
            st.html(html(TEMPLATE, "name_head"))
            st.html(html(TEMPLATE, "head", names=HEADS), width="content")
            st.html(html(TEMPLATE, "link", words=""), width="content")
        compared = [compare_runs(traces[0], trace) for trace in traces[1:]]
        for place, row in enumerate(run_rows(traces, compared)):
            with across(f"compared-line-{place}"):
                with st.container(key=f"compared-answer-{place}", gap=None):
                    label, run_id = f"**{row['name']}** · {inert(row['said'][:160])}", row["run_id"]
                    st.page_link(places.RUN, label=label, query_params={"run": run_id}, help=inert(f"Run {run_id}"))
                    st.caption(" · ".join(filter(None, (row["mark"], inert(row["task"][:160])))))
                st.html(html(TEMPLATE, "cells", row=row), width="content")
                with st.container(key=f"compared-link-{place}", width="content"):
                    if place == 0:
                        st.html(html(TEMPLATE, "link", words="the others are compared with it"))
                    else:
                        button(f"A with {row['name']}", f"with-{run_id}", compare, traces[0].run_id, run_id)


MOST = 60
"""Runs of a tree that are shown, the newest: of each, the record is read."""


def tree_words(run_id: str) -> str:
    """Returns ``Tree of 3 runs``; empty: the run has no relatives, or they cannot be read."""
    try:
        count = len(current().store.runs(limit=MOST + 1, tree=run_id, without=UNLISTED_PURPOSES))
    except StoreError:
        return ""  # the lines beside it say what is wrong
    if count < 2:
        return ""
    return f"Tree of {plural(count, 'run')}" if count <= MOST else f"Tree of over {MOST} runs"


@st.dialog("Tree of runs", width="large", icon=":material/account_tree:")
def tree_dialog(run_id: str) -> None:
    def opened(chosen: str) -> None:
        places.write("run", chosen)
        st.rerun()

    tree(run_id, opened)
    st.page_link(places.HISTORY, label="Show in History", query_params={"tree": run_id}, icon=":material/history:")


def tree(run_id: str, opened: Callable[[str], None] | None = None) -> None:
    """Draws the tree of ``run_id``: a line per run, with what was edited and its answer.

    Args:
        opened: called with the run that a person chooses; None: the choices are links to the Run page.
    """
    found = current().store.runs(limit=MOST, tree=run_id, without=UNLISTED_PURPOSES, answers=True)
    if not found:
        st.markdown(f"Unknown run {inert(run_id)}.")
        return
    newest = ", the newest" if len(found) == MOST else ""
    st.caption(f"{plural(len(found), 'run')}{newest} · {inert(found[-1].task[:200])}")
    viewed([run.run_id for run in found if run.status != ERASED], "tree of runs")
    here = next((run for run in found if run.run_id == run_id), None)
    with st.container(key="tree"):
        for number, (run, guide) in enumerate(branches(found)):
            key = "tree-row-here" if run.run_id == run_id else f"tree-row-{number}"
            with across(key, gap="small"):
                if guide:
                    st.html(html("run_list/run_list", "guide", parts=guide), width="content")
                _tree_row(run, here, opened)


def _tree_row(run: RunSummary, here: RunSummary | None, opened: Callable[[str], None] | None) -> None:
    label = inert(f"{run_status(run.status)} {ago(run.created_at_utc)}, {seconds(run.duration_ms)}")
    help_text = inert(f"Run {run.run_id}")
    if opened is not None and here is not None and run.run_id == here.run_id:
        st.html(html(TEMPLATE, "here", run=run), width="content")
    elif opened is None:
        st.page_link(places.RUN, label=label, query_params={"run": run.run_id}, help=help_text)
    elif button(label, f"tree-{run.run_id}", type="tertiary", help=help_text):
        opened(run.run_id)
    answer = "" if run.conclusion is None else run.conclusion.text
    st.html(html(TEMPLATE, "said", texts=(run.named or run.damage or "", answer)), width="stretch")
    if here is not None and run.run_id != here.run_id:
        older, newer = sorted((here, run), key=lambda each: each.sequence)
        pair = {"a": older.run_id, "b": newer.run_id}
        st.page_link(places.COMPARE, label="Compare", icon=":material/compare_arrows:", query_params=pair)

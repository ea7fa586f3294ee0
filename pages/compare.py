"""Compare: what two runs have different and why, `?a=RUN&b=RUN`; with `&more=RUN,RUN` a table of all of them.

`?rounds=RUN` compares the rounds of one run, `&round=3` the one that step 3 opened.
"""

import json

import streamlit as st

from conductor_core.analysis.compare import compare_runs, comparison_document
from conductor_core.errors import InspectorError, StoreError
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.share import MOST_RUNS
from conductor_core.run.trace import RunTrace, RunUnreadable
from pages.components.app import places
from pages.components.app.session import current, exported, this_browser, viewed
from pages.components.app.widgets import across, button, download, fault_box, start_link
from pages.components.compare import page
from pages.components.compare.view import compared_view
from pages.components.run_list.table import OFFERED, known, pairs
from pages.components.run_list.table import table as run_table
from pages.components.tour.drive import arrive, tour_strip

MOST_READ = 100


def show() -> None:
    of_rounds = places.read("rounds")
    if of_rounds:
        _rounds(of_rounds, places.read(page.PARAMETER))
        return
    runs = {name: places.read(name) for name in page.SIDES}
    more = [run_id for run_id in (places.read("more") or "").split(",") if run_id]
    faults: list[InspectorError | str] = []
    traces = {name: _read(run_id, faults) if run_id else None for name, run_id in runs.items()}
    stop, second = arrive(traces["b"], "compare"), traces["b"]
    with across("compare-head"):
        st.title("Compare", anchor=False, width="content")
        try:
            if more:
                button("Only A and B", "only-two", places.write, "more", None)
            else:
                page.pickers(runs, traces)
        except StoreError as error:
            faults.append(error)
        shown = [trace for trace in traces.values() if trace is not None]
        others = [trace for run_id in more[: MOST_RUNS - 2] if (trace := _read(run_id, faults)) is not None]
        if seen := [*shown, *others]:
            viewed([trace.run_id for trace in seen], "compare page")
        one = len({trace.run_id for trace in shown}) == 1
        if len(shown) == 2 and not one:
            compared = [*shown, *others]
            page.share([trace.run_id for trace in compared], ended=all(trace.ended for trace in compared))
            _export(compared)
    if stop is not None and second is not None:
        tour_strip(stop, second)
    for fault in faults:
        fault_box(fault)
    if len(more) > MOST_RUNS - 2:
        st.warning(f"Only the first {MOST_RUNS} runs are shown.", icon=":material/warning:")
    if others:
        page.table([*shown, *others])
    elif len(shown) < 2:
        _empty()
    elif one:
        st.warning("This is the same run twice. Choose another one as A or B.", icon=":material/warning:")
    else:
        _pair(*shown)


def _rounds(run_id: str, named: str | None) -> None:
    faults: list[InspectorError | str] = []
    trace = _read(run_id, faults)
    with across("compare-head"):
        st.title("Rounds of one run", anchor=False, width="content")
        if trace is not None:
            page.rounds_head(trace, named)
    for fault in faults:
        fault_box(fault)
    if trace is None:
        st.page_link(places.HISTORY, label="Choose a run in History", icon=":material/history:")
    else:
        viewed([trace.run_id], "compare page")
        page.rounds(trace, named)


def _read(run_id: str, faults: list[InspectorError | str]) -> RunTrace | None:
    """Returns the run as far as it can be read; what is wrong with it goes to ``faults``."""
    try:
        return current().store.trace(current().store.resolve(run_id))[0]
    except RunUnreadable as fault:
        faults.append(f"{fault} It is compared as far as it can be read." if fault.trace else str(fault))
        return fault.trace
    except InspectorError as error:
        faults.append(error)
        return None


def _pair(a: RunTrace, b: RunTrace) -> None:
    going = [name for name, trace in (("A", a), ("B", b)) if not trace.ended]
    if going:
        with across("still-on"):
            have = "have" if len(going) > 1 else "has"
            st.caption(f"{' and '.join(going)} {have} not ended: this is how far it was when the page was drawn.")
            button("Look again", "look-again", icon="refresh")
    page.compared_runs(compared_view(compare_runs(a, b)), key="compared")


def _export(traces: list[RunTrace]) -> None:
    browser = this_browser()

    def document() -> str:
        exported([trace.run_id for trace in traces], "comparison", browser)
        return json.dumps(comparison_document(traces), indent=2)

    with st.container(key="icon-only-export", width="content"):
        says = "The comparison as JSON, as `compare A B --json` prints it"
        download("Export", document, "comparison.json", "application/json", "export-comparison", help=says)


def _empty() -> None:
    """Draws what the page is for, and pairs of runs to choose from: first the re-runs that changed the answer."""
    st.caption(
        "Two plans in one graph, every output word by word, and for each difference its cause: an edit, a changed "
        "input, or chance."
    )
    try:
        # The answers of one step asked many times are beside each other on the page of their run.
        runs = current().store.runs(limit=MOST_READ, without=UNLISTED_PURPOSES, alone=True, answers=True)
        groups = pairs(runs, known(runs))
    except StoreError:
        return  # the choices above say what is wrong
    if groups:
        first = {row.id: row.before.run_id for group in groups for row in group.rows if row.before is not None}
        opened = ("offer-", lambda run_id: page.compare(first[run_id], run_id))
        run_table(groups, OFFERED, name="What was changed", opened=opened)
        return
    with st.container(border=True, key="compare-empty"):
        if len(runs) > 1:
            st.markdown("**Choose two runs above.** These have different tasks; re-runs of a run are offered here.")
            return
        st.markdown("**Nothing to compare yet.** Start a run, change a step and re-run it: the pair is offered here.")
        start_link("Start a run")


show()

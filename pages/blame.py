"""Blame: which step, and which access granted or withheld, decided a run's answer."""

import streamlit as st

from conductor_core.analysis.conclusion import concluded
from conductor_core.blame.experiments import MOST_REPLAYS, USUAL_REPLAYS, Experiments, Only, effects
from conductor_core.blame.report import estimate_words, notes, why_first
from conductor_core.blame.runs import Blame, Verdicts
from conductor_core.errors import InspectorError
from conductor_core.run.trace import RunTrace
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import (
    across,
    button,
    fault_box,
    fault_shown,
    kept_fault,
    open_link,
    search_field,
    show_fault,
)  # fmt: skip
from pages.components.blame.table import (
    CHOSEN,
    MOST_FULL,
    Blaming,
    begin,
    graph_html,
    offer_runs,
    ranking_rows,
    read_blame,
    replays_of,
    work_of,
)  # fmt: skip
from pages.components.style.figures import panel
from pages.components.style.formats import html, inert, seconds

EVERY_S = 1.0  # between two looks while replays run
ERROR = "blame-error"
LOWEST, HIGHEST = 4, 17  # units of the picture's height for which the style sheet keeps a place
_ONLY: dict[str, Only | None] = {"Steps and access": None, "Steps": "steps", "Access": "access"}
LEGEND = (
    "● decides · ▼ stabilises · ? inconclusive · – no effect. The wider a line or a frame, the more often the answer "
    "flips: a frame if its step is re-run, a line if that access is cut, a dashed line if it is granted."
)
LEFT_OUT = "Of the withheld accesses only those that decide or stabilise have a line."


def show() -> None:
    run_id, trace = places.read("run"), None
    head, notes = across("blame-choice"), st.container()
    with notes, fault_shown():
        trace = current().store.trace(run_id)[0] if run_id else None
    with head:
        st.title("Blame", anchor=False, width="content")
        if trace is None:
            search_field("blame-search")
        else:
            open_link(trace.run_id)
    if trace is None:
        offer_runs()
        return
    viewed([trace.run_id], "blame page")
    with across("blame-head"):
        if trace.simulated:
            st.html(html("style/parts", "simulated"), width="content")
        st.caption(inert(" ".join(trace.task.split())[:300]), width="stretch")
    try:
        Experiments(trace)
    except InspectorError as error:
        st.info(inert(str(error)), icon=":material/info:")
        return
    _asked(trace)


def _asked(trace: RunTrace) -> None:
    with st.container(border=True, key="blame-asked", gap="small"):
        said = concluded(trace)
        if said is not None:
            st.markdown(f"Answer: **{inert(said.text)}**" if said.headline else inert(said.text))
        fields = st.columns([3, 1.2, 2.6, 1.6], vertical_alignment="top", gap="small")
        truth = fields[0].text_input(
            "The right answer, if you know it", key="blame-truth", placeholder="Without it, answers are compared"
        )
        count = fields[1].number_input("Replays of each", 1, MOST_REPLAYS, USUAL_REPLAYS, key="blame-count")
        only = fields[2].segmented_control("Change", list(_ONLY), default="Steps and access", key="blame-only")
        fields[3].number_input(
            "Budget in USD", min_value=0.0, value=None, key="blame-usd", placeholder="none", format="%.4f",
            help="Of all replays of this run, earlier ones too",
        )  # fmt: skip
        try:
            experiments = Experiments(trace, _ONLY.get(only or ""))
            verdicts = Verdicts(trace, truth or None)
            _estimate(trace, experiments, verdicts, int(count))
        except InspectorError as error:
            fault_box(error)
            return
    work = work_of(trace.run_id)
    running = work is not None and work.running
    results = st.fragment(_results, run_every=EVERY_S if running else None)
    results(trace, experiments, verdicts, int(count), running=running)


def _estimate(trace: RunTrace, experiments: Experiments, verdicts: Verdicts, count: int) -> None:
    blame = read_blame(current(), experiments, verdicts, count)
    st.caption(inert(verdicts.in_words))
    for note in notes(experiments):
        st.caption(inert(note))
    work = work_of(trace.run_id)
    begun = len(blame.left) < len(blame.replays)
    with across("blame-start", gap="small"):
        if work is not None and work.running:
            button("Stop", "blame-stop", work.carrying_out.stop, icon="stop")
        elif blame.left:
            button("Go on" if begun else "Start", "blame-begin", _begin, trace, icon="play_arrow", type="primary")
        said = estimate_words(blame.estimate)
        if begun:
            said += f" · left: {estimate_words(blame.estimate_left)}" if blame.left else " · all of it is recorded"
        st.markdown(inert(said), width="stretch")
    show_fault(ERROR)


def _begin(trace: RunTrace) -> None:
    # The fields as they are: a value that was typed last comes with the press, and the button was drawn before it.
    truth, count, only, max_usd = (st.session_state.get(f"blame-{name}") for name in ("truth", "count", "only", "usd"))
    with kept_fault(ERROR):
        experiments, verdicts = Experiments(trace, _ONLY.get(only or "")), Verdicts(trace, truth or None)
        begin(current(), experiments, verdicts, int(count or USUAL_REPLAYS), max_usd)


def _results(trace: RunTrace, experiments: Experiments, verdicts: Verdicts, count: int, *, running: bool) -> None:
    """Draws progress, ranking and graph. While replays run it is drawn anew every second, and the page at their end."""
    work = work_of(trace.run_id)
    if running and (work is None or not work.running):
        st.rerun()
    if work is not None:
        _progress(work)
    if work is not None and work.running and work.carrying_out.blame.count == count:
        known = work.carrying_out.blame.known
        blame = Blame(experiments, verdicts, count, known)
    else:
        blame = read_blame(current(), experiments, verdicts, count)
    ranking = effects(experiments, blame.answers(), count)
    measured = any(effect.pairs for effect in ranking)
    if not measured:
        # The places of what is coming are there from the start.
        said = "They come with the first pairs of replays." if running else "Nothing is called before you start it."
        st.caption(f"Nothing is measured yet: each row below gets its share of flips. {said}")
    by_key = {effect.change.key: effect for effect in ranking}
    chosen = by_key.get(str(st.session_state.get(CHOSEN)), ranking[0])
    agents = [spec.name for spec in trace.pool.workers]
    if measured:
        st.markdown(f"**{inert(why_first(ranking, experiments.plan))}**")
    with panel("blame-drawing", "On the graph"):
        dark = st.context.theme.type == "dark"
        drawn, height = graph_html(experiments.plan, ranking, agents, chosen.change, dark=dark)
        with st.container(key=f"blame-place-{min(max(height, LOWEST), HIGHEST)}"):
            st.html(drawn)
        st.caption(LEGEND if len(experiments.plan.steps) <= MOST_FULL else f"{LEGEND} {LEFT_OUT}")
    left, right = st.columns([3, 2], gap="small")
    with left, panel("blame-ranking", "Ranking"):
        ranking_rows(ranking, experiments.plan, chosen.change)
    with right, st.container(border=True, key="blame-replays", gap="xsmall"):
        experiment = next(each for each in experiments.experiments if each.change == chosen.change)
        replays_of(chosen, experiment, blame)


def _progress(work: Blaming) -> None:
    at = work.carrying_out
    failed = f", {at.failed} failed" if at.failed else ""
    if work.running:
        took, coming = at.blame.experiments.source.duration_ms, ""
        about = f", each about {seconds(took)}, as the run itself took" if took else ""
        if not at.ended:
            now = f"{at.running} run now{about}; each pair that ends fills its row"
            coming = f": {now if at.running else 'the first ones begin'}"
        st.progress(work.progress, text=f"{at.ended} of {at.total} replays{failed}{coming}")
        return
    if work.error is not None:
        fault_box(work.error)
    elif at.why_not_all is not None:
        st.warning(inert(at.why_not_all), icon=":material/payments:")
    elif at.failed:
        st.warning(f"{at.failed} replays failed; “Go on” tries them again.", icon=":material/warning:")


show()

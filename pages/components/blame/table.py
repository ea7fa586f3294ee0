"""The ranking as rows, and the replays behind one of them; without a run, the newest runs to choose from."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.analysis.conclusion import asked, conclude
from conductor_core.blame.experiments import (
    PURPOSE,
    USUAL_REPLAYS,
    Arm,
    Change,
    Effect,
    Experiment,
    Experiments,
    Flips,
    Replay,
    effects,
)
from conductor_core.blame.report import FINDINGS, change_words, finding_words, sentence, signed
from conductor_core.blame.runs import Blame, Verdicts
from conductor_core.engine.repeats import PURPOSE as OF_A_STEP
from conductor_core.errors import InspectorError, StoreError
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.workflow.model import Workflow
from pages.components.app import address, places
from pages.components.app.session import current
from pages.components.blame.work import MOST_CHILDREN, read_blame
from pages.components.run_list.rows import by_task
from pages.components.run_list.table import known, table
from pages.components.style.formats import inert, plural

CHOSEN = "blame-chosen"
ALL = "blame-all"
MOST_RANKED = 40
_SHOWN = 60


def ranking_rows(ranking: Sequence[Effect], plan: Workflow, chosen: Change | None) -> None:
    """Draws a row for each change, of very many the first; its name is a button that shows the replays behind it."""
    shown = ranking if st.session_state.get(ALL) else ranking[:MOST_RANKED]
    with st.container(key="blame-rows", gap=None):
        st.html(
            '<div class="blame-cells head"><span>Finding</span><span>With</span><span>Without</span>'
            "<span>Effect in points (95 %)</span></div>"
        )
        for effect in shown:
            mark = "-chosen" if effect.change == chosen else ""
            with st.container(
                key=f"blame-row-{effect.rank}{mark}",
                horizontal=True,
                vertical_alignment="center",
                gap="small",
                wrap=False,
            ):
                st.button(
                    inert(f"{effect.rank} · {change_words(effect.change, plan)}"),
                    key=f"blame-{effect.change.key}",
                    type="tertiary",
                    on_click=_choose,
                    args=(effect.change.key,),
                )
                st.html(_cells(effect))
        if len(shown) < len(ranking):
            label = f"Show all {len(ranking):,} changes"
            st.button(label, key="blame-show-all", type="tertiary", on_click=_show_all)


def _choose(key: str) -> None:
    st.session_state[CHOSEN] = key


def _show_all() -> None:
    st.session_state[ALL] = True


def _cells(effect: Effect) -> str:
    sign, said = FINDINGS[effect.finding]
    return (
        f'<div class="blame-cells {effect.finding.replace(" ", "-")}"><span>{sign} {said}</span>'
        f"<span>{_counted(effect.with_it)}</span><span>{_counted(effect.without)}</span>{_bar(effect)}</div>"
    )


def _counted(flips: Flips | None) -> str:
    return "—" if flips is None else f"{flips.flipped}/{flips.replays}"


def _bar(effect: Effect) -> str:
    """Draws an axis from -100 to 100 points with the interval as a band and the effect as a mark."""
    if effect.with_it is None:
        return "<span>—</span>"
    low, high, mean = (50 * (1 + value) for value in (effect.low, effect.high, effect.effect))
    words = f"{signed(effect.effect)} ({signed(effect.low)} to {signed(effect.high)})"
    return (
        '<span class="blame-axis" aria-hidden="true">'
        f'<i style="left: {low:.1f}%; width: {max(1.0, high - low):.1f}%"></i>'
        f'<b style="left: {mean:.1f}%"></b></span><span class="blame-points">{words}</span>'
    )


def replays_of(effect: Effect, experiment: Experiment, blame: Blame) -> None:
    """Draws the sentence of a change, and its replays in pairs, each of which opens."""
    plan = blame.experiments.plan
    st.markdown(f"**{inert(change_words(effect.change, plan).capitalize())}**")
    st.markdown(inert(f"{sentence(effect, plan, seeds_sent=blame.experiments.seeds_sent)} {finding_words(effect)}"))
    pairs = [
        (number, _cell(blame, experiment.with_it, number), _cell(blame, experiment.without, number))
        for number in range(blame.count)
    ]
    rows = "".join(f"<tr><th>{number}</th><td>{a}</td><td>{b}</td></tr>" for number, a, b in pairs)
    st.html(
        '<div class="blame-scroll" tabindex="0"><table class="blame-pairs"><thead><tr><th>Pair</th><th>With</th>'
        f"<th>Without</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    seeds = "Both runs of a pair have the same seeds; each opens." if blame.experiments.seeds_sent else "Each opens."
    st.caption(f"↷ flipped, ≈ flipped, but differs in wording alone as far as is known, = stayed. {seeds}")


def _cell(blame: Blame, arm: Arm, number: int) -> str:
    if not arm.fresh:
        return _answer(blame.experiments.source.run_id, blame.experiments.source.answer or "", blame, flips=False)
    key = Replay(arm=arm, number=number).key
    if (trace := blame.known.done.get(key)) is not None and trace.answer is not None:
        return _answer(trace.run_id, trace.answer, blame, flips=blame.verdicts.flips(trace.answer))
    ended = blame.known.begun.get(key)
    if ended:
        last = ended[-1]
        return f'<a href="{_address(last.run_id)}" target="_self">{escape(last.status)}</a>'
    return "…" if key in blame.known.running else "—"


def _answer(run_id: str, answer: str, blame: Blame, *, flips: bool) -> str:
    said = conclude(answer, asked(blame.experiments.source)).text or "an empty answer"
    shown = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"
    sign = "=" if not flips else "≈" if blame.verdicts.differs_in_wording(answer) else "↷"
    return f'<a href="{_address(run_id)}" target="_self" title="run {escape(run_id)}">{sign} {escape(shown)}</a>'


def _address(run_id: str) -> str:
    return f"{places.RUN.stem}?run={escape(run_id, quote=True)}"


MOST_OFFERED, _MOST_RUNS_READ, _MOST_REPLAYS_READ = 12, 60, 300
_DECIDED = "Decided by, or what asking takes"


def offer_runs() -> None:
    """Draws what the page is for, and the newest completed runs, with what is known of each or what asking takes."""
    words = str(st.session_state.get("blame-search") or "").strip() or None
    try:
        store = current().store
        runs = store.runs(limit=_MOST_RUNS_READ, search=words, status="completed", without=REPLAY_PURPOSE, answers=True)
        # Of a step that was asked many times, the run that it belongs to is offered, not each of its answers.
        found = [run for run in runs if run.steps and run.purpose != OF_A_STEP][:MOST_OFFERED]
        groups, decided = by_task(found, known(found)), {run.run_id: _decided(run.run_id) for run in found}
    except StoreError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return
    if found or words:
        st.caption(
            "Choose a run. It is replayed with one step re-run, or with one access cut or granted, and the page "
            "counts how often the answer flips."
        )
    if found:
        opened = ("blame-of-", lambda run_id: address.write("run", run_id))
        table(groups, ("Answer", "Steps", _DECIDED, "When"), opened=opened, extra=decided)
        return
    with st.container(border=True, key="blame-empty", horizontal_alignment="left"):
        if words:
            st.markdown("**No completed run matches.** Take a word out of the search.")
            return
        st.markdown(
            "**What decided this answer?** This page replays a run with one step re-run, or with one access cut or "
            "granted, and counts how often the answer flips."
        )
        st.markdown("No run has completed yet. Every completed run can be blamed here.")
        st.page_link(places.RUN, label="Start one", icon=":material/play_circle:")


def _decided(run_id: str) -> str:
    """Says what is known of a run, else what asking takes, as HTML."""
    try:
        trace = current().store.trace(run_id)[0]
        experiments = Experiments(trace)
        children = current().store.runs(limit=MOST_CHILDREN, parent=run_id)
        replays = sum(child.purpose == PURPOSE for child in children)
        if not replays:
            estimate = experiments.estimate(list(experiments.replays(USUAL_REPLAYS)))
            asks = f"{plural(estimate.calls, 'call')}, {estimate.cost.in_line}"
            return f'<span class="muted">{escape(asks)}</span>'
        if replays > _MOST_REPLAYS_READ:
            return f"{replays:,} replays are recorded"
        blame = read_blame(current(), experiments, Verdicts(trace), USUAL_REPLAYS)
    except InspectorError as error:
        return f'<span class="muted" title="{escape(str(error))}">cannot be replayed</span>'
    first = effects(experiments, blame.answers(), USUAL_REPLAYS)[0]
    if first.with_it is None or first.finding != "decides":
        return "nothing clearly flips it"
    what = f"step {first.change.step}" if first.change.source is None else change_words(first.change, experiments.plan)
    return f"<b>{escape(what)}</b>: flips in {first.with_it.flipped} of {first.with_it.replays}"

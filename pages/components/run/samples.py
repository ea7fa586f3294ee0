"""*Run this step again…*, and what came of it: the answers in groups, for each worker. Each answer opens its run.

A step is run alone or with the steps from there on, once or many times, with one worker or several. The panel of
answers stands on the page of the run that the others were made from, and on that of each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from conductor_core.engine.batch import BatchSpent
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.calls import takes_seed
from conductor_core.engine.pools import pool_info, who_may_be_called
from conductor_core.engine.repeats import (
    MOST_TIMES,
    PURPOSE,
    Again,
    AnswerGroup,
    Extent,
    Repeats,
    RepeatsForecast,
    Share,
    Tally,
    again_of,
    forecast_repeats,
    repeat_requests,
    tally,
)
from conductor_core.engine.request import may_run_here
from conductor_core.errors import InspectorError
from conductor_core.run.actor import local_caller
from conductor_core.run.request import REPLAY_PURPOSE, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.app import address
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.run import typed_keys
from pages.components.style.figures import agent_dot
from pages.components.style.formats import inert, instruction_markdown, numbers, plural, run_status, seconds

EVERY_S = 0.7  # between two looks while runs go on
_MOST_READ = 200
_MOST_BUTTONS, _MOST_GROUPS = 10, 5
_LONG = 60  # characters, of a conclusion that its column may cut
_COLUMNS = (0.7, 5, 1.6, 4)


def again_results(trace: RunTrace) -> None:
    """Draws the panel if ``trace`` is one of such runs, or the run that the last of them were made from."""
    batch = _batch(trace)
    if batch is None:
        return
    runs = _read(batch)
    if not runs:
        return
    source = trace if runs[0].parent_run_id == trace.run_id else _source(runs[0])
    found = tally(source or runs[0], runs)
    with st.container(border=True, key="again-results", gap="xsmall"):
        _head(found, runs, source, trace)
        for each in found.tallies:
            _tally(each, found, trace)
    if found.running:
        _follow(batch, [run.status for run in runs])


def _batch(trace: RunTrace) -> str | None:
    if trace.purpose == PURPOSE and trace.batch is not None:
        return trace.batch.id
    try:
        made = current().store.runs(limit=_MOST_READ, parent=trace.run_id, without=REPLAY_PURPOSE)
    except InspectorError:
        return None  # the page says what is wrong with the database
    return next((run.batch_id for run in made if run.purpose == PURPOSE and run.batch_id is not None), None)


def _read(batch: str) -> list[RunTrace]:
    traces: list[RunTrace] = []
    try:
        listed = current().store.runs(limit=_MOST_READ, batch=batch)
    except InspectorError:
        return []
    for run in listed:
        try:
            traces.append(current().store.trace(run.run_id)[0])
        except InspectorError:  # damaged, as its own page and History say
            continue
    viewed([trace.run_id for trace in traces], "run page")
    return [trace for trace in traces if again_of(trace) is not None]


def _source(run: RunTrace) -> RunTrace | None:
    try:
        return None if run.parent_run_id is None else current().store.trace(run.parent_run_id)[0]
    except InspectorError:
        return None  # deleted, or damaged


def _follow(batch: str, drawn: Sequence[str]) -> None:
    """Draws the page anew once a run has ended."""

    @st.fragment(run_every=EVERY_S)
    def follow() -> None:
        try:
            statuses = [run.status for run in current().store.runs(limit=_MOST_READ, batch=batch)]
        except InspectorError:
            return
        if statuses != list(drawn):
            st.rerun()

    follow()


def _head(found: Repeats, runs: Sequence[RunTrace], source: RunTrace | None, shown: RunTrace) -> None:
    count = len(runs)
    what = f"Step {found.step} alone" if found.extent == "only" else f"From step {found.step} on"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="again-head"):
        st.markdown(f"**{what}, {plural(count, 'time')}**", width="content")
        ended = f"{count - found.running} of {count} ended…" if found.running else ""
        simulated = "simulated workers" if found.simulated else ""
        said = " · ".join(filter(None, (ended, simulated, "agreement with its 95 % interval (Wilson)")))
        st.markdown(f":small[:gray[{said}]]", width="stretch")
        if found.running:
            st.button("Cancel", key="again-cancel", icon=":material/stop:", on_click=_cancel, args=(runs,))
        if source is not None and source.run_id != shown.run_id:
            st.button(
                "The run they were made from",
                key="again-source",
                type="tertiary",
                on_click=address.write,
                args=("run", source.run_id),
            )


def _tally(found: Tally, of: Repeats, shown: RunTrace) -> None:
    pool = [spec.name for spec in shown.pool.workers]
    agree = f" · **{_share(found.groups[0].share)}** agree by {found.compared_by}" if found.groups else ""
    took = f" · {seconds(found.mean_ms)} on average" if found.mean_ms is not None else ""
    spent = f" · {found.usage.total_tokens:,} tokens · {inert(found.cost.in_line)}{took}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"again-agent-{found.agent}"):
        st.html(agent_dot(found.agent, pool), width="content")
        answered = f"{found.answered} of {len(found.run_ids)} answered"
        st.markdown(f"**{inert(found.agent)}** :small[{answered}{agree}{spent}]", width="stretch")
    for place, group in enumerate(found.groups[:_MOST_GROUPS]):
        with st.container(key=f"again-row-{found.agent}-{place}"):
            _group(found, group, shown)
    if left := found.groups[_MOST_GROUPS:]:
        others = sum(len(group.run_ids) for group in left)
        st.markdown(
            f":small[:gray[and {plural(others, 'answer')} in {plural(len(left), 'smaller group')}, in History]]"
        )
    if found.unanswered:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            first = next((each.error for each in found.unanswered if each.error), None)
            why = f": {inert(first[:200])}" if first else ""
            st.markdown(f":small[:orange[△ {len(found.unanswered)} without an answer{why}]]", width="content")
            for each in found.unanswered[:_MOST_BUTTONS]:
                _open(found, each.run_id, shown, inert(run_status(each.status)))


def _group(found: Tally, group: AnswerGroup, shown: RunTrace) -> None:
    count_at, said_at, share_at, runs_at = st.columns(_COLUMNS, vertical_alignment="center", gap="small", wrap=False)
    count_at.markdown(f"**{len(group.run_ids)} ×**")
    before = " :gray-badge[as before]" if group.as_before else ""
    before += " :gray-badge[differs in wording]" if found.differs_in_wording(group) else ""
    long = inert(group.conclusion) if len(group.conclusion) > _LONG else None
    said_at.markdown(f"{inert(group.conclusion)}{before}", help=long)
    with share_at:
        st.html(_bar(group.share))
    with runs_at, st.container(horizontal=True, gap=None, key=f"again-runs-{group.run_ids[0]}"):
        for run_id in group.run_ids[:_MOST_BUTTONS]:
            _open(found, run_id, shown, None)
        if len(group.run_ids) > _MOST_BUTTONS:
            st.markdown(f":small[:gray[and {len(group.run_ids) - _MOST_BUTTONS} more, in History]]", width="content")


def _open(found: Tally, run_id: str, shown: RunTrace, label: str | None) -> None:
    number = found.run_ids.index(run_id)
    text = label or f"{number}"
    st.button(
        f"**{text}**" if run_id == shown.run_id else text,
        key=f"again-open-{run_id}",
        type="tertiary",
        help=inert(f"Open answer {number}: run {run_id}"),
        on_click=address.write,
        args=("run", run_id),
    )


def _bar(share: Share) -> str:
    said = f"{share.share:.0%} of the answers; 95 % interval {share.low:.0%} to {share.high:.0%}"
    return (
        f'<div class="again-share" role="img" aria-label="{said}" title="{said}">'
        f'<i style="width:{share.share:.1%}"></i>'
        f'<b style="left:{share.low:.1%};width:{share.high - share.low:.1%}"></b></div>'
    )


def _share(share: Share) -> str:
    return f"{share.share:.0%} ({share.low:.0%} to {share.high:.0%})"


def _cancel(runs: Sequence[RunTrace]) -> None:
    for run in runs:
        if not run.ended:
            current().host.cancel(run.run_id, local_caller("page"))


# The dialog.

USUAL_TIMES = 5
_OPEN, _ERROR, _LEFT = "step-again", "step-again-error", "step-again-left"
_EXTENTS: dict[Extent, str] = {"only": "This step alone", "from": "From here on"}


@dataclass(frozen=True)
class _Left:
    """Runs that were asked for and could not be started, and what they may spend together with those that were."""

    source: str
    again: Again
    max_usd: float | None
    requests: tuple[RunRequest, ...]
    cap: CostCap | None


def ask_again(trace: RunTrace, step: int) -> None:
    """Opens the dialog over that run at the next ``again_dialog``."""
    if trace.ended and step < len(trace.steps) and may_run_here(trace):
        st.session_state[_OPEN] = (trace.run_id, step)


def again_dialog(trace: RunTrace) -> None:
    """Draws the dialog while it is open over that run."""
    opened = st.session_state.get(_OPEN)
    if opened is not None and opened[0] == trace.run_id:
        _dialog(trace, opened[1])
    else:
        _close()


def _close() -> None:
    st.session_state.pop(_OPEN, None)
    st.session_state.pop(_ERROR, None)


@st.dialog("Run this step again", width="medium", on_dismiss=_close)
def _dialog(trace: RunTrace, step: int) -> None:
    own = trace.steps[step].agent
    # A dialog lies outside the element that says which of the two colour schemes the page has.
    scheme = "dark" if st.context.theme.type == "dark" else "light"
    st.html(f"<style>.stDialog {{ color-scheme: {scheme}; }}</style>")
    st.caption(f"{inert(f'Step {step} · {own}:')} {instruction_markdown(trace.steps[step].instruction, 200)}")
    try:
        specs = pool_info(trace.pool, current().settings).workers
    except InspectorError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return
    extent = st.radio(
        "What runs",
        list(_EXTENTS),
        format_func=lambda each: _EXTENTS[each],
        captions=["Ends with its answer", "And all that its answer reaches"],
        horizontal=True,
        key="again-extent",
    )
    left, right = st.columns([1, 2])
    times = left.number_input("Times", 1, MOST_TIMES, USUAL_TIMES, key="again-times", help="Each is asked afresh")
    offered = list(dict.fromkeys([own, *(spec.name for spec in specs)]))
    seeds = ", with the same seeds" if all(map(takes_seed, specs)) else ""
    agents = right.multiselect(
        "Workers",
        offered,
        default=[own],
        key=f"again-agents-{step}",
        help=f"Several answer beside each other{seeds}",
        placeholder=f"{own}, as it was",
    )
    budget = left.number_input(
        "At most USD",
        min_value=0.0,
        value=trace.limits.max_usd,
        step=0.1,
        format="%.4f",
        key="again-usd",
        placeholder="no limit",
        help="For all of these runs together",
    )
    again = Again(step=step, extent=extent, times=int(times), agents=tuple(agents))
    try:
        forecast = forecast_repeats(trace, again, specs)
    except InspectorError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return
    with right:
        _expect(forecast, trace)
    if message := st.session_state.pop(_ERROR, None):
        st.error(inert(message), icon=":material/error:")
    label = f"Run {plural(again.runs, 'time')}" if again.runs > 1 else "Run"
    rest = _left(trace, again, budget)
    if rest is not None:
        missing, started = len(rest.requests), again.runs - len(rest.requests)
        label = f"Run the {missing} that {'is' if missing == 1 else 'are'} missing"
        said = f"{started} of {plural(again.runs, 'run')} started. Another choice starts over."
        st.markdown(f":small[:gray[{said}]]")
    if st.button(label, type="primary", icon=":material/play_arrow:", key="again-run"):
        _begin(trace, again, forecast, budget)


def _expect(forecast: RepeatsForecast, trace: RunTrace) -> None:
    """Says what all runs together will take."""
    first = forecast.each[0]
    runs = numbers([step.index for step in first.will_run])
    reused = numbers([step.index for step in first.will_reuse])
    kept = f" · ↺ **{reused}** reused" if reused else ""
    st.markdown(
        f":small[▶ **{runs or 'none'}** will run in each{kept}  \n"
        f"{plural(forecast.runs, 'run')}: about {forecast.estimated_tokens:,} tokens, {inert(forecast.cost.in_line)}]"
    )
    if trace.simulated:
        st.markdown(":small[:gray[Simulated workers draw each answer from its seed.]]")
    elif any(step.agent == CONDUCTOR_AGENT for step in first.will_run):
        st.markdown(":small[:gray[A Conductor step also replans.]]")


def _left(trace: RunTrace, again: Again, max_usd: float | None) -> _Left | None:
    """Returns what is left of the last start, if it broke off and the same is asked for."""
    left: _Left | None = st.session_state.get(_LEFT)
    same = left is not None and (left.source, left.again, left.max_usd) == (trace.run_id, again, max_usd)
    return left if same else None


def _begin(trace: RunTrace, again: Again, forecast: RepeatsForecast, max_usd: float | None) -> None:
    """Starts all runs, or those that are left. A single one is opened; the answers of several appear on this page."""
    started: list[str] = []
    try:
        left = _left(trace, again, max_usd) or _asked_for(trace, again, forecast, max_usd)
        for request in left.requests:
            started.append(current().host.start(request, left.cap, keys=typed_keys.mine()))
    except InspectorError as error:
        st.session_state[_ERROR] = str(error)
        if started:
            st.session_state[_LEFT] = replace(left, requests=left.requests[len(started) :])
        st.rerun()
    st.session_state.pop(_LEFT, None)
    _close()
    if again.runs == 1:
        address.write("run", started[0])
    st.rerun()


def _asked_for(trace: RunTrace, again: Again, forecast: RepeatsForecast, max_usd: float | None) -> _Left:
    """Returns all runs as what is left. Raises: BadInput if the budget cannot be kept."""
    called = {step.agent for each in forecast.each for step in each.will_run}
    specs = pool_info(trace.pool, current().settings).workers
    cap = None
    if max_usd is not None:
        cap = CostCap(BatchSpent(), max_usd=max_usd, then="run the step again")
        cap.check_workers(who_may_be_called(called, specs))
    requests = repeat_requests(trace, again, [spec.name for spec in specs], door="page")
    return _Left(trace.run_id, again, max_usd, requests, cap)

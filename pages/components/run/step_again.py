"""*Run this step again…*: alone or from there on, once or many times, with one worker or several."""

from dataclasses import dataclass, replace

import streamlit as st

from conductor_core.engine.batch import BatchSpent
from conductor_core.engine.cost_cap import CostCap
from conductor_core.engine.fallbacks import who_may_be_called
from conductor_core.engine.pool import pool_info
from conductor_core.engine.repeats import MOST_TIMES, Again, Extent, RepeatsForecast, forecast_repeats, repeat_requests
from conductor_core.engine.request import may_run_here
from conductor_core.errors import InspectorError
from conductor_core.run_request import RunRequest
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.look.words import inert, numbers, plural
from pages.components.shell import address
from pages.components.shell.runtime import current

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
    st.caption(inert(f"Step {step} · {own}: {trace.steps[step].instruction[:200]}"))
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
    times = left.number_input("Times", 1, MOST_TIMES, USUAL_TIMES, key="again-times", help="Each with a fresh seed")
    offered = list(dict.fromkeys([own, *(spec.name for spec in specs)]))
    agents = right.multiselect(
        "Workers",
        offered,
        default=[own],
        key=f"again-agents-{step}",
        help="Several answer with the same seeds, beside each other",
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
        said = f"{started} of {plural(again.runs, 'run')} started. Another choice begins anew."
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
        st.markdown(":small[:gray[A step of the Conductor writes its plan anew, too.]]")


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
            started.append(current().host.start(request, left.cap))
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

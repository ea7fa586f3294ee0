"""Several plans for one task beside each other: one row for each, to open, edit, run and compare.

The rows stand on the page of each of these plans, and of each run of one. The graph below draws the plan that is open.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine import repeats
from conductor_core.engine.batch import BatchSpent
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.calls import takes_seed
from conductor_core.engine.estimates import usual_answer_tokens
from conductor_core.engine.pools import pool_info, who_may_be_called
from conductor_core.engine.request import may_run_here
from conductor_core.errors import InspectorError
from conductor_core.run.actor import local_caller
from conductor_core.run.costs import Cost
from conductor_core.run.request import MOST_TEMPERATURE, UNLISTED_PURPOSES, USUAL_TEMPERATURE, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.app import places
from pages.components.app.session import current, readable, viewed
from pages.components.app.widgets import (
    across,
    button,
    dialog_scheme,
    fault_box,
    fault_shown,
    kept_fault,
    rerun_when,
    show_fault,
    text_button,
)  # fmt: skip
from pages.components.run import settings, task_box
from pages.components.style.figures import agent_dot
from pages.components.style.formats import html, inert, instruction_markdown, numbers, plural, run_status, seconds
from storage import RunSummary

# Plans to choose from.

TEMPLATE = "run/run"
ERROR = "choose-plan-error"
EVERY_S = 0.7  # between two looks while plans are written, or runs go on
_RUNS_READ = 50
_MOST_READ = 100
_COLUMNS = (1.5, 1.1, 1.3, 4.6, 0.9, 1.0, 1.4, 1.8)
_HEADS = ("Plan", "Shape", "Critical path", "Agents", "Tokens", "Cost", "Run", "")


@dataclass(frozen=True)
class _Plans:
    """The plans of one batch: ``unread`` cannot be read; ``runs`` has the latest run of each, by the plan's id.

    ``statuses``: of plans and runs, to tell whether something has happened since.
    """

    traces: Sequence[RunTrace]
    unread: int
    found: Sequence[repeats.PlanChoice]
    runs: dict[str, RunSummary]
    statuses: Sequence[str]

    @property
    def written(self) -> int:
        return sum(trace.ended for trace in self.traces)

    @property
    def moving(self) -> bool:
        running = any(run.status in ("queued", "running") for run in self.runs.values())
        return running or self.written < len(self.traces)

    def run_of(self, choice: repeats.PlanChoice) -> RunSummary | None:
        return next((self.runs[each] for each in choice.run_ids if each in self.runs), None)


def plan_choices(trace: RunTrace, edit: Callable[[str], None]) -> None:
    """Draws the rows if ``trace`` is one of several plans for a task, or a run of one.

    ``edit`` opens the editor of a plan, by its run's id.
    """
    plan: RunTrace | None = trace
    batch = repeats.batch_of_plans(trace)
    if batch is None and (plan := readable(trace.parent_run_id)) is not None:
        batch = repeats.batch_of_plans(plan)
    if plan is None or batch is None:
        return
    try:
        plans = _read(batch)
    except InspectorError as error:
        fault_box(error)
        return
    with st.container(border=True, key="plan-choices"):
        _head(plans, plan)
        with st.container(key="choices-rows", gap=None):
            with st.container(key="choices-row-head"):
                for column, head in zip(_columns(), _HEADS, strict=True):
                    column.markdown(f":small[:gray[{head}]]")
            for place, choice in enumerate(plans.found):
                with st.container(key=f"choices-row-{place}"):
                    _row(plans, choice, plan, edit)
        _notes(plans)
    if plans.moving:
        rerun_when(lambda: _statuses(batch)[2] != plans.statuses, EVERY_S)


def _statuses(batch: str) -> tuple[list[RunSummary], dict[str, RunSummary], list[str]]:
    """Returns the plans, the latest run of each that was run, and what state all of them are in."""
    store = current().store
    plans = store.runs(limit=_MOST_READ, batch=batch)
    found = {plan.run_id: store.runs(limit=1, parent=plan.run_id, without=UNLISTED_PURPOSES) for plan in plans}
    runs = {run_id: runs[0] for run_id, runs in found.items() if runs}
    return plans, runs, [run.status for run in (*plans, *runs.values())]


def _read_traces(listed: Sequence[RunSummary]) -> list[RunTrace]:
    """Returns those that can be read; of damaged ones their own pages and History say why."""
    traces = [trace for run in listed if (trace := readable(run.run_id)) is not None]
    viewed([trace.run_id for trace in traces], "run page")
    return traces


def _read(batch: str) -> _Plans:
    listed, runs, statuses = _statuses(batch)
    traces, newest = _read_traces(listed), current().store.runs(limit=_RUNS_READ)
    answer_tokens = usual_answer_tokens(traces[0].pool.name if traces else "", newest)
    return _Plans(traces, len(listed) - len(traces), repeats.choices(traces, answer_tokens), runs, statuses)


def _head(plans: _Plans, plan: RunTrace) -> None:
    count = plan.batch.size if plan.batch is not None else len(plans.traces)
    with across("choices-head", gap="small"):
        st.markdown("**Plans to choose from**", width="content")
        going = plans.written < len(plans.traces)
        different = len([each for each in plans.found if each.workflow is not None])
        said = f"{plans.written} of {count} written…" if going else f"{count} written, {different} different"
        warm = "" if plan.plan_temperature is None else f" · temperature {plan.plan_temperature:g}"
        st.markdown(f":small[:gray[{said}{warm} · tokens and cost are estimates of a run]]", width="stretch")
        if going:
            button("Cancel", "choices-cancel", _cancel, plans.traces, icon="stop")
            return
        again = (task_box.begin_plans, plan.task, max(count, 2), plan.plan_temperature)
        says = f"Has {plural(count, 'plan')} written again, with fresh seeds"
        button("Resample", "resample", *again, icon="refresh", help=says)
        left = [each for each in plans.found if each.workflow is not None and plans.run_of(each) is None]
        if len(left) > 1:
            tokens = sum(each.forecast.estimated_tokens for each in left if each.forecast is not None)
            cost = sum((each.cost for each in left if each.cost is not None), Cost())
            label = f"Run all {len(left)} · about {tokens:,} tokens, {inert(cost.in_line)}"
            button(label, "run-all", _run, plans.traces, [each.run_ids[0] for each in left], icon="play_arrow")
    show_fault(ERROR)


def _columns(widths: Sequence[float] = _COLUMNS) -> Sequence[DeltaGenerator]:
    return st.columns(widths, vertical_alignment="center", gap="small", wrap=False)


def _row(plans: _Plans, choice: repeats.PlanChoice, plan: RunTrace, edit: Callable[[str], None]) -> None:
    open_at, shape_at, path_at, agents_at, tokens_at, cost_at, run_at, act_at = _columns()
    first = choice.run_ids[0]
    shown, number = plan.run_id in choice.run_ids, ", ".join(map(str, choice.numbers))
    times = f" ×{len(choice.numbers)}" if len(choice.numbers) > 1 else ""
    label, says = f"Plan {number}{times}", f"Equal plans: {number}" if times else None
    with open_at:
        choose = (f"choose-{first}", places.write, "run", first)
        text_button(f"**{label}**" if shown else label, *choose, icon="arrow_right" if shown else "", help=says)
    if choice.workflow is None or choice.forecast is None:
        said = choice.faults[0].message if choice.faults else choice.error or run_status(choice.status)
        said = f":small[:red[:material/error: {inert(said)}]]"
        agents_at.markdown(":small[:gray[◔ being written…]]" if choice.status in ("running", "queued") else said)
        return
    steps = len(choice.workflow.steps)
    shape_at.markdown(f":small[{choice.topology}]")
    path_at.markdown(f":small[{choice.critical_path} of {plural(steps, 'step')}]")
    with agents_at:
        pool = [spec.name for spec in plan.pool.workers]
        st.html(html(TEMPLATE, "agents", names=choice.agents, dot=lambda agent: agent_dot(agent, pool)))
    tokens_at.markdown(f":small[{choice.forecast.estimated_tokens:,}]")
    cost_at.markdown(f":small[{inert(str(choice.cost))}]")
    run = plans.run_of(choice)
    with run_at:
        if run is None:
            st.markdown(":small[:gray[not run]]")
        else:
            open_run = (f"choice-run-{run.run_id}", places.write, "run", run.run_id)
            text_button(inert(run_status(run.status)), *open_run, help=inert(f"Open run {run.run_id}"))
    with act_at, across(f"icon-only-choice-{first}", horizontal_alignment="right", gap=None):
        if not shown:
            ours = next((plans.run_of(each) for each in plans.found if plan.run_id in each.run_ids), None)
            pair = {"a": plan.run_id if ours is None else ours.run_id, "b": first if run is None else run.run_id}
            says = f"The open plan and plan {number}, with their runs if there are any"
            st.page_link(places.COMPARE, label="Compare", query_params=pair, help=says, width="content")
        edits, runs = f"Edit plan {number}", f"Run plan {number}"
        text_button(edits, f"choice-edit-{first}", edit, first, icon="edit", help=edits)
        text_button(runs, f"choice-start-{first}", _run, plans.traces, [first], icon="play_arrow", help=runs)


def _notes(plans: _Plans) -> None:
    if plans.unread:
        st.caption(f"{plural(plans.unread, 'plan')} cannot be read: History says why.")
    if not repeats.all_equal(plans.found) or plans.moving:
        return
    plan = plans.traces[0]
    with across("choices-equal", gap="small"):
        said = f"All {len(plans.traces)} plans are equal. {repeats.how_to_vary(plan)}"
        st.markdown(f":orange[:material/info: {inert(said)}]", width="stretch")
        warmer = min(MOST_TEMPERATURE, round((plan.plan_temperature or 0.0) + USUAL_TEMPERATURE, 1))
        if plan.plan_temperature != warmer:
            count = max(len(plans.traces), 2)
            button(f"Resample at {warmer:g}", "resample-warmer", task_box.begin_plans, plan.task, count, warmer)


def _cancel(traces: Sequence[RunTrace]) -> None:
    for trace in traces:
        if not trace.ended:
            current().host.cancel(trace.run_id, local_caller("page"))


def _run(traces: Sequence[RunTrace], run_ids: Sequence[str]) -> None:
    """Starts a run of each of these plans, all with the same seed. A single one is opened."""
    plans = {trace.run_id: trace for trace in traces}
    begun = []
    with kept_fault(ERROR):
        for run_id in run_ids:
            request = repeats.run_of(plans[run_id], door="page", seed=current().settings.seed)
            begun.append(current().host.start(request, keys=settings.typed_keys()))
    if len(run_ids) == 1 and begun:
        places.write("run", begun[0])


# One step, run again many times.

_MOST_ANSWERS_READ = 200
_MOST_BUTTONS, _MOST_GROUPS = 10, 5
_LONG = 60  # characters, of a conclusion that its column may cut
_ANSWER_COLUMNS = (0.7, 5, 1.6, 4)


def again_results(trace: RunTrace) -> None:
    """Draws the panel if ``trace`` is one of such runs, or the run that the last of them were made from."""
    try:
        batch = _batch(trace)
        found_runs = [] if batch is None else _read_traces(_listed(batch))
    except InspectorError:
        return  # the page says what is wrong with the database
    runs = [run for run in found_runs if repeats.again_of(run) is not None]
    if batch is None or not runs:
        return
    source = trace if runs[0].parent_run_id == trace.run_id else readable(runs[0].parent_run_id)
    found = repeats.tally(source or runs[0], runs)
    with st.container(border=True, key="again-results", gap="xsmall"):
        _answers_head(found, runs, source, trace)
        for each in found.tallies:
            _tally(each, trace)
    if found.running:
        drawn = [run.status for run in runs]
        rerun_when(lambda: [run.status for run in _listed(batch)] != drawn, EVERY_S)


def _batch(trace: RunTrace) -> str | None:
    if trace.purpose == repeats.PURPOSE and trace.batch is not None:
        return trace.batch.id
    made = current().store.runs(limit=_MOST_ANSWERS_READ, parent=trace.run_id, without=UNLISTED_PURPOSES)
    return next((run.batch_id for run in made if run.purpose == repeats.PURPOSE and run.batch_id is not None), None)


def _listed(batch: str) -> list[RunSummary]:
    return current().store.runs(limit=_MOST_ANSWERS_READ, batch=batch)


def _answers_head(found: repeats.Repeats, runs: Sequence[RunTrace], source: RunTrace | None, shown: RunTrace) -> None:
    count = len(runs)
    what = f"Step {found.step} alone" if found.extent == "only" else f"From step {found.step} on"
    with across("again-head", gap="small"):
        st.markdown(f"**{what}, {plural(count, 'time')}**", width="content")
        ended = f"{count - found.running} of {count} ended…" if found.running else ""
        simulated = "simulated workers" if found.simulated else ""
        said = " · ".join(filter(None, (ended, simulated, "agreement with its 95 % interval (Wilson)")))
        st.markdown(f":small[:gray[{said}]]", width="stretch")
        if found.running:
            button("Cancel", "again-cancel", _cancel, runs, icon="stop")
        if source is not None and source.run_id != shown.run_id:
            text_button("The run they were made from", "again-source", places.write, "run", source.run_id)


def _tally(found: repeats.Tally, shown: RunTrace) -> None:
    agree = ""
    if found.groups:
        share = found.groups[0].share
        agree = f" · **{share.share:.0%} ({share.low:.0%} to {share.high:.0%})** agree by {found.compared_by}"
    took = f" · {seconds(found.mean_ms)} on average" if found.mean_ms is not None else ""
    spent = f" · {found.usage.total_tokens:,} tokens · {inert(found.cost.in_line)}{took}"
    with across(f"again-agent-{found.agent}", gap="small"):
        st.html(agent_dot(found.agent, [spec.name for spec in shown.pool.workers]), width="content")
        answered = f"{found.answered} of {len(found.run_ids)} answered"
        st.markdown(f"**{inert(found.agent)}** :small[{answered}{agree}{spent}]", width="stretch")
    for place, group in enumerate(found.groups[:_MOST_GROUPS]):
        with st.container(key=f"again-row-{found.agent}-{place}"):
            _group(found, group, shown)
    if left := found.groups[_MOST_GROUPS:]:
        others = sum(len(group.run_ids) for group in left)
        said = f"and {plural(others, 'answer')} in {plural(len(left), 'smaller group')}, in History"
        st.markdown(f":small[:gray[{said}]]")
    if found.unanswered:
        with across(gap="small"):
            first = next((each.error for each in found.unanswered if each.error), None)
            why = f": {inert(first[:200])}" if first else ""
            st.markdown(f":small[:orange[△ {len(found.unanswered)} without an answer{why}]]", width="content")
            for each in found.unanswered[:_MOST_BUTTONS]:
                _open(found, each.run_id, shown, inert(run_status(each.status)))


def _group(found: repeats.Tally, group: repeats.AnswerGroup, shown: RunTrace) -> None:
    count_at, said_at, share_at, runs_at = _columns(_ANSWER_COLUMNS)
    count_at.markdown(f"**{len(group.run_ids)} ×**")
    before = " :gray-badge[as before]" if group.as_before else ""
    before += " :gray-badge[differs in wording]" if found.differs_in_wording(group) else ""
    long = inert(group.conclusion) if len(group.conclusion) > _LONG else None
    said_at.markdown(f"{inert(group.conclusion)}{before}", help=long)
    with share_at:
        st.html(html(TEMPLATE, "share", share=group.share.share, low=group.share.low, high=group.share.high))
    with runs_at, st.container(horizontal=True, gap=None, key=f"again-runs-{group.run_ids[0]}"):
        for run_id in group.run_ids[:_MOST_BUTTONS]:
            _open(found, run_id, shown, None)
        if len(group.run_ids) > _MOST_BUTTONS:
            st.markdown(f":small[:gray[and {len(group.run_ids) - _MOST_BUTTONS} more, in History]]", width="content")


def _open(found: repeats.Tally, run_id: str, shown: RunTrace, label: str | None) -> None:
    number = found.run_ids.index(run_id)
    text, says = label or str(number), inert(f"Open answer {number}: run {run_id}")
    text = f"**{text}**" if run_id == shown.run_id else text
    text_button(text, f"again-open-{run_id}", places.write, "run", run_id, help=says)


# The dialog.

USUAL_TIMES = 5
_OPEN, _ERROR, _LEFT = "step-again", "step-again-error", "step-again-left"
_EXTENTS: dict[repeats.Extent, str] = {"only": "This step alone", "from": "From here on"}


@dataclass(frozen=True)
class _Left:
    """Runs that were asked for and could not be started, and what they may spend together with those that were."""

    of: tuple[str, repeats.Again, float | None]  # the run, what was asked of it, and the budget
    requests: tuple[RunRequest, ...]
    cap: CostCap | None


def ask_again(trace: RunTrace, step: int) -> None:
    if trace.ended and step < len(trace.steps) and may_run_here(trace):
        st.session_state[_OPEN] = (trace.run_id, step)


def again_dialog(trace: RunTrace) -> None:
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
    dialog_scheme()
    st.caption(f"{inert(f'Step {step} · {own}:')} {instruction_markdown(trace.steps[step].instruction, 200)}")
    with fault_shown():
        _choices(trace, step, own, pool_info(trace.pool, current().settings).workers)


def _choices(trace: RunTrace, step: int, own: str, specs: Sequence[WorkerSpec]) -> None:
    """Raises: BadInput."""
    captions = ["Ends with its answer", "And all that its answer reaches"]
    extent: repeats.Extent = st.radio(
        "What runs",
        list(_EXTENTS),
        format_func=_EXTENTS.__getitem__,
        captions=captions,
        horizontal=True,
        key="again-extent",
    )
    left, right = st.columns([1, 2])
    times = left.number_input(
        "Times", 1, repeats.MOST_TIMES, USUAL_TIMES, key="again-times", help="Each is asked afresh"
    )
    offered = dict.fromkeys([own, *(spec.name for spec in specs)])
    says = f"Several answer beside each other{', with the same seeds' if all(map(takes_seed, specs)) else ''}"
    agents = right.multiselect(
        "Workers", list(offered), default=[own], key=f"again-agents-{step}", help=says, placeholder=f"{own}, as it was"
    )
    budget = left.number_input(
        "At most USD", min_value=0.0, value=trace.limits.max_usd, step=0.1, format="%.4f", key="again-usd",
        placeholder="no limit", help="For all of these runs together",
    )  # fmt: skip
    again = repeats.Again(step=step, extent=extent, times=int(times), agents=tuple(agents))
    forecast = repeats.forecast_repeats(trace, again, specs)
    with right:
        _expect(forecast, trace)
    show_fault(_ERROR)
    label = f"Run {plural(again.runs, 'time')}" if again.runs > 1 else "Run"
    if (rest := _left(trace, again, budget)) is not None:
        missing, started = len(rest.requests), again.runs - len(rest.requests)
        label = f"Run the {missing} that {'is' if missing == 1 else 'are'} missing"
        said = f"{started} of {plural(again.runs, 'run')} started. Another choice starts over."
        st.markdown(f":small[:gray[{said}]]")
    if button(label, "again-run", type="primary", icon="play_arrow"):
        _begin(trace, again, forecast, budget)


def _expect(forecast: repeats.RepeatsForecast, trace: RunTrace) -> None:
    first = forecast.each[0]
    runs = numbers([step.index for step in first.will_run])
    reused = numbers([step.index for step in first.will_reuse])
    kept = f" · ↺ **{reused}** reused" if reused else ""
    st.markdown(
        f":small[▶ **{runs or 'none'}** will run in each{kept}  \n"
        f"{plural(forecast.runs, 'run')}: about {forecast.estimated_tokens:,} tokens, {inert(forecast.cost.in_line)}]"
    )
    for said in dict.fromkeys(each.effects_again for each in forecast.each if each.effects_again):
        st.markdown(f":small[:orange[◆ {inert(said)}]]")
    if trace.simulated:
        st.markdown(":small[:gray[Simulated workers draw each answer from its seed.]]")
    elif any(step.agent == CONDUCTOR_AGENT for step in first.will_run):
        st.markdown(":small[:gray[A Conductor step also replans.]]")


def _left(trace: RunTrace, again: repeats.Again, max_usd: float | None) -> _Left | None:
    left: _Left | None = st.session_state.get(_LEFT)
    return left if left is not None and left.of == (trace.run_id, again, max_usd) else None


def _begin(trace: RunTrace, again: repeats.Again, forecast: repeats.RepeatsForecast, max_usd: float | None) -> None:
    """Starts all runs, or those that are left. A single one is opened; the answers of several appear on this page."""
    started: list[str] = []
    try:
        left = _left(trace, again, max_usd) or _asked_for(trace, again, forecast, max_usd)
        for request in left.requests:
            started.append(current().host.start(request, left.cap, keys=settings.typed_keys()))
    except InspectorError as error:
        st.session_state[_ERROR] = str(error)
        if started:
            st.session_state[_LEFT] = replace(left, requests=left.requests[len(started) :])
        st.rerun()
    st.session_state.pop(_LEFT, None)
    _close()
    if again.runs == 1:
        places.write("run", started[0])
    st.rerun()


def _asked_for(
    trace: RunTrace, again: repeats.Again, forecast: repeats.RepeatsForecast, max_usd: float | None
) -> _Left:
    """Returns all runs as what is left. Raises: BadInput if the budget cannot be kept."""
    called = {step.agent for each in forecast.each for step in each.will_run}
    specs = pool_info(trace.pool, current().settings).workers
    cap = None
    if max_usd is not None:
        cap = CostCap(BatchSpent(), max_usd=max_usd, then="run the step again")
        cap.check_workers(who_may_be_called(called, specs))
    requests = repeats.repeat_requests(trace, again, [spec.name for spec in specs], door="page")
    return _Left((trace.run_id, again, max_usd), requests, cap)

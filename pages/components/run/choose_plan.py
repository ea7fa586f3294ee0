"""Several plans for one task beside each other: one row for each, to open, edit, run and compare.

The rows stand on the page of each of these plans, and of each run of one. The graph below draws the plan that is open.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from conductor_core.engine import repeats
from conductor_core.engine.estimates import usual_answer_tokens
from conductor_core.engine.repeats import PlanChoice, batch_of_plans, choices, run_of
from conductor_core.errors import InspectorError
from conductor_core.run.actor import local_caller
from conductor_core.run.costs import Cost
from conductor_core.run.request import MOST_TEMPERATURE, REPLAY_PURPOSE, USUAL_TEMPERATURE
from conductor_core.run.trace import RunTrace
from pages.components.app import address, places
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.run import task_box, typed_keys
from pages.components.style.figures import agent_dot
from pages.components.style.formats import inert, plural, run_status
from storage import RunSummary

ERROR = "choose-plan-error"
EVERY_S = 0.7  # between two looks while plans are written or run
_RUNS_READ = 50
_MOST_READ = 100
_COLUMNS = (1.5, 1.1, 1.3, 4.6, 0.9, 1.0, 1.4, 1.8)
_HEADS = ("Plan", "Shape", "Critical path", "Agents", "Tokens", "Cost", "Run", "")


@dataclass(frozen=True)
class _Plans:
    """The plans of one batch, as they stand.

    Attributes:
        unread: how many of them cannot be read.
        runs: the latest run of each plan that was run, by the plan's id.
        statuses: of plans and runs, to tell whether something has happened since.
    """

    traces: tuple[RunTrace, ...]
    unread: int
    found: tuple[PlanChoice, ...]
    runs: dict[str, RunSummary]
    statuses: Sequence[str]

    @property
    def written(self) -> int:
        return sum(trace.ended for trace in self.traces)

    @property
    def moving(self) -> bool:
        running = any(run.status in ("queued", "running") for run in self.runs.values())
        return running or self.written < len(self.traces)

    def run_of(self, choice: PlanChoice) -> RunSummary | None:
        return next((self.runs[each] for each in choice.run_ids if each in self.runs), None)

    @property
    def runnable(self) -> list[PlanChoice]:
        """The plans that nobody has run."""
        return [each for each in self.found if each.workflow is not None and self.run_of(each) is None]


def plan_choices(trace: RunTrace, edit: Callable[[str], None]) -> None:
    """Draws the rows if ``trace`` is one of several plans for a task, or a run of one.

    ``edit`` opens the editor of a plan, by its run's id.
    """
    plan = _plan_of(trace)
    batch = None if plan is None else batch_of_plans(plan)
    if plan is None or batch is None:
        return
    plans = _read(batch)
    with st.container(border=True, key="plan-choices"):
        _head(plans, plan)
        _rows(plans, plan, edit)
        _notes(plans)
    if plans.moving:
        _follow(batch, plans)


def _follow(batch: str, drawn: _Plans) -> None:
    """Draws the page anew once a plan is written, or a run of one has ended."""

    @st.fragment(run_every=EVERY_S)
    def follow() -> None:
        if _statuses(batch) != drawn.statuses:
            st.rerun()

    follow()


def _statuses(batch: str) -> list[str]:
    try:
        plans = current().store.runs(limit=_MOST_READ, batch=batch)
        return [*(run.status for run in plans), *(run.status for run in _latest_runs(plans).values())]
    except InspectorError:
        return []  # drawing the page says what is wrong


def _latest_runs(plans: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Returns the latest run of each plan that was run."""
    found = {plan.run_id: current().store.runs(limit=1, parent=plan.run_id, without=REPLAY_PURPOSE) for plan in plans}
    return {run_id: runs[0] for run_id, runs in found.items() if runs}


def _plan_of(trace: RunTrace) -> RunTrace | None:
    """Returns the plan to choose from that ``trace`` is, or that it is a run of; None: neither."""
    if batch_of_plans(trace) is not None:
        return trace
    if trace.parent_run_id is None:
        return None
    try:
        parent = current().store.trace(trace.parent_run_id)[0]
    except InspectorError:  # deleted, or damaged: its own page says so
        return None
    return parent if batch_of_plans(parent) is not None else None


def _read(batch: str) -> _Plans:
    store = current().store
    traces: list[RunTrace] = []
    try:
        listed = store.runs(limit=_MOST_READ, batch=batch)
        runs, unread = _latest_runs(listed), 0
        for plan in listed:
            try:
                traces.append(store.trace(plan.run_id)[0])
            except InspectorError:
                unread += 1
        answer_tokens = usual_answer_tokens(traces[0].pool.name if traces else "", store.runs(limit=_RUNS_READ))
    except InspectorError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return _Plans((), 0, (), {}, [])
    viewed([trace.run_id for trace in traces], "run page")
    statuses = [*(plan.status for plan in listed), *(run.status for run in runs.values())]
    return _Plans(tuple(traces), unread, tuple(choices(traces, answer_tokens)), runs, statuses)


def _head(plans: _Plans, plan: RunTrace) -> None:
    count = plan.batch.size if plan.batch is not None else len(plans.traces)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="choices-head"):
        st.markdown("**Plans to choose from**", width="content")
        going = plans.written < len(plans.traces)
        different = len([each for each in plans.found if each.workflow is not None])
        said = f"{plans.written} of {count} written…" if going else f"{count} written, {different} different"
        warm = "" if plan.plan_temperature is None else f" · temperature {plan.plan_temperature:g}"
        st.markdown(f":small[:gray[{said}{warm} · tokens and cost are estimates of a run]]", width="stretch")
        if going:
            st.button("Cancel", key="choices-cancel", icon=":material/stop:", on_click=_cancel, args=(plans.traces,))
            return
        st.button(
            "Resample",
            key="resample",
            icon=":material/refresh:",
            help=f"Has {plural(count, 'plan')} written again, with fresh seeds",
            on_click=_again,
            args=(plan, count, plan.plan_temperature),
        )
        _run_all(plans)
    if message := st.session_state.pop(ERROR, None):
        st.error(inert(message), icon=":material/error:")


def _run_all(plans: _Plans) -> None:
    left = plans.runnable
    if len(left) < 2:
        return
    tokens = sum(each.forecast.estimated_tokens for each in left if each.forecast is not None)
    cost = sum((each.cost for each in left if each.cost is not None), Cost())
    st.button(
        f"Run all {len(left)} · about {tokens:,} tokens, {inert(cost.in_line)}",
        key="run-all",
        icon=":material/play_arrow:",
        on_click=_run,
        args=(tuple(plans.traces), tuple(each.run_ids[0] for each in left)),
    )


def _rows(plans: _Plans, plan: RunTrace, edit: Callable[[str], None]) -> None:
    with st.container(key="choices-rows", gap=None):
        with st.container(key="choices-row-head"):
            for column, head in zip(_columns(), _HEADS, strict=True):
                column.markdown(f":small[:gray[{head}]]")
        for place, choice in enumerate(plans.found):
            with st.container(key=f"choices-row-{place}"):
                _row(plans, choice, plan, edit)


def _columns() -> Sequence[DeltaGenerator]:
    return st.columns(_COLUMNS, vertical_alignment="center", gap="small", wrap=False)


def _row(plans: _Plans, choice: PlanChoice, plan: RunTrace, edit: Callable[[str], None]) -> None:
    open_at, shape_at, path_at, agents_at, tokens_at, cost_at, run_at, act_at = _columns()
    first = choice.run_ids[0]
    shown, number = plan.run_id in choice.run_ids, ", ".join(map(str, choice.numbers))
    times = f" ×{len(choice.numbers)}" if len(choice.numbers) > 1 else ""
    open_at.button(
        f"**Plan {number}{times}**" if shown else f"Plan {number}{times}",
        key=f"choose-{first}",
        icon=":material/arrow_right:" if shown else None,
        help=f"Equal plans: {number}" if times else None,
        type="tertiary",
        on_click=address.write,
        args=("run", first),
    )
    if choice.workflow is None or choice.forecast is None:
        with agents_at:
            st.markdown(_without_a_plan(choice))
        return
    steps = len(choice.workflow.steps)
    shape_at.markdown(f":small[{choice.topology}]")
    path_at.markdown(f":small[{choice.critical_path} of {plural(steps, 'step')}]")
    with agents_at:
        st.html(_agents(choice, [spec.name for spec in plan.pool.workers]))
    tokens_at.markdown(f":small[{choice.forecast.estimated_tokens:,}]")
    cost_at.markdown(f":small[{inert(str(choice.cost))}]")
    with run_at:
        _latest(plans.run_of(choice))
    with (
        act_at,
        st.container(
            horizontal=True,
            horizontal_alignment="right",
            vertical_alignment="center",
            gap=None,
            key=f"icon-only-choice-{first}",
        ),
    ):
        _actions(plans, choice, plan, number, edit)


def _without_a_plan(choice: PlanChoice) -> str:
    if choice.status in ("running", "queued"):
        return ":small[:gray[◔ being written…]]"
    said = choice.faults[0].message if choice.faults else choice.error or run_status(choice.status)
    return f":small[:red[:material/error: {inert(said)}]]"


def _agents(choice: PlanChoice, pool: Sequence[str]) -> str:
    names = "".join(f"<span>{agent_dot(agent, pool)} {escape(agent)}</span>" for agent in choice.agents)
    return f'<div class="choice-agents" title="{escape(", ".join(choice.agents))}">{names}</div>'


def _latest(run: RunSummary | None) -> None:
    if run is None:
        st.markdown(":small[:gray[not run]]")
        return
    st.button(
        inert(run_status(run.status)),
        key=f"choice-run-{run.run_id}",
        type="tertiary",
        help=inert(f"Open run {run.run_id}"),
        on_click=address.write,
        args=("run", run.run_id),
    )


def _actions(plans: _Plans, choice: PlanChoice, plan: RunTrace, number: str, edit: Callable[[str], None]) -> None:
    first = choice.run_ids[0]
    if plan.run_id not in choice.run_ids:
        shown = next((each for each in plans.found if plan.run_id in each.run_ids), None)
        ours = None if shown is None else plans.run_of(shown)
        theirs = plans.run_of(choice)
        st.page_link(
            places.COMPARE,
            label="Compare",
            query_params={
                "a": plan.run_id if ours is None else ours.run_id,
                "b": first if theirs is None else theirs.run_id,
            },
            help=f"The open plan and plan {number}, with their runs if there are any",
            width="content",
        )
    st.button(
        f"Edit plan {number}",
        key=f"choice-edit-{first}",
        icon=":material/edit:",
        type="tertiary",
        help=f"Edit plan {number}",
        on_click=edit,
        args=(first,),
    )
    st.button(
        f"Run plan {number}",
        key=f"choice-start-{first}",
        icon=":material/play_arrow:",
        type="tertiary",
        help=f"Run plan {number}",
        on_click=_run,
        args=(tuple(plans.traces), (first,)),
    )


def _notes(plans: _Plans) -> None:
    if plans.unread:
        st.caption(f"{plural(plans.unread, 'plan')} cannot be read: History says why.")
    if not repeats.all_equal(plans.found) or plans.moving:
        return
    plan = plans.traces[0]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="choices-equal"):
        said = f"All {len(plans.traces)} plans are equal. {repeats.how_to_vary(plan)}"
        st.markdown(f":orange[:material/info: {inert(said)}]", width="stretch")
        warmer = min(MOST_TEMPERATURE, round((plan.plan_temperature or 0.0) + USUAL_TEMPERATURE, 1))
        if plan.plan_temperature != warmer:
            label, args = f"Resample at {warmer:g}", (plan, len(plans.traces), warmer)
            st.button(label, key="resample-warmer", on_click=_again, args=args)


def _again(plan: RunTrace, count: int, temperature: float | None) -> None:
    task_box.begin_plans(plan.task, max(count, 2), temperature)


def _cancel(traces: Sequence[RunTrace]) -> None:
    for trace in traces:
        if not trace.ended:
            current().host.cancel(trace.run_id, local_caller("page"))


def _run(traces: Sequence[RunTrace], run_ids: Sequence[str]) -> None:
    """Starts a run of each of these plans, all with the same seed. A single one is opened."""
    plans = {trace.run_id: trace for trace in traces}
    begun = []
    try:
        for run_id in run_ids:
            request = run_of(plans[run_id], door="page", seed=current().settings.seed)
            begun.append(current().host.start(request, keys=typed_keys.mine()))
    except InspectorError as error:
        st.session_state[ERROR] = str(error)
    if len(run_ids) == 1 and begun:
        address.write("run", begun[0])

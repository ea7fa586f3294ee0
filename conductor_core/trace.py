"""Folds a run's events into its trace, which the live page, a reload, the command line and a re-run all read."""

from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Any, assert_never

from pydantic import BaseModel

from conductor_core import events as ev
from conductor_core.approval_fold import apply_approval, deny, hear, replace_requests
from conductor_core.chat import Usage, sum_of_costs
from conductor_core.events import Event
from conductor_core.progress import Progress
from conductor_core.run_facts import label
from conductor_core.run_trace import (
    AT_REST,
    ENDED_STATUSES,
    Attempt,
    Mutable,
    PlanAttempt,
    RejectedPlan,
    ReusedFrom,
    RoundTrace,
    RunStatus,
    RunTrace,
    StepTrace,
)
from conductor_core.workflow.model import Workflow

__all__ = [
    "ENDED_STATUSES",
    "Attempt",
    "PlanAttempt",
    "ReusedFrom",
    "RoundTrace",
    "RunStatus",
    "RunTrace",
    "StepTrace",
    "apply",
    "begin",
    "fold",
]


def fold(events: Iterable[Event]) -> RunTrace:
    """Returns the trace after ``events``, the first of which must be ``run.created``. Raises: ValueError."""
    trace: RunTrace | None = None
    for event in events:
        if trace is None:
            trace = begin(event)
        else:
            apply(trace, event)
    if trace is None:
        raise ValueError("no events: a trace begins with run.created")
    return trace


def begin(event: Event) -> RunTrace:
    """Returns the trace after its first event. Raises: ValueError if that is not ``run.created``."""
    if not isinstance(event, ev.RunCreated):
        raise ValueError(f"a trace begins with run.created, not {event.kind}")
    fields = _fields_of(event.request, RunTrace) | _fields_of(event, RunTrace)
    status = "queued" if event.queued else "running"
    return RunTrace(created_at_utc=event.at_utc, clock_zero_utc=event.at_utc, status=status, **fields)


def apply(trace: RunTrace, event: Event) -> None:
    """Changes ``trace`` by one event, in place.

    Raises, and leaves ``trace`` as it was: KeyError for a step or round that no earlier event opened; ValueError for a
        second ``run.created``.
    """
    if isinstance(event, ev.StepEvent):  # first: most events are
        _apply_step(trace, event)
    elif isinstance(event, ev.PlanEvent):
        _apply_plan(trace, event)
    elif isinstance(event, ev.FinalEvent):
        _apply_end(trace, event)
    elif isinstance(event, ev.ApprovalEvent):
        apply_approval(trace, event)
    elif isinstance(event, ev.RunTaken):
        if trace.status not in AT_REST:
            raise ValueError("only a run that is queued or waits can be taken up")
        trace.status, trace.waiting_since_utc = "running", None
        trace.clock_zero_utc = event.at_utc - timedelta(milliseconds=event.at_ms)
    elif isinstance(event, ev.TextRedacted):
        for each in event.taken_out:
            trace.redacted[each.what] = trace.redacted.get(each.what, 0) + each.count
    elif isinstance(event, ev.RunCreated):
        raise ValueError("run.created stands only at the beginning")
    else:
        assert_never(event)
    trace.last_at_ms = max(trace.last_at_ms, event.at_ms)


def _apply_plan(trace: RunTrace, event: ev.PlanEvent) -> None:
    if isinstance(event, ev.PlanStarted) and event.round:
        opener = trace.step_at(event.round)
        if opener.round is None:
            opener.round = RoundTrace(path=event.round)
    round_ = trace.round_at(event.round)
    round_.progress = _still(round_.progress, event)
    match event:
        case ev.PlanProgress():
            round_.progress = event.progress
        case ev.PlanStarted():
            round_.status, round_.messages = "planning", event.messages
            round_.raw, round_.reasoning = "", ""
            round_.agents = event.agents
            if round_.started_ms is None:
                round_.started_ms = event.at_ms
        case ev.PlanDelta():
            if event.reasoning:
                round_.reasoning += event.text
                return
            if not round_.raw and not round_.rejected and round_.started_ms is not None:
                round_.first_token_ms = event.at_ms - round_.started_ms
            round_.raw += event.text
        case ev.PlanRetried():
            round_.retries.append(PlanAttempt(**_fields_of(event, PlanAttempt)))
            round_.raw, round_.reasoning = "", ""
            _spend_on_plan(trace, round_, event)
        case ev.PlanRejected():
            round_.status = "rejected"
            round_.rejected.append(RejectedPlan(reasoning=round_.reasoning, **_fields_of(event, RejectedPlan)))
            _spend_on_plan(trace, round_, event)
        case ev.PlanCompleted():
            round_.source, round_.raw, round_.topology = event.source, event.raw, event.topology
            round_.repairs, round_.warnings, round_.considered = event.repairs, event.warnings, event.considered
            round_.precision = event.precision
            if event.first_token_ms is not None:
                round_.first_token_ms = event.first_token_ms
            _spend_on_plan(trace, round_, event)
            _set_workflow(trace, round_, event.workflow)
        case ev.PlanEdited():
            _apply_edit(trace, round_, event)
        case _:
            assert_never(event)


def _spend_on_plan(
    trace: RunTrace, round_: RoundTrace, event: ev.PlanCompleted | ev.PlanRetried | ev.PlanRejected
) -> None:
    cost_usd = event.cost_usd
    if not isinstance(event, ev.PlanRetried) and event.precision is not None and trace.conductor is not None:
        # Which precision is quicker may have been found out only when the model was loaded.
        trace.conductor = trace.conductor.model_copy(update={"precision": event.precision})
    if event.at_list_price is None and event.usage.total_tokens and trace.conductor and trace.conductor.price is None:
        cost_usd = None  # An older record: the cost is unknown, and it is not in the run's total.
    round_.duration_ms = (round_.duration_ms or 0.0) + event.duration_ms
    _spend(round_, event.usage, cost_usd, at_list_price=bool(event.at_list_price))
    _spend(trace, event.usage, event.cost_usd, at_list_price=bool(event.at_list_price))


def _apply_edit(trace: RunTrace, round_: RoundTrace, event: ev.PlanEdited) -> None:
    """Raises: ValueError if the command was answered before, or if a step that has begun would differ."""
    begun = [step for step in round_.steps if step.status != "waiting"]
    for step in begun:
        after = event.after.steps[step.index] if step.index < len(event.after.steps) else None
        if after is None or (after.agent, after.instruction, after.access_list) != (
            step.agent,
            step.instruction,
            step.access_list,
        ):
            raise ValueError(f"step {label(step.path)} has begun, and the edit changes it")
    hear(trace, event.command)
    # Of several edits, the plan before the first is kept, to which no list of origins leads from the last.
    again = round_.before_edit is not None
    round_.edited_by, round_.edit_origins = event.caller, None if again else event.origins
    round_.before_edit = round_.before_edit or event.before
    round_.topology, round_.warnings = event.topology or round_.topology, event.warnings
    replace_requests(trace, round_, event.after)
    if event.command is not None and not round_.path:  # the request's own edit is in its numbers already
        trace.overrides = trace.overrides.moved(event.before, event.after, event.origins)
    _set_workflow(trace, round_, event.after)
    for step in begun:
        round_.steps[step.index] = step


def _set_workflow(trace: RunTrace, round_: RoundTrace, workflow: Workflow) -> None:
    simulated = {spec.name for spec in trace.pool.workers if spec.simulated}
    trace.workflow = None
    round_.workflow = workflow
    round_.status = "planned" if workflow.steps else "stopped"
    round_.steps = [
        StepTrace(
            path=(*round_.path, index),
            instruction=step.instruction,
            agent=step.agent,
            access_list=step.access_list,
            reads=workflow.reads(index),
            simulated=step.agent in simulated,
        )
        for index, step in enumerate(workflow.steps)
    ]


def _spend_on_step(
    trace: RunTrace, step: StepTrace, usage: Usage, cost_usd: float | None, *, at_list_price: bool
) -> None:
    _spend(step, usage, cost_usd, at_list_price=at_list_price)
    _spend(trace, usage, cost_usd, at_list_price=at_list_price)


def _spend(by: RunTrace | RoundTrace | StepTrace, usage: Usage, cost_usd: float | None, *, at_list_price: bool) -> None:
    by.usage += usage
    by.cost_usd = sum_of_costs((by.cost_usd, cost_usd))
    by.known_usd += cost_usd or 0.0
    by.at_list_price |= at_list_price


def _still(known: Progress | None, event: Event) -> Progress | None:
    """Returns the progress that is still known after ``event``: text keeps that of a text, all else clears it."""
    if known is None:  # as nearly always
        return None
    return known if isinstance(event, ev.StepDelta | ev.PlanDelta) and known.writes else None


def _apply_delta(step: StepTrace, event: ev.StepDelta) -> None:
    if step.first_token_ms is None and step.started_ms is not None:
        step.first_token_ms = event.at_ms - step.started_ms
    if event.reasoning:
        step.reasoning += event.text
    else:
        step.output += event.text


def _apply_step(trace: RunTrace, event: ev.StepEvent) -> None:
    step = trace.step_at(event.path)
    step.progress = _still(step.progress, event)
    match event:
        case ev.StepDelta():
            _apply_delta(step, event)
        case ev.StepProgress():
            step.progress = event.progress
        case ev.StepStarted():
            step.status, step.started_ms, step.identity = "running", event.at_ms, event.identity
            step.messages, step.granted, step.withheld = event.messages, event.granted, event.withheld
        case ev.StepRetried():
            step.attempts.append(Attempt(**_fields_of(event, Attempt)))
            step.output, step.reasoning = "", ""
            _spend_on_step(trace, step, event.usage, event.cost_usd, at_list_price=bool(event.cost_usd))
        case ev.StepCompleted():
            step.status = event.ending
            _take_answer(step, event)
            step.first_token_ms, step.duration_ms = event.first_token_ms, event.duration_ms
            _spend_on_step(trace, step, event.usage, event.cost_usd, at_list_price=event.cost_estimated)
        case ev.StepFailed():
            step.status, step.output, step.incomplete = "failed", event.partial, True
            step.error_code, step.error, step.duration_ms = event.error_code, event.error, event.duration_ms
            _spend_on_step(trace, step, event.usage, event.cost_usd, at_list_price=bool(event.cost_usd))
        case ev.StepSkipped():
            step.status, step.because = "skipped", event.because
        case ev.StepReused():
            step.status = "reused" if event.ending == "completed" else event.ending
            _take_answer(step, event)
            step.identity, step.messages = event.identity, event.messages
            step.granted, step.withheld = event.granted, event.withheld
            step.usage, step.cost_usd, step.at_list_price = event.usage, event.cost_usd, event.cost_estimated
            step.known_usd = event.cost_usd or 0.0
            step.started_ms, step.duration_ms = event.at_ms, event.duration_ms
            step.reasoning = event.reasoning
            step.reused_from = ReusedFrom(
                run_id=event.source_run_id, path=event.source_path, imported=event.source_imported
            )
        case ev.StepGiven():
            _take_given(step, event)
        case ev.RecursionEntered() | ev.RecursionLeft():
            if step.round is None:
                step.round = RoundTrace(path=event.path)
        case _:
            assert_never(event)


def _take_given(step: StepTrace, event: ev.StepGiven) -> None:
    given = step.given = event.given
    step.output, step.output_sha256, step.finish_reason = event.output, event.output_sha256, "stop"
    step.started_ms, step.duration_ms = event.at_ms, 0.0
    step.simulated = step.simulated and given.how == "pinned"
    if given.source_run_id is not None and given.source_path is not None:
        step.status = "reused"
        step.reused_from = ReusedFrom(
            run_id=given.source_run_id, path=given.source_path, imported=given.source_imported
        )
    else:
        step.status = "written"


def _take_answer(step: StepTrace, event: ev.StepCompleted | ev.StepReused) -> None:
    step.output, step.output_sha256 = event.output, event.output_sha256
    step.finish_reason, step.incomplete, step.model = event.finish_reason, event.incomplete, event.model
    step.ending, step.refusal, step.tool_calls = event.ending, event.refusal, event.tool_calls
    step.answered_by, step.passed_on = event.answered_by, event.passed_on


def _fields_of(event: Event | ev.RunRequest, kind: type[Mutable]) -> dict[str, Any]:
    """Returns the fields of ``event`` that ``kind`` keeps under the same names."""
    return {name: getattr(event, name) for name in _names_in_both(type(event), kind)}


@cache
def _names_in_both(event: type[BaseModel], kind: type[Mutable]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name in event.model_fields or hasattr(event, name))


def _apply_end(trace: RunTrace, event: ev.FinalEvent) -> None:
    if event.usage.total_tokens > trace.usage.total_tokens:
        # Calls that were broken off have no event. Their estimated cost is only in the totals.
        read = event.usage.input_tokens - trace.usage.input_tokens
        written = event.usage.output_tokens - trace.usage.output_tokens
        trace.broken_off = Usage(input_tokens=read, output_tokens=written, estimated=True)
        trace.usage, trace.cost_usd = event.usage, event.cost_usd
        known_usd = event.cost_usd if event.known_usd is None else event.known_usd
        if known_usd is not None:
            trace.at_list_price |= known_usd > trace.known_usd
            trace.broken_off_usd = known_usd - trace.known_usd
            trace.known_usd = known_usd
    trace.waiting_since_utc = None
    match event:
        case ev.RunCompleted():
            trace.status = "planned" if trace.plan_only else event.ending
            trace.answer, trace.duration_ms = event.answer, event.duration_ms
        case ev.RunFailed():
            trace.status, trace.duration_ms = "failed", event.duration_ms
            trace.error_code, trace.error = event.error_code, event.error
        case ev.RunCancelled():
            trace.heard = max(trace.heard, event.command or 0)
            trace.status, trace.duration_ms, trace.ended_by = "cancelled", event.duration_ms, event.caller
        case ev.RunInterrupted():
            trace.status, trace.duration_ms = "interrupted", max(trace.last_at_ms, event.at_ms)
        case ev.RunDenied():
            trace.duration_ms = event.duration_ms
            deny(trace, event)
        case _:
            assert_never(event)
    for step in trace.walk():
        if step.status == "running":
            step.status, step.incomplete = "cancelled", True
        elif step.status == "waiting" and not trace.plan_only:
            step.status = "skipped"

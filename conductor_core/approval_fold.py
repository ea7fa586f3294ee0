"""Folds the events of approvals into a run's trace."""

from typing import assert_never

from conductor_core import events as ev
from conductor_core.run_trace import Approval, RefusedCommand, RoundTrace, RunTrace
from conductor_core.workflow.model import Workflow


def hear(trace: RunTrace, command: int | None) -> None:
    """Notes that a command is answered. Raises: ValueError if it was answered before."""
    if command is None:
        return
    if command <= trace.heard:
        raise ValueError(f"command {command} is answered already")
    trace.heard = command


def apply_approval(trace: RunTrace, event: ev.ApprovalEvent) -> None:
    """Raises: ValueError, and leaves ``trace`` as it was, if the event cannot follow the events before it."""
    match event:
        case ev.ApprovalRequested():
            if event.number != len(trace.approvals) + 1:
                raise ValueError(f"request {event.number} cannot follow request {len(trace.approvals)}")
            fields = event.model_dump(exclude={"kind", "run_id", "at_utc", "at_ms", "messages", "most"})
            trace.approvals.append(
                Approval(requested_at_utc=event.at_utc, messages=event.messages, most=event.most, **fields)
            )
        case ev.ApprovalGranted() | ev.ApprovalDenied():
            _decide(trace, event)
        case ev.CommandRefused():
            hear(trace, event.command)
            refused = RefusedCommand(
                command=event.command, asked=event.asked, reason=event.reason, at_utc=event.at_utc, by=event.caller
            )
            trace.refused.append(refused)
        case ev.RunWaiting():
            if trace.status != "running" or not trace.asked_for:
                raise ValueError("only a running run waits, and only if something is asked for")
            trace.status, trace.waiting_since_utc = "waiting", event.at_utc
        case _:
            assert_never(event)


def _decide(trace: RunTrace, event: ev.ApprovalGranted | ev.ApprovalDenied) -> None:
    decided = [approval for approval in trace.asked_for if approval.number in event.numbers]
    if len(decided) != len(event.numbers) or not decided:
        raise ValueError(f"of the requests {event.numbers}, one is not there or is decided already")
    hear(trace, event.command)
    for approval in decided:
        approval.decided_by, approval.decided_at_utc = event.caller, event.at_utc
        approval.note, approval.command = event.note, event.command
        if isinstance(event, ev.ApprovalGranted):
            approval.status, approval.rest, approval.carried_from = "granted", event.rest, event.carried_from
            continue
        approval.status = "denied"
        if approval.of == "step" and trace.step_at(approval.path).status == "waiting":
            trace.step_at(approval.path).status = "denied"


def replace_requests(trace: RunTrace, round_: RoundTrace, after: Workflow) -> None:
    """Withdraws the open requests that are about a part of the round's plan which an edit to ``after`` changes."""
    before = round_.workflow
    for approval in trace.asked_for:
        if approval.of == "plan" and approval.path == round_.path:
            approval.status = "replaced"
        elif approval.path and approval.path[:-1] == round_.path and before is not None:
            index = approval.path[-1]
            if index >= len(after.steps) or after.steps[index] != before.steps[index]:
                approval.status = "replaced"


def deny(trace: RunTrace, event: ev.RunDenied) -> None:
    """Ends the run as denied. Steps that read a denied one, directly or not, are not run because of it."""
    trace.status, trace.ended_by = "denied", event.caller
    trace.error_code, trace.error = "Denied", event.error
    for round_ in trace.root.rounds():
        denied: dict[int, tuple[ev.Path, ...]] = {
            step.index: (step.path,) for step in round_.steps if step.status == "denied"
        }
        for step in round_.steps:
            above = dict.fromkeys(path for read in step.reads for path in denied.get(read, ()))
            if step.status == "waiting" and above:
                step.because = denied[step.index] = tuple(above)

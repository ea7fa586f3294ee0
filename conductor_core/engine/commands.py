"""Commands to a run, whichever process carries it out."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from conductor_core.actor import Caller
from conductor_core.commands import Cancel, SentCommand
from conductor_core.engine.request import RunRecords
from conductor_core.errors import EventOutOfOrder
from conductor_core.events import CommandRefused, Event, EventSink, RunCancelled, RunTaken, RunWaiting
from conductor_core.run_trace import AT_REST
from conductor_core.trace import RunTrace


class Stop(NamedTuple):
    """Why a run's task is cancelled. ``command``: the id of the command that asked for it; None: there was none."""

    caller: Caller
    command: int | None = None


def cancel(records: RunRecords, sink: EventSink, run_id: str, caller: Caller) -> None:
    """Has a run end. One that is queued or waits ends at once; the process that carries out any other hears of it.

    Raises: UnknownRun, RunHasEnded, StoreError.
    """
    number = records.send(Cancel(run_id=run_id, actor=caller.actor, door=caller.door))
    trace = records.read(run_id)
    if trace.status in AT_REST:
        at_ms = trace.last_at_ms
        ended = RunCancelled(
            run_id=run_id,
            at_ms=at_ms,
            duration_ms=at_ms,
            usage=trace.usage,
            cost_usd=trace.cost_usd,
            known_usd=trace.known_usd,
            actor=caller.actor,
            door=caller.door,
            command=number,
        )
        with suppress(EventOutOfOrder):  # a process has just taken it up, and hears the command
            sink.append_and_wait(RunTaken(run_id=run_id, at_ms=at_ms), ended)


def refusals(trace: RunTrace, commands: Sequence[SentCommand], reason: str) -> list[Event]:
    """Returns the events by which a run that waits refuses ``commands``, and waits on."""
    at = {"run_id": trace.run_id, "at_ms": trace.last_at_ms}
    refused = [
        CommandRefused(
            run_id=trace.run_id,
            at_ms=trace.last_at_ms,
            command=sent.id,
            asked=sent.command.kind,
            reason=reason,
            actor=sent.command.actor,
            door=sent.command.door,
        )
        for sent in commands
    ]
    return [RunTaken.model_validate(at), *refused, RunWaiting.model_validate(at)]

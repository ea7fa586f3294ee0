"""Commands to a run, whichever process carries it out."""

from contextlib import suppress
from typing import NamedTuple

from conductor_core.actor import Caller
from conductor_core.commands import Cancel
from conductor_core.engine.request import RunRecords
from conductor_core.errors import EventOutOfOrder
from conductor_core.events import EventSink, RunCancelled, RunTaken


class Stop(NamedTuple):
    """Why a run's task is cancelled. ``command``: the id of the command that asked for it; None: there was none."""

    caller: Caller
    command: int | None = None


def cancel(records: RunRecords, sink: EventSink, run_id: str, caller: Caller) -> None:
    """Has a run end. A queued one ends at once; the process that carries out any other hears of it.

    Raises: UnknownRun, RunHasEnded, StoreError.
    """
    number = records.send(Cancel(run_id=run_id, actor=caller.actor, door=caller.door))
    if records.read(run_id).status == "queued":
        ended = RunCancelled(run_id=run_id, actor=caller.actor, door=caller.door, command=number)
        with suppress(EventOutOfOrder):  # a process has just taken it up, and hears the command
            sink.append_and_wait(RunTaken(run_id=run_id), ended)

"""Reads, each on one connection. Events are only ever added and in order, so no two statements need one transaction."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from conductor_core import trace as folding
from conductor_core.chat import Usage
from conductor_core.errors import UnknownRun
from conductor_core.events import EVENT
from conductor_core.trace import RunTrace
from storage.encoding import fold_digest
from storage.records import RunSummary, StoredEvent
from storage.tables import EVENTS, RUNS, SNAPSHOTS

_SUMMARY = [column for column in RUNS.c if not column.name.startswith("owner_")]


def read_trace(connection: Connection, run_id: str) -> tuple[RunTrace, int]:
    """The run as it stands and the sequence of its last event: its snapshot with the tail folded in.

    Raises: UnknownRun.
    """
    snapshot = connection.execute(
        select(SNAPSHOTS.c.sequence, SNAPSHOTS.c.trace).where(
            SNAPSHOTS.c.run_id == run_id, SNAPSHOTS.c.fold_digest == fold_digest()
        )
    ).one_or_none()
    if snapshot is not None:
        trace = RunTrace.model_validate_json(snapshot.trace)
        sequence: int = snapshot.sequence
        tail = read_events(connection, run_id, after=sequence)
    else:
        tail = read_events(connection, run_id)
        if not tail:
            raise unknown_run(run_id)
        first = tail.pop(0)
        trace, sequence = folding.begin(first.event), first.sequence
    for stored in tail:
        folding.apply(trace, stored.event)
        sequence = stored.sequence
    return trace, sequence


def read_events(connection: Connection, run_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
    """The events of a run after the sequence ``after``, in order, at most ``limit``."""
    query = (
        select(EVENTS.c.sequence, EVENTS.c.payload)
        .where(EVENTS.c.run_id == run_id, EVENTS.c.sequence > after)
        .order_by(EVENTS.c.sequence)
        .limit(limit)
    )
    return [StoredEvent(sequence, EVENT.validate_json(payload)) for sequence, payload in connection.execute(query)]


def read_status(connection: Connection, run_id: str) -> str:
    """Raises: UnknownRun."""
    status: str | None = connection.scalar(select(RUNS.c.status).where(RUNS.c.run_id == run_id))
    if status is None:
        raise unknown_run(run_id)
    return status


def read_runs(
    connection: Connection, *, limit: int, before: int | None, search: str | None, status: str | None
) -> list[RunSummary]:
    """Runs, newest first. ``before``: only those whose sequence is lower (keyset paging)."""
    query = select(*_SUMMARY).order_by(RUNS.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(RUNS.c.sequence < before)
    if search:
        query = query.where(RUNS.c.task.icontains(search, autoescape=True))
    if status is not None:
        query = query.where(RUNS.c.status == status)
    return [_summary(row) for row in connection.execute(query)]


def read_run_ids(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Ids that begin with ``prefix``, newest first."""
    query = select(RUNS.c.run_id).where(RUNS.c.run_id.startswith(prefix, autoescape=True))
    return list(connection.scalars(query.order_by(RUNS.c.sequence.desc()).limit(limit)))


def read_unfinished(connection: Connection) -> list[tuple[str, str]]:
    """Id and owner of each run that has no final event, oldest first."""
    query = select(RUNS.c.run_id, RUNS.c.owner_id).where(RUNS.c.status == "running").order_by(RUNS.c.sequence)
    return [(run_id, owner_id) for run_id, owner_id in connection.execute(query)]


def unknown_run(run_id: str) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id!r} in this database")


def _summary(row: Row[Any]) -> RunSummary:
    values = dict(row._mapping)
    values["usage"] = Usage(input_tokens=values.pop("input_tokens"), output_tokens=values.pop("output_tokens"))
    values["created_at_utc"] = datetime.fromisoformat(values["created_at_utc"])
    values["agents"] = tuple(json.loads(values["agents"]))
    return RunSummary(**values)

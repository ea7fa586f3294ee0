"""Batches at a glance, from the rows of their runs."""

from collections import Counter, defaultdict
from typing import Any, get_args

from sqlalchemy import Connection, func, select

from conductor_core.chat import Usage
from conductor_core.trace import RunStatus
from storage.encoding import read_count, read_text, read_time
from storage.records import BatchSummary
from storage.tables import BATCHES, RUNS

_STATUSES = frozenset(get_args(RunStatus))


def read_batches(
    connection: Connection, limit: int, before: int | None = None, name: str | None = None, batch: str | None = None
) -> list[BatchSummary]:
    """Newest first; those of which all runs were deleted are left out."""
    query = select(BATCHES).order_by(BATCHES.c.sequence.desc()).limit(limit)
    query = query.where(BATCHES.c.batch_id.in_(select(RUNS.c.batch_id).where(RUNS.c.batch_id.is_not(None))))
    if before is not None:
        query = query.where(BATCHES.c.sequence < before)
    if batch is not None:
        query = query.where(BATCHES.c.batch_id == batch)
    if name is not None:
        query = query.where(BATCHES.c.name == name)
    found = [dict(row) for row in connection.execute(query).mappings()]
    counts = _counts(connection, [row["batch_id"] for row in found])
    return [_summary(row, counts[row["batch_id"]]) for row in found]


def _summary(row: dict[str, Any], counted: dict[str, Any]) -> BatchSummary:
    """A row that is damaged is told as far as it can be read: its runs are whole, and are found by it."""
    return BatchSummary(
        batch_id=read_text(row["batch_id"]),
        sequence=row["sequence"],
        created_at_utc=read_time(row["created_at_utc"]),
        name=read_text(row["name"]),
        size=read_count(row["size"]) or sum(counted["statuses"].values()),
        **counted,
    )


def _counts(connection: Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    own = RUNS.c.batch_id.in_(ids)
    totals = select(
        RUNS.c.batch_id,
        func.count(),
        func.max(RUNS.c.simulated),
        func.sum(RUNS.c.input_tokens),
        func.sum(RUNS.c.output_tokens),
        func.sum(RUNS.c.cost_usd),
        func.count(RUNS.c.cost_usd),
        func.sum(RUNS.c.known_usd),
    )
    # A task stands as its latest run: SQLite takes the other columns of a group from the row of its maximum.
    last = select(RUNS.c.batch_id, RUNS.c.status, func.max(RUNS.c.sequence)).where(own)
    statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for batch_id, status, _ in connection.execute(last.group_by(RUNS.c.batch_id, RUNS.c.batch_row)):
        statuses[batch_id][status if status in _STATUSES else "too_new"] += 1
    counted: dict[str, dict[str, Any]] = {}
    for batch_id, runs, simulated, read, written, usd, priced, known in connection.execute(
        totals.where(own).group_by(RUNS.c.batch_id)
    ):
        counted[batch_id] = {
            "runs": runs,
            "simulated": bool(simulated),
            "usage": Usage(input_tokens=read_count(read), output_tokens=read_count(written)),
            "cost_usd": usd if priced == runs else None,
            "known_usd": known,
            "statuses": dict(statuses[batch_id]),
        }
    return counted

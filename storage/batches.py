"""Batches at a glance, from the rows of their runs."""

from collections import Counter, defaultdict
from datetime import datetime

from sqlalchemy import Connection, func, select

from conductor_core.chat import Usage
from storage.records import BatchSummary
from storage.tables import BATCHES, RUNS


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
    return [
        BatchSummary(
            **row | {"created_at_utc": datetime.fromisoformat(row["created_at_utc"])}, **counts[row["batch_id"]]
        )
        for row in found
    ]


def _counts(connection: Connection, ids: list[str]) -> dict[str, dict[str, object]]:
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
        statuses[batch_id][status] += 1
    counted: dict[str, dict[str, object]] = {}
    for batch_id, runs, simulated, read, written, usd, priced, known in connection.execute(
        totals.where(own).group_by(RUNS.c.batch_id)
    ):
        counted[batch_id] = {
            "runs": runs,
            "simulated": bool(simulated),
            "usage": Usage(input_tokens=read, output_tokens=written),
            "cost_usd": usd if priced == runs else None,
            "known_usd": known,
            "statuses": dict(statuses[batch_id]),
        }
    return counted

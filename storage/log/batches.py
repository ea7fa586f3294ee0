"""Reads the summaries of batches from the rows of their runs."""

import sqlite3
from collections import Counter, defaultdict
from typing import Any, get_args

from conductor_core.chat.messages import Usage
from conductor_core.run.trace import RunStatus
from storage.encoding import count_of, read_count, read_text, read_time
from storage.records import ERASED, BatchSummary

_COLUMNS = ("batch_id", "sequence", "created_at_utc", "name", "size")
_FIRST = (
    "SELECT batch_id, min(sequence) AS sequence, created_at_utc, batch_name AS name, batch_size AS size FROM runs "
    "WHERE batch_id IS NOT NULL GROUP BY batch_id"
)
"""SQLite takes a group's other columns from the row with the minimum."""
_STATUSES = frozenset(get_args(RunStatus))


def read_batches(
    connection: sqlite3.Connection,
    limit: int,
    before: int | None = None,
    name: str | None = None,
    batch: str | None = None,
) -> list[BatchSummary]:
    """Returns batches, newest first, each as its first run describes it that was not deleted."""
    asked = {"sequence < :before": before, "batch_id = :batch": batch, "name = :name": name}
    narrowed = " AND ".join(condition for condition, value in asked.items() if value is not None) or "true"
    query = f"SELECT * FROM ({_FIRST}) WHERE {narrowed} ORDER BY sequence DESC LIMIT :limit"  # noqa: S608  own names
    bound = {"limit": limit, "before": before, "batch": batch, "name": name}
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in connection.execute(query, bound)]
    counts = _counts(connection, [row["batch_id"] for row in found])
    return [_summary(row, counts[row["batch_id"]]) for row in found]


def _summary(row: dict[str, Any], counted: dict[str, Any]) -> BatchSummary:
    """Reads what it can of a damaged row, because the batch's runs may be whole and are found by this row."""
    return BatchSummary(
        batch_id=read_text(row["batch_id"]),
        sequence=row["sequence"],
        created_at_utc=read_time(row["created_at_utc"]),
        name=read_text(row["name"] or ""),
        size=read_count(row["size"]) or sum(counted["statuses"].values()),
        **counted,
    )


def _counts(connection: sqlite3.Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    own = f"FROM runs WHERE batch_id IN ({', '.join('?' * len(ids))})"
    totals = (
        f"SELECT batch_id, count(*), max(simulated), {count_of('input_tokens')}, {count_of('output_tokens')}, "
        "sum(cost_usd), "
        f"count(cost_usd), sum(known_usd), max(cost_estimated) {own} GROUP BY batch_id"
    )
    # A task has the status of its latest run: SQLite takes a group's other columns from the row with the maximum.
    last = f"SELECT batch_id, status, max(sequence) {own} GROUP BY batch_id, batch_row"
    statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
    known = {*_STATUSES, ERASED}
    for batch_id, status, _ in connection.execute(last, ids):
        statuses[batch_id][status if status in known else "too_new"] += 1
    counted: dict[str, dict[str, Any]] = {}
    for batch_id, runs, simulated, read, written, usd, priced, known, estimated in connection.execute(totals, ids):
        counted[batch_id] = {
            "runs": runs,
            "simulated": bool(simulated),
            "usage": Usage(input_tokens=read_count(read), output_tokens=read_count(written)),
            "cost_usd": usd if priced == runs else None,
            "known_usd": known,
            "cost_estimated": priced == runs and bool(estimated),
            "statuses": dict(statuses[batch_id]),
        }
    return counted

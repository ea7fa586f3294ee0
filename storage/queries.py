"""Reads, each on one connection. Events are only ever added and in order, so no two statements need one transaction."""

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, or_, select

from conductor_core.chat import Usage
from conductor_core.trace import ENDED_STATUSES
from storage.reading import unknown_run
from storage.records import RunSummary
from storage.tables import EVENTS, RUNS

SUMMARY = [column for column in RUNS.c if not column.name.startswith("owner_") and column.name != "vocabulary"]


def read_status(connection: Connection, run_id: str) -> str:
    """Raises: UnknownRun."""
    status: str | None = connection.scalar(select(RUNS.c.status).where(RUNS.c.run_id == run_id))
    if status is None:
        raise unknown_run(run_id)
    return status


def read_rows(
    connection: Connection,
    *,
    limit: int,
    before: int | None,
    search: str | None,
    status: str | None,
    parent: str | None = None,
) -> list[dict[str, Any]]:
    """Rows of runs, newest first. ``before``: only those whose sequence is lower (keyset paging)."""
    query = select(*SUMMARY).order_by(RUNS.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(RUNS.c.sequence < before)
    if search:
        query = query.where(RUNS.c.task.icontains(search, autoescape=True))
    if status is not None:
        query = query.where(RUNS.c.status == status)
    if parent is not None:
        query = query.where(RUNS.c.parent_run_id == parent)
    return [dict(row) for row in connection.execute(query).mappings()]


def read_run_ids(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Ids that begin with ``prefix``, newest first."""
    query = select(RUNS.c.run_id).where(RUNS.c.run_id.startswith(prefix, autoescape=True))
    found = list(connection.scalars(query.order_by(RUNS.c.sequence.desc()).limit(limit)))
    if found:
        return found
    # A run whose own row is damaged still has its events.
    of_events = select(EVENTS.c.run_id).where(EVENTS.c.run_id.startswith(prefix, autoescape=True)).distinct()
    return list(connection.scalars(of_events.limit(limit)))


def read_unfinished(connection: Connection) -> list[tuple[str, str]]:
    """Id and owner of each run that has no final event, oldest first; also of one whose status is no word of ours."""
    ended, status = sorted(ENDED_STATUSES), RUNS.c.status
    # In the gaps between the words of ended runs, so that the index is used.
    gaps = [status < ended[0], *((status > low) & (status < high) for low, high in pairwise(ended)), status > ended[-1]]
    query = select(RUNS.c.run_id, RUNS.c.owner_id).where(or_(*gaps)).order_by(RUNS.c.sequence)
    return [(run_id, owner_id) for run_id, owner_id in connection.execute(query)]


def summary(row: Mapping[str, Any]) -> RunSummary:
    """Raises: ValueError (or TypeError) for a row that is damaged."""
    values = {column.name: row[column.name] for column in SUMMARY}
    values["usage"] = Usage(input_tokens=values.pop("input_tokens"), output_tokens=values.pop("output_tokens"))
    values["created_at_utc"] = datetime.fromisoformat(values["created_at_utc"])
    values["agents"] = tuple(json.loads(values["agents"]))
    return RunSummary(**values)

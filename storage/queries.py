"""Reads, each on one connection. Events are only ever added and in order, so no two statements need one transaction."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select

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


@dataclass(frozen=True)
class Search:
    """Which runs are wanted, as ``Store.runs`` takes them."""

    limit: int
    before: int | None = None
    text: str | None = None
    status: str | None = None
    parent: str | None = None
    batch: str | None = None
    alone: bool = False

    def finds(self, run: RunSummary) -> bool:
        """Whether ``run`` is one of them, whatever the limit."""
        return (
            (self.before is None or run.sequence < self.before)
            and (not self.text or self.text.lower() in run.task.lower())
            and self.status in (None, run.status)
            and self.parent in (None, run.parent_run_id)
            and self.batch in (None, run.batch_id)
            and not (self.alone and run.batch_id is not None)
        )


def read_rows(connection: Connection, search: Search) -> list[dict[str, Any]]:
    """Rows of runs, newest first."""
    query = filtered(select(*SUMMARY), search).order_by(RUNS.c.sequence.desc()).limit(search.limit)
    if search.before is not None:
        query = query.where(RUNS.c.sequence < search.before)
    if search.status is not None:
        query = query.where(RUNS.c.status == search.status)
    return [dict(row) for row in connection.execute(query).mappings()]


def filtered(query: Select[Any], search: Search) -> Select[Any]:
    """``query`` of runs, narrowed by all of ``search`` but its page and its status."""
    if search.text:
        query = query.where(RUNS.c.task.icontains(search.text, autoescape=True))
    if search.parent is not None:
        query = query.where(RUNS.c.parent_run_id == search.parent)
    if search.batch is not None:
        query = query.where(RUNS.c.batch_id == search.batch)
    if search.alone:
        query = query.where(RUNS.c.batch_id.is_(None))
    return query


def read_newest(connection: Connection) -> int:
    """The sequence of the newest event; 0: there is none."""
    return int(connection.execute(select(func.max(EVENTS.c.sequence))).scalar() or 0)


def read_cursor(connection: Connection, moment_utc: datetime) -> int:
    """The cursor of the page that begins with the last run before ``moment_utc``; 0: there is none."""
    query = select(RUNS.c.sequence).where(RUNS.c.created_at_utc < moment_utc.isoformat())
    found: int | None = connection.scalar(query.order_by(RUNS.c.created_at_utc.desc()).limit(1))
    return 0 if found is None else found + 1


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

"""Reads rows of runs. Events are only added, and in order, so no two statements need one transaction."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from typing import Any

from conductor_core.chat import Usage
from conductor_core.trace import ENDED_STATUSES
from storage.encoding import read_caller
from storage.reading import unknown_run
from storage.records import ERASED, SEALED_COLUMNS, RunSummary

_SUMMARY = [name for name in RunSummary.model_fields if name not in ("usage", "damage", "caller")]
_SUMMARY += ["input_tokens", "output_tokens", "actor", "door"]


def _opened(column: str) -> str:
    """Returns SQL for a text of ``runs`` that may be encrypted."""
    return f"CASE WHEN typeof({column}) = 'blob' THEN plain(run_id, '{column}', {column}) ELSE {column} END"


_COLUMNS = ", ".join(f"{_opened(name)} AS {name}" if name in SEALED_COLUMNS else name for name in _SUMMARY)
_RUNS = f"SELECT {_COLUMNS} FROM runs WHERE "  # noqa: S608  own names
_TREE = (
    "WITH RECURSIVE above(id) AS (VALUES (:tree) UNION SELECT parent_run_id FROM runs JOIN above ON run_id = id "
    "WHERE parent_run_id IS NOT NULL), whole(id) AS (SELECT id FROM above UNION SELECT run_id FROM runs JOIN whole "
    "ON parent_run_id = id) SELECT id FROM whole"
)
_FILTERS = {
    "text": f"instr(lower({_opened('task')}), lower(:text))",
    "parent": "parent_run_id = :parent",
    "tree": f"run_id IN ({_TREE})",
    "without": "purpose <> :without",
    "batch": "batch_id = :batch",
    "alone": "batch_id IS NULL",
    "recorded": "recorded",
}
_PAGE = {"before": "sequence < :before", "status": "status = :status"}
_WAITING = {"status": "asked_for IS NOT NULL"}
_ENDED = sorted({*ENDED_STATUSES, ERASED})
_IN_GAPS = "status < ? OR " + "status > ? AND status < ? OR " * (len(_ENDED) - 1) + "status > ?"
_UNFINISHED = f"SELECT run_id, owner_id FROM runs WHERE {_IN_GAPS} ORDER BY +sequence"  # noqa: S608  no value in it
_BEGINS = "run_id BETWEEN :prefix AND :prefix || char(1114111)"


def read_status(connection: sqlite3.Connection, run_id: str) -> str:
    """Returns the run's status. Raises: UnknownRun."""
    row = connection.execute("SELECT status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise unknown_run(run_id)
    return str(row[0])


@dataclass(frozen=True)
class Search:
    """Which runs to find: the arguments of ``Store.runs``."""

    limit: int
    before: int | None = None
    text: str | None = None
    status: str | None = None
    parent: str | None = None
    batch: str | None = None
    alone: bool = False
    tree: str | None = None
    recorded: bool = False
    without: str | None = None

    def finds(self, run: RunSummary) -> bool:
        """Whether the search finds ``run``, apart from the limit. Of a tree it finds the run and its re-runs alone."""
        return (
            (self.before is None or run.sequence < self.before)
            and (not self.text or self.text.lower() in run.task.lower())
            and (self.status in (None, run.status) or (self.status == "waiting" and run.asked_for is not None))
            and self.parent in (None, run.parent_run_id)
            and self.tree in (None, run.parent_run_id, run.run_id)
            and self.batch in (None, run.batch_id)
            and (self.without is None or self.without != run.purpose)
            and not (self.alone and run.batch_id is not None)
            and not (self.recorded and not run.recorded)
        )


def read_rows(connection: sqlite3.Connection, search: Search) -> list[dict[str, Any]]:
    """Returns the rows of the runs that ``search`` finds, newest first."""
    page = _PAGE | (_WAITING if search.status == "waiting" else {})
    query = f"{_RUNS}{condition(search, _FILTERS | page)} ORDER BY sequence DESC LIMIT :limit"
    return [dict(zip(_SUMMARY, row, strict=True)) for row in connection.execute(query, vars(search))]


def read_row(connection: sqlite3.Connection, run_id: str) -> dict[str, Any] | None:
    """Returns the run's row, or None if there is none."""
    row = connection.execute(f"{_RUNS}run_id = ?", (run_id,)).fetchone()
    return None if row is None else dict(zip(_SUMMARY, row, strict=True))


def condition(search: Search, filters: Mapping[str, str] = _FILTERS) -> str:
    """Returns the SQL condition of ``search`` without its page and status. Bind ``vars(search)``."""
    asked = [name for name, value in vars(search).items() if value is not None and value is not False]
    return " AND ".join(filters[name] for name in asked if name in filters) or "true"


def read_newest(connection: sqlite3.Connection) -> int:
    """Returns the sequence of the newest event, or 0 if there is none."""
    ((newest,),) = connection.execute("SELECT max(sequence) FROM events")
    return int(newest or 0)


def read_written(connection: sqlite3.Connection) -> bool:
    """Returns whether any event was ever written, even if its run was deleted since."""
    ((written,),) = connection.execute("SELECT count(*) FROM sqlite_sequence WHERE name = 'events'")
    return bool(written)


def read_cursor(connection: sqlite3.Connection, moment_utc: datetime) -> int:
    """Returns the cursor of the page that begins with the last run before ``moment_utc``, or 0 if there is none."""
    query = "SELECT sequence FROM runs WHERE created_at_utc < ? ORDER BY created_at_utc DESC LIMIT 1"
    row = connection.execute(query, (moment_utc.isoformat(),)).fetchone()
    return 0 if row is None else int(row[0]) + 1


def read_run_ids(connection: sqlite3.Connection, prefix: str, limit: int) -> list[str]:
    """Returns the ids that begin with ``prefix``, newest first."""
    of_runs = f"SELECT run_id FROM runs WHERE {_BEGINS} ORDER BY +sequence DESC LIMIT :most"  # noqa: S608  no value in it
    # A run whose own row is damaged still has its events.
    of_events = f"SELECT DISTINCT run_id FROM events WHERE {_BEGINS} LIMIT :most"  # noqa: S608  no value in it
    for query in (of_runs, of_events):
        if found := [run_id for (run_id,) in connection.execute(query, {"prefix": prefix, "most": limit})]:
            return found
    return []


def read_unfinished(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Returns id and owner of each run that has not ended, oldest first. A run of an unknown status is one of them."""
    # The query looks in the gaps between the statuses of ended runs, so that SQLite uses the index of statuses. It
    # orders by an expression, so that SQLite does not use the index of sequences, with which it would read all runs.
    ended = _ENDED
    bounds = [ended[0], *chain.from_iterable(pairwise(ended)), ended[-1]]
    found: list[tuple[str, str]] = connection.execute(_UNFINISHED, bounds).fetchall()
    return found


def summary(row: Mapping[str, Any]) -> RunSummary:
    """Turns a row into a summary. Raises: ValueError or TypeError for a damaged row."""
    values = {name: row[name] for name in _SUMMARY}
    values["task"] = values["task"] or ""  # NULL: it is encrypted, and its key is away
    values["usage"] = Usage(input_tokens=values.pop("input_tokens"), output_tokens=values.pop("output_tokens"))
    values["caller"] = read_caller(values.pop("actor"), values.pop("door"))
    values["created_at_utc"] = datetime.fromisoformat(values["created_at_utc"])
    values["agents"] = tuple(json.loads(values["agents"]))
    return RunSummary(**values)

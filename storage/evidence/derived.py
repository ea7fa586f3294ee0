"""Checks what is derived from the events against them: the rows of runs, from which lists and totals are made."""

import sqlite3
from collections.abc import Callable

from conductor_core.errors import RunUnreadable
from storage.encoding import SnapshotRow
from storage.evidence.history import Report
from storage.live_runs import changing_columns, fixed_columns
from storage.reading import read_run

_ORPHANS = "SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT run_id FROM events)"
_MISSING = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
_SNAPSHOT = "SELECT run_id, sequence, fold_digest, trace, events_sha256, sha256 FROM snapshots WHERE run_id = ?"


def check(connection: sqlite3.Connection, report: Report, progress: Callable[[str, int], None]) -> None:
    """Adds a finding for each run whose row or snapshot says other things than its events. Raises: sqlite3.Error."""
    named = {each.run_id for each in report.findings}
    for table in ("runs", "snapshots"):
        for (run_id,) in connection.execute(_ORPHANS.format(table=table)).fetchall():
            if run_id not in named:
                report.add("derived", str(run_id), None, f"{table} knows a run that has no event")
    for (run_id,) in connection.execute(_MISSING).fetchall():
        if run_id not in named:
            report.add("derived", str(run_id), None, "the run has events, and no row: lists do not show it")
    ids = [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY sequence")]
    for number, run_id in enumerate(ids):
        progress("runs", number)
        if run_id not in named:
            _check_run(connection, run_id, report)


def _check_run(connection: sqlite3.Connection, run_id: str, report: Report) -> None:
    try:
        reading = read_run(connection, run_id)
    except RunUnreadable as error:
        report.add("derived", run_id, None, f"the run cannot be read, or its snapshot is of other events: {error}")
        return
    snapshot = connection.execute(_SNAPSHOT, (run_id,)).fetchone()
    if snapshot is not None and not SnapshotRow(*snapshot).holds():
        report.add("derived", run_id, None, "the snapshot of the run was changed; readers pass over it")
    cursor = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,))
    row = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
    ((first,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    wanted = fixed_columns(reading.trace, first) | changing_columns(reading.trace)
    wrong = sorted(name for name, value in wanted.items() if name in row and row[name] != value)
    if wrong:
        report.add("derived", run_id, None, f"the row of the run differs from its events: {', '.join(wrong)}")

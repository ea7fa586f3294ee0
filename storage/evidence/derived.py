"""Checks what is derived from the events against them: the rows of runs, from which lists and totals are made."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable

from conductor_core.errors import RunUnreadable
from storage.encoding import SnapshotRow
from storage.evidence.history import Report, counted
from storage.live_runs import changing_columns, fixed_columns
from storage.reading import read_run
from storage.records import ERASED, SEALED_COLUMNS
from storage.vault import SEALED, Sealed, Vault

_ORPHANS = "SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT run_id FROM events)"
_MISSING = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
_RECORDS = (
    "SELECT run_id, record FROM leaves WHERE record IS NOT NULL AND (instr(record, '\"run.deleted\"') "
    "OR instr(record, '\"run.held\"') OR instr(record, '\"run.released\"')) ORDER BY position"
)
_HELD = "SELECT run_id FROM holds WHERE id IN (SELECT max(id) FROM holds GROUP BY run_id) AND held"
_TEXTS = (
    "SELECT run_id, status, ifnull(task, '') <> '' OR ifnull(error, '') <> '' "
    "OR EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = runs.run_id) FROM runs"
)
_FIRST = "SELECT substr(CAST(payload AS BLOB), 1, 1) FROM events WHERE run_id = ? ORDER BY sequence LIMIT 1"
_SNAPSHOT = "SELECT run_id, sequence, fold_digest, trace, events_sha256, sha256 FROM snapshots WHERE run_id = ?"


def check(connection: sqlite3.Connection, report: Report, progress: Callable[[str, int], None], vault: Vault) -> None:
    """Adds a finding for each run whose row or snapshot says other things than its events.

    An erased run has no events that can be read: its row must be empty, and the log must say who erased it. A run that
    the log says is held must be held, and not be gone. Rows of encrypted runs
    whose key is away are not compared; a note says how many, and what to do. Raises: sqlite3.Error; StoreError.
    """
    named = {each.run_id for each in report.findings}
    erased, held, gone = _recorded(connection)
    _check_held(connection, held, gone, report)
    named |= _check_erased(connection, erased, named, report, vault)
    for table in ("runs", "snapshots"):
        for (run_id,) in connection.execute(_ORPHANS.format(table=table)).fetchall():
            if run_id not in named:
                report.add("derived", str(run_id), None, f"{table} knows a run that has no event")
    for (run_id,) in connection.execute(_MISSING).fetchall():
        if run_id not in named:
            report.add("derived", str(run_id), None, "the run has events, and no row: lists do not show it")
    ids = [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY sequence")]
    closed: Counter[str] = Counter()
    for number, run_id in enumerate(ids):
        progress("runs", number)
        if run_id in named:
            continue
        if _is_encrypted(connection, run_id) and (why := vault.away(run_id)) is not None:
            closed[str(why)] += 1
        else:
            _check_run(connection, run_id, report, vault)
    for said, number in closed.items():
        are, away = ("is", "its key is") if number == 1 else ("are", "their keys are")
        report.notes.append(
            f"{counted(number, 'run')} {are} encrypted, and {away} away, so lists were not compared to that: {said}"
        )


def _recorded(connection: sqlite3.Connection) -> tuple[set[str], set[str], set[str]]:
    """Returns the runs that were erased, that are held, and that went while they were held, as the log says."""
    erased: set[str] = set()
    held: set[str] = set()
    gone: set[str] = set()
    for run_id, text in connection.execute(_RECORDS).fetchall():
        match _record(text):
            case {"kind": "run.held"}:
                held.add(str(run_id))
            case {"kind": "run.released"}:
                held.discard(str(run_id))
            case {"kind": "run.deleted"} as record:
                gone |= held & {str(run_id)}
                erased |= {str(run_id)} if record.get("erased") else set()
    return erased, held, gone


def _check_held(connection: sqlite3.Connection, held: set[str], gone: set[str], report: Report) -> None:
    """Compares the holds with the log. Holds of before the log had records of them are in their table alone."""
    now = {str(run_id) for (run_id,) in connection.execute(_HELD)}
    for run_id in sorted(gone):
        report.add("derived", run_id, None, "the run was held when it was deleted or erased")
    for run_id in sorted(held - gone - now):
        report.add("derived", run_id, None, "the log says that the run is held, and the table of holds does not")


def _record(text: object) -> dict[str, object]:
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # damaged, which is a finding about the evidence
        return {}
    return record if isinstance(record, dict) else {}


def _check_erased(
    connection: sqlite3.Connection, erased: set[str], named: set[str | None], report: Report, vault: Vault
) -> set[str]:
    """Compares the rows that say that their run was erased with the log. Returns the runs that need no other check."""
    done: set[str] = set()
    for run_id, status, has_text in connection.execute(_TEXTS):
        if run_id in named or (status != ERASED and run_id not in erased):
            continue
        done.add(run_id)
        if status != ERASED:
            report.add("derived", run_id, None, "the run was erased, and lists do not say so")
        elif run_id not in erased:
            report.add("derived", run_id, None, "lists say that the run was erased, and no record in the log does")
        elif has_text:
            report.add("derived", run_id, None, "the run was erased, and its row or a snapshot holds a text")
        elif vault.has(run_id):
            report.add("derived", run_id, None, "the run was erased, and its key is still there: erase it again")
    return done


def _is_encrypted(connection: sqlite3.Connection, run_id: str) -> bool:
    row = connection.execute(_FIRST, (run_id,)).fetchone()
    return row is not None and row[0] == SEALED


def _check_run(connection: sqlite3.Connection, run_id: str, report: Report, vault: Vault) -> None:
    try:
        reading = read_run(connection, run_id, vault)
    except RunUnreadable as error:
        report.add("derived", run_id, None, f"the run cannot be read, or its snapshot is of other events: {error}")
        return
    snapshot = connection.execute(_SNAPSHOT, (run_id,)).fetchone()
    if snapshot is not None and not SnapshotRow(*snapshot).holds():
        report.add("derived", run_id, None, "the snapshot of the run was changed; readers pass over it")
    cursor = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,))
    row = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
    for name in SEALED_COLUMNS:
        if isinstance(row.get(name), bytes):
            try:
                row[name] = vault.open(run_id, f"runs {name}", row[name]).decode()
            except (Sealed, UnicodeDecodeError):
                report.add("derived", run_id, None, f"the {name} in the row of the run cannot be decrypted")
                return
    ((first,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    wanted = fixed_columns(reading.trace, first) | changing_columns(reading.trace)
    wrong = sorted(name for name, value in wanted.items() if name in row and row[name] != value)
    if wrong:
        report.add("derived", run_id, None, f"the row of the run differs from its events: {', '.join(wrong)}")

"""Checks what is derived from the events against them: rows of runs, snapshots, images, the search index."""

import sqlite3
from collections import Counter
from collections.abc import Callable

from conductor_core.chat.messages import images_in
from conductor_core.errors import ContentMissing
from conductor_core.run.trace import RunTrace, RunUnreadable
from storage.encoding import SnapshotRow
from storage.evidence.history import Report, counted
from storage.evidence.removals import check_removals, read_removals
from storage.log import contents
from storage.log.live_runs import changing_columns, fixed_columns
from storage.log.reading import read_run
from storage.privacy.vault import SEALED, Sealed, Vault
from storage.records import ERASED, SEALED_COLUMNS
from storage.search.checking import IndexCheck

_ORPHANS = "SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT run_id FROM events)"
_MISSING = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
_INDEX = "the search index, from which ledger and hits are read, differs from the events of the run"
_ANSWERS = "the search index does not answer as it must"
_REBUILD = "`python -m storage search --rebuild` mends it"
_TEXTS = (
    "SELECT run_id, status, ifnull(task, '') <> '' OR ifnull(error, '') <> '' "
    "OR EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = runs.run_id) FROM runs"
)
_IMAGES = "SELECT sha256 FROM run_contents WHERE run_id = ?"
_FIRST = "SELECT substr(CAST(payload AS BLOB), 1, 1) FROM events WHERE run_id = ? ORDER BY sequence LIMIT 1"
_SNAPSHOT = "SELECT run_id, sequence, fold_digest, trace, events_sha256, sha256 FROM snapshots WHERE run_id = ?"


def check(connection: sqlite3.Connection, report: Report, progress: Callable[[str, int], None], vault: Vault) -> None:
    """Adds a finding for each run whose row or snapshot says other things than its events.

    An erased run has no events that can be read: its row must be empty, and the log must say who erased it. Deletions
    and holds must be those of the log (``removals``). Rows of encrypted runs whose key is away are not compared; a note
    says how many, and what to do. Raises: sqlite3.Error; StoreError.
    """
    named = {each.run_id for each in report.findings}
    logged = read_removals(connection)
    check_removals(connection, logged, report)
    named |= _check_erased(connection, logged.erased, named, report, vault)
    for table in ("runs", "snapshots"):
        for (run_id,) in connection.execute(_ORPHANS.format(table=table)).fetchall():
            if run_id not in named:
                report.add("derived", str(run_id), None, f"{table} knows a run that has no event")
    for (run_id,) in connection.execute(_MISSING).fetchall():
        if run_id not in named:
            report.add("derived", str(run_id), None, "the run has events, and no row: lists do not show it")
    ids = [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY sequence")]
    closed: Counter[str] = Counter()
    index = IndexCheck(connection)
    _check_rows_of_no_run(index, report)
    for number, run_id in enumerate(ids):
        progress("runs", number)
        if run_id in named:
            continue
        if _is_encrypted(connection, run_id) and (why := vault.away(run_id)) is not None:
            closed[str(why)] += 1
        else:
            _check_run(connection, run_id, report, vault)
        if (wrong := index.fault(run_id)) is not None:
            report.add("derived", run_id, None, f"{_INDEX}: {wrong}; {_REBUILD}")
    _check_answers(index, report, lambda: progress("runs", len(ids)))
    for said, number in closed.items():
        are, away = ("is", "its key is") if number == 1 else ("are", "their keys are")
        report.notes.append(
            f"{counted(number, 'run')} {are} encrypted, and {away} away, so lists were not compared to that: {said}"
        )


def _check_rows_of_no_run(index: IndexCheck, report: Report) -> None:
    named = {each.run_id for each in report.findings}
    for run_id in index.unknown_rows():
        if run_id is None or run_id not in named:
            of = "no run in the log" if run_id is None else "a run that is not in the log, or was erased"
            report.add("derived", run_id, None, f"the search index has rows of {of}; {_REBUILD}")


def _check_answers(index: IndexCheck, report: Report, progress: Callable[[], None]) -> None:
    for run_id, wrong in index.answers(progress):
        report.add("derived", run_id, None, f"{_ANSWERS}: {wrong}; {_REBUILD}")
    if index.of_older:
        report.notes.append(
            f"the search index is of an older version, without what was sent beside messages; {_REBUILD}"
        )
    for wrong in dict.fromkeys(index.faults):
        report.add("derived", None, None, f"{_ANSWERS}: {wrong}; {_REBUILD}")


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


def _check_images(connection: sqlite3.Connection, trace: RunTrace, report: Report) -> None:
    """Looks for the images that the run's events name. A file that was imported may have come without them."""
    if trace.imported is not None:
        return
    named = dict.fromkeys(image.sha256 for turn in trace.conversation for image in images_in(turn.content))
    kept = {str(sha256) for (sha256,) in connection.execute(_IMAGES, (trace.run_id,))} if named else set()
    for sha256 in named:
        try:
            contents.read(connection, sha256)
        except ContentMissing as error:
            report.add("derived", trace.run_id, None, f"an image of the run is missing: {error}")
        else:
            if sha256 not in kept:
                report.add("derived", trace.run_id, None, f"no list says that the run needs the image {sha256[:12]}")


def _check_run(connection: sqlite3.Connection, run_id: str, report: Report, vault: Vault) -> None:
    try:
        reading = read_run(connection, run_id, vault)
    except RunUnreadable as error:
        report.add("derived", run_id, None, f"the run cannot be read, or its snapshot is of other events: {error}")
        return
    _check_images(connection, reading.trace, report)
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

"""Checks what is derived from the events against them: rows of runs, snapshots, images, lists, the search index."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import get_args

from conductor_core.chat.messages import ImageType, images_in
from conductor_core.errors import ContentMissing, UnknownRun
from conductor_core.run.trace import AT_REST, RunTrace, RunUnreadable
from storage.evidence.database_audit import reading
from storage.evidence.history import Report, counted
from storage.evidence.removals import check_removals, read_removals
from storage.evidence.schema_audit import check_schema
from storage.log import contents
from storage.log.live_runs import changing_columns, fixed_columns
from storage.log.owner import OWNER_ID
from storage.log.reading import read_apart
from storage.merkle.formats import text_of
from storage.privacy.vault import SEALED, Sealed, Vault
from storage.records import ERASED, SEALED_COLUMNS
from storage.search.checking import IndexCheck

_ORPHANS = "SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT run_id FROM events)"
_MISSING = "SELECT DISTINCT run_id FROM events WHERE run_id NOT IN (SELECT run_id FROM runs)"
IMAGE_TYPES = frozenset(get_args(ImageType))
_INDEX = "the search index, from which ledger and hits are read, differs from the events of the run"
_ANSWERS = "the search index does not answer as it must"
_REBUILD = "`conductor log search --rebuild` mends it"
_TEXTS = (
    "SELECT run_id, status, ifnull(task, '') <> '' OR ifnull(error, '') <> '' OR ifnull(purpose, '') <> '' "
    "OR ifnull(owner_id, '') <> '' OR asked_for IS NOT NULL OR batch_row IS NOT NULL "
    "OR EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = runs.run_id) "
    "OR EXISTS (SELECT 1 FROM run_contents c WHERE c.run_id = runs.run_id) FROM runs"
)
_RUNS = "SELECT run_id FROM runs ORDER BY sequence"
_IMAGES = "SELECT sha256 FROM run_contents WHERE run_id = ?"
_CONTENTS = "SELECT sha256, media_type FROM contents"
_FIRST = "SELECT substr(CAST(payload AS BLOB), 1, 1) FROM events WHERE run_id = ? ORDER BY sequence LIMIT 1"


def check(connection: sqlite3.Connection, report: Report, progress: Callable[[str, int], None], vault: Vault) -> None:
    """Adds a finding for whatever lists, snapshots, images or the search index say otherwise than events and records.

    An erased run has no events that can be read: its row must be empty, and the log must say who erased it. Rows of
    encrypted runs whose key is away are not compared; a note says how many, and what to do. What cannot be read is a
    finding, and the rest is compared. Raises: StoreError.
    """
    named = {each.run_id for each in report.findings}
    check_schema(connection, report)
    with reading(report, "what the log says of deletions and holds"):
        logged = read_removals(connection)
        check_removals(connection, logged, report)
        named |= _check_erased(connection, logged.erased, named, report, vault)
    for table in ("runs", "snapshots", "run_contents"):
        with reading(report, f"the table {table}"):
            for (run_id,) in connection.execute(_ORPHANS.format(table=table)).fetchall():
                if run_id not in named:
                    report.add("derived", str(run_id), None, f"{table} knows a run that has no event")
    with reading(report, "which runs lists lack"):
        for (run_id,) in connection.execute(_MISSING).fetchall():
            if run_id not in named:
                report.add("derived", str(run_id), None, "the run has events, and no row: lists do not show it")
    images = _Images(connection, report)
    closed: Counter[str] = Counter()
    index = IndexCheck(connection)
    _check_rows_of_no_run(index, report)
    with reading(report, "the table runs"):
        for number, (run_id,) in enumerate(connection.execute(_RUNS).fetchall()):
            progress("runs", number)
            if run_id not in named and isinstance(run_id, str):
                with reading(report, f"what is kept of run {run_id[:80]}"):
                    _check_whole(connection, run_id, images, closed, report, vault)
                    if (wrong := index.fault(run_id)) is not None:
                        report.add("derived", run_id, None, f"{_INDEX}: {wrong}; {_REBUILD}")
    _check_answers(index, report, lambda: progress("runs", 0))
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


def _check_whole(
    connection: sqlite3.Connection,
    run_id: str,
    images: "_Images",
    closed: Counter[str],
    report: Report,
    vault: Vault,
) -> None:
    if _is_encrypted(connection, run_id) and (why := vault.away(run_id)) is not None:
        closed[str(why)] += 1
        return
    _check_run(connection, run_id, images, report, vault)


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
            report.add(
                "derived", text_of(run_id), None, "lists say that the run was erased, and no record in the log does"
            )
        elif has_text:
            report.add("derived", run_id, None, "the run was erased, and its row or a snapshot holds a text")
        elif vault.has(run_id):
            report.add("derived", run_id, None, "the run was erased, and its key is still there: erase it again")
    return done


def _is_encrypted(connection: sqlite3.Connection, run_id: str) -> bool:
    row = connection.execute(_FIRST, (run_id,)).fetchone()
    return row is not None and row[0] == SEALED


class _Images:
    """The contents of a database: which are whole, and of which media type they say they are."""

    def __init__(self, connection: sqlite3.Connection, report: Report) -> None:
        self._connection = connection
        self._types: dict[object, object] = {}
        self._missing: dict[object, str] = {}
        with reading(report, "the table contents"):
            for sha256, media_type in connection.execute(_CONTENTS).fetchall():
                self._types[sha256] = media_type
                self._look(sha256)
                if sha256 in self._missing or media_type not in IMAGE_TYPES:
                    why = self._missing.get(sha256, f"the content {str(sha256)[:12]} is of no type of an image")
                    report.add("derived", None, None, f"an image is not as it was kept: {why}")

    def _look(self, sha256: object) -> None:
        try:
            contents.read(self._connection, sha256 if isinstance(sha256, str) else "")
        except ContentMissing as error:
            self._missing[sha256] = str(error)

    def check(self, trace: RunTrace, report: Report) -> None:
        """Compares what a run's events name with what is kept. A file that was imported may have come without it."""
        named = {image.sha256: image for turn in trace.conversation for image in images_in(turn.content)}
        kept = {sha256 for (sha256,) in self._connection.execute(_IMAGES, (trace.run_id,))}
        if kept - named.keys():
            report.add("derived", trace.run_id, None, "a list says that the run needs an image that it does not name")
        for sha256, image in named.items():
            if sha256 not in self._types:
                self._look(sha256)
            if sha256 in self._missing and (trace.imported is None or sha256 in kept):
                report.add("derived", trace.run_id, None, f"an image of the run is missing: {self._missing[sha256]}")
            elif sha256 in self._types and self._types[sha256] != image.media_type:
                report.add("derived", trace.run_id, None, f"the image {sha256[:12]} is kept as one of another type")
            elif sha256 in self._types and sha256 not in kept:
                report.add("derived", trace.run_id, None, f"no list says that the run needs the image {sha256[:12]}")


def _check_run(connection: sqlite3.Connection, run_id: str, images: _Images, report: Report, vault: Vault) -> None:
    try:
        reading, other = read_apart(connection, run_id, vault)
    except (RunUnreadable, UnknownRun) as error:
        report.add("derived", run_id, None, f"the run cannot be read: {error}")
        return
    if other:
        report.add("derived", run_id, None, f"the snapshot of the run {other}")
    images.check(reading.trace, report)
    cursor = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,))
    row = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
    encrypted = _is_encrypted(connection, run_id)
    for name in SEALED_COLUMNS:
        if isinstance(stored := row.get(name), bytes) and encrypted:
            try:
                row[name] = vault.open(run_id, f"runs {name}", stored).decode() if stored[:1] == SEALED else stored
            except (Sealed, UnicodeDecodeError):
                report.add("derived", run_id, None, f"the {name} in the row of the run cannot be decrypted")
                return
        elif encrypted and stored is not None:
            report.add("derived", run_id, None, f"the {name} of the encrypted run is in plain sight in its row")
    ((first,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    wanted = fixed_columns(reading.trace, first) | changing_columns(reading.trace)
    wrong = [name for name, value in wanted.items() if name in row and not _same(row[name], value)]
    wrong += ["owner_id"] * (not _owner_fits(row, reading.trace))
    wrong += ["vocabulary"] * (not isinstance(row.get("vocabulary"), int) or row["vocabulary"] < 1)
    if wrong:
        report.add("derived", run_id, None, f"the row of the run differs from its events: {', '.join(sorted(wrong))}")


def _same(stored: object, value: object) -> bool:
    return stored == value and (not isinstance(value, float) or repr(stored) == repr(value))


def _owner_fits(row: dict[str, object], trace: RunTrace) -> bool:
    """Whether the row names an owner only while the run goes on. Which process that is, no event says."""
    owner = row.get("owner_id")
    if not trace.ended and trace.status not in AT_REST:
        return isinstance(owner, str) and OWNER_ID.fullmatch(owner) is not None
    return owner == "" or "owner_host" in row

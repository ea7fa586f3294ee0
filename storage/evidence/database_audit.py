"""Checks a database against what was published outside of it, and against its own evidence."""

import hashlib
import json
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from storage.evidence.alignment import Aligner, Differences, Row, name_differences
from storage.evidence.formats import (
    NO_LEAF,
    Checkpoint,
    Invalid,
    PublicKey,
    Tree,
    open_note,
    read_key,
    record_leaf,
    text_of,
    unpacked,
)
from storage.evidence.history import Events, History, Report, note_digest

_EVENTS = (
    "SELECT sequence, CAST(ifnull(run_id, '') AS BLOB), CAST(ifnull(kind, '') AS BLOB), "
    "CAST(ifnull(at_utc, '') AS BLOB), CAST(ifnull(payload, '') AS BLOB) FROM events "
    "WHERE sequence >= ? ORDER BY sequence"
)
_LOG = "SELECT CAST(origin AS BLOB), covered_from FROM evidence_log"
_LEAVES = "SELECT position, CAST(run_id AS BLOB), hash, CAST(record AS BLOB) FROM leaves ORDER BY position"
_CHECKPOINTS = "SELECT size, CAST(note AS BLOB) FROM checkpoints ORDER BY size"

_TABLES = ("events", "leaves", "checkpoints", "evidence_log", "runs", "deletions")
_MOST_FAULTS = 10

Progress = Callable[[str, int], None]


class NoEvidence(Exception):
    """The database cannot be checked at all; the message says why."""


@dataclass
class OwnEvidence:
    """The database's own entries, and its records by position.

    Attributes:
        entries: those before ``gap``, the first position that is missing; ``records`` has those after it, too.
        runs: the run under which each record is found. odd: how many leaves are no bytes.
        signed: how many entries the largest of its signed checkpoints is of.
    """

    origin: str
    covered_from: int
    entries: History = field(default_factory=History)
    records: dict[int, bytes] = field(default_factory=dict)
    runs: dict[int, str | None] = field(default_factory=dict)
    gap: int | None = None
    odd: int = 0
    signed: int = 0


def open_database(path: Path) -> sqlite3.Connection:
    """Opens a database for reading alone. Raises: NoEvidence."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        wal = path.with_name(path.name + "-wal")
        if "immutable" in mode and wal.exists() and wal.stat().st_size:
            break
        connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
            return connection
        except sqlite3.Error:
            connection.close()
    raise NoEvidence(f"the database {path} cannot be read")


def read_own_evidence(connection: sqlite3.Connection) -> OwnEvidence:
    """Raises: NoEvidence."""
    own = OwnEvidence(*read_log(connection))
    try:
        rows = connection.execute(_LEAVES)
    except sqlite3.Error as error:
        raise _no_evidence(str(error)) from error
    entries = own.entries
    for position, run_id, leaf, record in rows:
        if record is not None:
            own.records[position], own.runs[position] = record, None if run_id is None else text_of(run_id)
        if own.gap is None and position != len(entries):
            own.gap = len(entries)
        if own.gap is not None:
            continue
        if not isinstance(leaf, bytes) or len(leaf) != 32:
            leaf = NO_LEAF
            own.odd += 1
        entries.append(leaf, text_of(run_id) if record is None else None)
    return own


def read_log(connection: sqlite3.Connection) -> tuple[str, int]:
    """Returns the log's name, and the sequence from which on it has evidence. Raises: NoEvidence."""
    try:
        row = connection.execute(_LOG).fetchone()
    except sqlite3.Error as error:
        raise _no_evidence(str(error)) from error
    if row is None or not isinstance(row[1], int):
        raise _no_evidence("the table evidence_log has no row, or an odd one")
    return text_of(row[0]), row[1]


def _no_evidence(why: str) -> NoEvidence:
    return NoEvidence(f"the database has no evidence of its events ({why}): an older one gets it when it is opened")


def audit_database(
    connection: sqlite3.Connection,
    own: OwnEvidence,
    keys: Sequence[PublicKey],
    history: History,
    report: Report,
    progress: Progress,
) -> None:
    """Adds what it finds to ``report``. ``history``: what was published. Raises: sqlite3.Error.

    Begin a transaction before ``own`` is read: then all is seen at one moment, while the program may go on writing.
    """
    if keys and own.origin != keys[0].name:
        what = f"the database says it is the log {own.origin}, and the public key is that of {keys[0].name}"
        report.add("unsigned", None, None, what)
        own.origin = keys[0].name
    for position in range(len(history), len(own.entries)):
        history.append(own.entries.leaf(position), own.entries.run(position))
    gone, proven = _check_records(own, history, report)
    checkpoints, published = _signed(connection, keys, history, report)
    own.signed = max([published, *(each.size for each in checkpoints)])
    events = Events(history, own.covered_from)
    aligner = Aligner(own.origin.encode(), events)
    found = aligner.align(_rows(connection, own.covered_from), lambda seen: progress("events", seen))
    signed = max(published, _check_roots(history, checkpoints, report, progress))
    _name(connection, own, history, aligner, events, report, gone, found)
    _check_uncovered(connection, own, proven, report)
    _check_indexes(connection, report)
    report.deleted_runs = len(gone)
    report.verified_size = max(history.anchored, signed)
    here = bisect_left(events.positions, report.verified_size)
    report.verified_events = here - bisect_left(found.missing, here)
    outside = bisect_left(events.positions, history.anchored)
    report.unanchored_events = len(events) - outside - (len(found.missing) - bisect_left(found.missing, outside))


def _rows(connection: sqlite3.Connection, covered_from: int) -> Iterator[Row]:
    for sequence, run_id, kind, at_utc, payload in connection.execute(_EVENTS, (covered_from,)):
        yield Row(sequence, run_id, kind, at_utc, hashlib.sha256(payload).hexdigest().encode())


def _check_records(own: OwnEvidence, history: History, report: Report) -> tuple[set[str], dict[int, dict[str, Any]]]:
    """Checks the records, the own leaves, and the seals.

    Returns the runs whose deletion is on record, and the records that are as they were written, by position, but seals.
    """
    gone: set[str] = set()
    proven: dict[int, dict[str, Any]] = {}
    heads: dict[str, tuple[int, bytes]] = {}
    sealed: dict[str, int] = {}
    there = _Records(own, history)
    for position in range(len(history)):
        run_id = history.run(position)
        if run_id is not None:
            if run_id in sealed:
                report.add("inserted", run_id, None, f"entry {position} comes after the seal of its run")
            heads[run_id] = heads.get(run_id, (0, b""))[0] + 1, history.leaf(position)
            continue
        record = there.read(position, report)
        if record is None:
            continue
        run = str(record.get("run"))
        if record.get("kind") == "run.sealed":
            sealed[run] = position
            count, head = heads.get(run, (0, b""))
            if (record.get("events"), record.get("head")) != (count, head.hex()):
                report.add("evidence", run, None, "the seal of the run does not fit its events")
            continue
        proven[position] = record
        if record.get("kind") == "run.deleted":
            gone.add(run)
    if changed := _changed_leaves(own.entries, history):
        report.notes.append(f"{changed} leaves in the database are not those that were published")
    if own.gap is not None:
        report.add("evidence", None, None, f"the leaves of the database have a gap at entry {own.gap}")
    if own.odd:
        report.add("evidence", None, None, f"{own.odd} leaves of the database are no digests")
    return gone, proven


def _changed_leaves(own: History, history: History) -> int:
    """Counts the leaves of the database that are not those that were published."""
    if (own.leaves, own.of, own.runs) == (history.leaves, history.of, history.runs):
        return 0
    both = range(min(len(own), history.anchored))
    return sum(own.leaf(at) != history.leaf(at) or own.run(at) != history.run(at) for at in both)


class _Records:
    """The records of a database, found by what they hold: one that was taken out moves those after it."""

    def __init__(self, own: OwnEvidence, history: History) -> None:
        self._origin = own.origin.encode()
        self._own, self._history = own, history

    @cached_property
    def _at(self) -> dict[bytes, int]:
        return {record_leaf(self._origin, text): at for at, text in self._own.records.items()}

    @cached_property
    def _written(self) -> set[bytes]:
        return {self._history.leaf(at) for at in range(len(self._history)) if self._history.run(at) is None}

    def read(self, position: int, report: Report) -> dict[str, Any] | None:
        """Returns the record that the history has at ``position``; None if it is not there as it was written."""
        leaf, text = self._history.leaf(position), self._own.records.get(position)
        instead = None if text is None else record_leaf(self._origin, text)
        at = position if instead == leaf else self._at.get(leaf)
        if at is None:
            what = "is missing"
            if instead is not None and instead not in self._written:
                what = f"is not as it was written{_claims(self._own.records[position])}"
            report.add("evidence", None, None, f"the record at entry {position} {what}")
            return None
        record = _record(self._own.records[at])
        if self._own.runs[at] != record.get("run"):
            what = f"the record at entry {position} ({record.get('kind')}) stands under run {self._own.runs[at]}"
            report.add("evidence", str(record.get("run")), None, what)
        return record


def _claims(text: bytes) -> str:
    """Says what a record that was changed now claims to be: it helps to find it, and proves nothing."""
    record = _record(text)
    of = f" of run {str(record['run'])[:80]}" if record.get("run") is not None else ""
    return f"; it now reads {str(record['kind'])[:80]}{of}" if "kind" in record else ""


def _record(text: bytes) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _signed(
    connection: sqlite3.Connection, keys: Sequence[PublicKey], history: History, report: Report
) -> tuple[list[Checkpoint], int]:
    """Returns the database's own checkpoints, as far as the keys signed them, and the largest that needs no check.

    That is one that was published as it is.
    """
    found: list[Checkpoint] = []
    wrong = proven = 0
    if not keys:
        return found, proven
    for size, raw in connection.execute(_CHECKPOINTS):
        note = text_of(raw)
        if history.proven.get(size) == note_digest(note):
            proven = max(proven, size)
            continue
        try:
            checkpoint = open_note(note, keys)
        except Invalid:
            wrong += 1
            continue
        found.append(checkpoint)
        wrong += checkpoint.size != size
    if wrong:
        report.add("unsigned", None, None, f"checkpoints in the database that the key given has not signed: {wrong}")
    return found, proven


def _check_roots(history: History, own: list[Checkpoint], report: Report, progress: Progress) -> int:
    """Compares checkpoints with the history. Returns the largest size that one of them vouches for."""
    wanted: dict[int, list[tuple[bool, Checkpoint]]] = {}
    for outside, checkpoints in ((True, history.checkpoints), (False, own)):
        for checkpoint in checkpoints:
            wanted.setdefault(checkpoint.size, []).append((outside, checkpoint))
    tree, good = Tree(), 0
    last = max((size for size in wanted if size <= len(history)), default=-1)
    for size in range(last + 1):
        for outside, checkpoint in wanted.pop(size, ()):
            if tree.root() == checkpoint.root:
                good = max(good, size)
                history.anchored = max(history.anchored, size if outside else 0)
            else:
                where = "outside of the database" if outside else "in the database"
                report.add(
                    "fork", None, None, f"the checkpoint of {size} entries {where} is signed for another history"
                )
        if size < last:
            tree.append(history.leaf(size))
            progress("entries", size)
    for size in sorted(wanted):
        if any(outside for outside, _ in wanted[size]):
            report.add(
                "rolled_back", None, None, f"a checkpoint says that the log had {size} entries, it has {len(history)}"
            )
        else:
            report.add("truncated", None, None, f"a checkpoint in the database is signed for {size} entries")
    return good


def _name(
    connection: sqlite3.Connection,
    own: OwnEvidence,
    history: History,
    aligner: Aligner,
    events: Events,
    report: Report,
    gone: set[str],
    found: Differences,
) -> None:
    """Puts what was done to the events before the findings about their evidence, which often follow from it."""
    before, report.findings = report.findings, []
    lost = [index for index in found.missing if events.run(index) not in gone]
    first = lost[0] if lost else len(events)
    all_lost = len(lost) == sum(events.run(index) not in gone for index in range(first, len(events)))
    run_id, sequence = (events.run(first), events.sequence(first)) if lost else (None, None)
    older = own.gap is None and own.signed <= len(own.entries) and history.leaves.startswith(own.entries.leaves)
    if len(own.entries) < history.anchored and older and not found.extra and all_lost and _ends_there(connection):
        what = f"the database is an older state of itself: {len(own.entries)} of {history.anchored} published entries"
        report.add("rolled_back", run_id, sequence, what)
        before = [each for each in before if each.kind != "evidence"]
    elif len(lost) > 1 and found.extra and all_lost and min(row.sequence for row in found.extra) >= (sequence or 0):
        what = "from this event on the database holds another history than the one that was published"
        report.add("fork", run_id, sequence, what)
        before = [each for each in before if each.kind not in ("evidence", "fork")]
    else:
        name_differences(aligner, events, found, report, gone)
    report.findings += before


def _ends_there(connection: sqlite3.Connection) -> bool:
    """Whether the database itself knows of no later event than its last."""
    ((last,),) = connection.execute("SELECT coalesce(max(sequence), 0) FROM events")
    given = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return given is None or given[0] == last


def _check_uncovered(
    connection: sqlite3.Connection, own: OwnEvidence, proven: dict[int, dict[str, Any]], report: Report
) -> None:
    """Counts the events from before the log's evidence: a row among them was not there when it began.

    ``proven``: the records that are as they were written.
    """
    ((count,),) = connection.execute("SELECT count(*) FROM events WHERE sequence < ?", (own.covered_from,))
    report.uncovered_events = count
    before = proven.get(0, {}).get("events_before")
    removed = (each.get("uncovered") for each in proven.values() if each.get("kind") == "run.deleted")
    deleted = sum(each for each in removed if type(each) is int)
    if type(before) is int and count != before - deleted:
        kind = "inserted" if count > before - deleted else "deleted"
        what = f"{count} events are older than the log's evidence, and {before - deleted} should be"
        report.add(kind, None, None, what)


def _check_indexes(connection: sqlite3.Connection, report: Report) -> None:
    """Adds what SQLite finds in the tables and their indexes. The program reads events through an index.

    It takes two seconds for a million events. Tables of the search are left out: SQLite may lack what reads them.
    """
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in _TABLES:
        if table in there:
            for (fault,) in connection.execute(f"PRAGMA integrity_check({table})").fetchmany(_MOST_FAULTS):
                if fault != "ok":
                    report.add("evidence", None, None, f"SQLite finds a fault in the table {table}: {fault}")


def rotated_keys(own_records: dict[int, bytes], keys: Sequence[PublicKey]) -> list[PublicKey]:
    """Returns ``keys`` and those that they vouch for: old and new key both sign the record of a rotation."""
    trusted = {key.line: key for key in keys}
    for _ in own_records:
        grown = len(trusted)
        for text in own_records.values():
            record = _record(text)
            if record.get("kind") == "key.rotated":
                _trust(record, trusted)
        if len(trusted) == grown:
            break
    return list(trusted.values())


def _trust(record: dict[str, Any], trusted: dict[str, PublicKey]) -> None:
    try:
        old, new = read_key(str(record.get("old"))), read_key(str(record.get("new")))
        message = rotation_message(old, new)
        signed = old.signed(message, unpacked(record.get("by_old"), 64)) and new.signed(
            message, unpacked(record.get("by_new"), 64)
        )
    except Invalid:
        return
    if signed and old.name == new.name and (old.line in trusted or new.line in trusted):
        trusted |= {old.line: old, new.line: new}


def rotation_message(old: PublicKey, new: PublicKey) -> bytes:
    """Returns what both keys sign when ``new`` takes the place of ``old``."""
    return f"key.rotated\n{old.line}\n{new.line}\n".encode()

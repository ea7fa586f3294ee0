"""Checks a database against what was published outside of it, and against its own evidence.

A row of its events is tried against an entry of the published history by content: with the place, sequence and previous
leaf that the history gives, do the row's kind, time and payload make the entry's leaf? So one change is one finding,
and what was moved is found where it went.
"""

import hashlib
import sqlite3
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from storage.evidence.history import (
    Events,
    Finding,
    History,
    Report,
    began_again,
    began_late,
    counted,
    first_difference,
    has_root,
    note_digest,
    other_log,
)
from storage.merkle.formats import (
    NO_LEAF,
    Checkpoint,
    Invalid,
    PublicKey,
    Tree,
    error_text,
    event_leaf,
    open_note,
    read_record,
    record_leaf,
    text_of,
)

_EVENTS = (
    "SELECT sequence, CAST(ifnull(run_id, '') AS BLOB), CAST(ifnull(kind, '') AS BLOB), "
    "CAST(ifnull(at_utc, '') AS BLOB), CAST(ifnull(payload, '') AS BLOB), position FROM events "
    "ORDER BY sequence"
)
_ODD_EVENTS = (
    "SELECT sequence, CAST(ifnull(run_id, '') AS BLOB) FROM events WHERE typeof(run_id) <> 'text' "
    "OR typeof(kind) <> 'text' OR typeof(at_utc) <> 'text' "
    "OR typeof(payload) <> iif(substr(CAST(ifnull(payload, '') AS BLOB), 1, 1) = x'01', 'blob', 'text') "
    "ORDER BY sequence"
)
"""Events whose bytes may be right, and which no reader finds: only an encrypted payload is no text."""
_ODD_LEAVES = (
    "SELECT position FROM leaves WHERE typeof(run_id) NOT IN ('text', 'null') "
    "OR typeof(record) NOT IN ('text', 'null') OR (run_id IS NULL AND record IS NULL) ORDER BY position"
)
_LOG = "SELECT CAST(origin AS BLOB), covered_from, typeof(origin) FROM evidence_log"
_LEAVES = "SELECT position, CAST(run_id AS BLOB), hash, CAST(record AS BLOB) FROM leaves ORDER BY position"

_PUBLISHED = (
    "SELECT coalesce(max(size), 0) FROM checkpoints WHERE size <= (SELECT coalesce(max(position), -1) + 1 FROM leaves)"
)

_TABLES = (
    *("events", "leaves", "checkpoints", "evidence_log", "runs", "deletions", "holds", "snapshots"),
    *("commands", "contents", "run_contents", "search_runs", "search_texts", "search_places", "search_calls"),
    *("search_facets", "search_failures", "search_state", "service_keys", "deleted_responses", "judgements"),
)
_MOST_FAULTS = 10

Progress = Callable[[str, int], None]


# Comparing the events with those of the history.

_WINDOW = 64
"""How many rows and entries around a difference are tried to find where both agree again."""
_WAYS = sorted(
    ((skip, drop) for skip in range(_WINDOW) for drop in range(_WINDOW) if skip or drop),
    key=lambda way: (way[0] > 8 if way[0] == way[1] else sum(way) > 4, way[0] != way[1], sum(way), way[0]),
)
"""Numbers of events and rows to pass over: as many of both, then more of either; the near ones first."""
_FEW_WAYS = 20
"""How many ways around a difference are always tried: the nearest."""
_TRIES, _TRIES_AN_EVENT = 1_000_000, 4
"""How often all ways are tried in one check, at least, and for each event: the time grows with the log, and not with
what somebody did to it. Each try takes about 2 us."""
_FAR = 20_000
"""How many later entries are tried for one row if nothing near it fits, most of all after a long gap."""
_MOST_PAIRS = 250_000
_TICK_ROWS = 0x4000


class Row(NamedTuple):
    """An event as it lies in the database. ``digest``: of its payload, in hexadecimal. ``position``: of its leaf."""

    sequence: int
    run_id: bytes
    kind: bytes
    at_utc: bytes
    digest: bytes
    position: object = None


@dataclass
class Differences:
    """``missing``: events of the history without a row. ``extra``: rows without an event.

    ``misplaced``: events whose row names another leaf.
    """

    missing: list[int] = field(default_factory=list)
    extra: list[Row] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    shift: int = 0


class Aligner:
    def __init__(self, origin: bytes, events: Events) -> None:
        self._origin, self.events = origin, events
        self._far_tries = 5
        self._tries = _TRIES + _TRIES_AN_EVENT * len(events)

    def fits(self, index: int, row: Row) -> bool:
        """Whether the content of ``row`` is that of event ``index``, whatever run and sequence the row claims."""
        events = self.events
        _, _, kind, at_utc, digest, _ = row
        if b"\n" in kind or b"\n" in at_utc:
            return False
        place, sequence, before = events.places[index], events.sequence(index), events.previous[index]
        previous = events.leaf(before) if before >= 0 else NO_LEAF
        leaf = event_leaf(self._origin, place, sequence, digest, previous, at_utc, kind, events.name(index))
        return leaf == events.leaf(index)

    def align(self, rows: Iterable[Row], tick: Callable[[int], None]) -> Differences:
        events, found = self.events, Differences()
        waiting: deque[Row] = deque()
        source = iter(rows)
        index = seen = 0
        end = len(events)
        while (row := waiting.popleft() if waiting else next(source, None)) is not None:
            in_place = index < end and row.sequence - found.shift == events.sequence(index)
            if in_place and self._same(index, row):
                if row.position != events.positions[index]:
                    found.misplaced.append(index)
                index += 1
            elif index >= end:
                found.extra.append(row)
            else:
                waiting.appendleft(row)
                waiting.extend(islice(source, max(0, _WINDOW - len(waiting))))
                skipped, dropped = self._again(index, waiting, found.shift)
                found.missing.extend(range(index, index + skipped))
                found.extra.extend(waiting.popleft() for _ in range(dropped))
                index += skipped
                if waiting and index < end:
                    found.shift = waiting[0].sequence - events.sequence(index)
            seen += 1
            if not seen % _TICK_ROWS:
                tick(seen)
        found.missing.extend(range(index, end))
        return found

    def _again(self, index: int, rows: "deque[Row]", shift: int) -> tuple[int, int]:
        """Returns how many events and rows to pass over until both agree again; at least one."""
        events = self.events
        near = list(islice(rows, _WINDOW))
        gap = near[0].sequence - shift - events.sequence(index)
        left = len(events) - index
        if 0 < gap < left and self._same(index + gap, near[0]):
            return gap, 0
        for skip, drop in self._ways(min(_WINDOW, left), len(near)):
            if self._same(index + skip, near[drop]):
                return skip, drop
        if self._far_tries:
            self._far_tries -= 1
            for skip in range(_WINDOW, min(_FAR, left)):
                if self._same(index + skip, near[0]):
                    return skip, 0
        if gap > 0:
            return min(gap, left), 0
        return (1, 1) if gap == 0 else (0, 1)

    def _ways(self, events: int, rows: int) -> Iterator[tuple[int, int]]:
        """Yields how many events and rows to pass over: near ways always, others as long as there are tries left."""
        for number, way in enumerate(way for way in _WAYS if way[0] < events and way[1] < rows):
            if number >= _FEW_WAYS:
                if not self._tries:
                    return
                self._tries -= 1
            yield way

    def _same(self, index: int, row: Row) -> bool:
        return row.run_id == self.events.name(index) and self.fits(index, row)


def name_differences(aligner: Aligner, found: Differences, report: Report, gone: Container[str], end: int) -> None:
    """Adds a finding for each difference.

    ``gone``: runs that the program deleted, on record. ``end``: how many of the events the log should have.
    """
    events = aligner.events
    missing, extra = found.missing, found.extra
    moved = _moved(aligner, missing, extra)
    for index, row in moved:
        run_id, sequence = events.run(index), events.sequence(index)
        if row.run_id == run_id.encode():
            report.add("reordered", f"the event is at sequence {row.sequence} instead", run_id, sequence)
        else:
            what = f"the event is in run {text_of(row.run_id)}, at sequence {row.sequence}"
            report.add("swapped", what, run_id, sequence)
    taken, used = {index for index, _ in moved}, {id(row) for _, row in moved}
    missing = [index for index in missing if index not in taken]
    by_sequence = {row.sequence: row for row in extra if id(row) not in used}
    rest = []
    for index in missing:
        here = by_sequence.get(events.sequence(index))
        if here is None or here.run_id != events.run(index).encode():
            rest.append(index)
            continue
        del by_sequence[here.sequence]
        used.add(id(here))
        what = "kind, time or content of the event are not those that were written"
        report.add("edited", what, events.run(index), events.sequence(index))
    _name_missing(events, rest, end, len(found.extra) == len(used), report, gone)
    for row in extra:
        if id(row) not in used:
            report.add("inserted", "no such event was ever written", text_of(row.run_id), row.sequence)


def _moved(aligner: Aligner, missing: list[int], extra: list[Row]) -> list[tuple[int, Row]]:
    if len(missing) * len(extra) > _MOST_PAIRS:
        return []
    rest, moved = list(extra), []
    for index in missing:
        at = next((at for at, row in enumerate(rest) if aligner.fits(index, row)), None)
        if at is not None:
            moved.append((index, rest.pop(at)))
    return moved


def _name_missing(
    events: Events, missing: list[int], end: int, tail: bool, report: Report, gone: Container[str]
) -> None:
    """Names events without a row. ``tail``: whether those at the end can be a cut, because nothing replaces them."""
    lost: dict[str, list[int]] = {}
    for index in missing:
        if events.run(index) not in gone:
            lost.setdefault(events.run(index), []).append(index)
    if not lost:
        return
    had: dict[str, int] = {}
    for index in range(end):
        if (run := events.run(index)) in lost:
            had[run] = had.get(run, 0) + 1
    whole = {run for run in lost if len(lost[run]) == had[run]}
    last = range(end_of_missing(events, missing, end), end) if tail else range(0)
    cut = [index for index in last if events.run(index) not in gone]
    if cut and {events.run(index) for index in cut} <= whole and (len(whole) == 1 or len(cut) < len(missing)):
        cut = []  # runs that were removed and happen to be the last
    if cut:
        what = f"the log was cut here: this event and all after it are missing, {len(cut)} in all"
        report.add("truncated", what, events.run(cut[0]), events.sequence(cut[0]))
    for run_id, indices in lost.items():
        if run_id in whole and not cut:
            what = f"the run with its {counted(had[run_id], 'event')} was removed without a record of a deletion"
            report.add("run_removed", what, run_id, events.sequence(indices[0]))
            continue
        for index in indices:
            if not cut or index < cut[0]:
                report.add("deleted", "the event is missing", run_id, events.sequence(index))


def end_of_missing(events: Events, missing: list[int], end: int | None = None) -> int:
    """Returns the first of the missing events after which there is none before ``end``; else ``end``."""
    here, end = set(missing), len(events) if end is None else end
    while end and end - 1 in here:
        end -= 1
    return end


# The whole database.


class NoEvidence(Exception):
    """The database cannot be checked at all; the message says why."""


@dataclass
class OwnEvidence:
    """The database's own entries, and its records by position.

    Attributes:
        entries: those before ``gap``, the first position that is missing; ``records`` has those after it, too.
        runs: the run under which each record is found. odd: how many leaves are no bytes.
        signed: how many entries the largest of its signed checkpoints is of.
        faults: what could not be read. origin: None: it could not.
    """

    origin: str | None
    covered_from: int
    entries: History = field(default_factory=History)
    records: dict[int, bytes] = field(default_factory=dict)
    runs: dict[int, str | None] = field(default_factory=dict)
    gap: int | None = None
    odd: int = 0
    signed: int = 0
    faults: list[str] = field(default_factory=list)


def open_database(path: Path) -> sqlite3.Connection:
    """Opens a database for reading alone. Text that is not UTF-8 is read as bytes. Raises: NoEvidence."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        # What lies there changes what the program will read, and would be passed over.
        beside = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-journal")]
        if "immutable" in mode and any(each.exists() and each.stat().st_size for each in beside):
            break
        try:
            connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)
        except sqlite3.Error:  # as the file itself cannot be opened
            break
        try:
            connection.text_factory = _text_or_bytes
            connection.execute("SELECT count(*) FROM sqlite_master")
            return connection
        except sqlite3.Error:
            connection.close()
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists():
        raise NoEvidence(
            f"the database {path} cannot be read as it is: {journal.name} beside it changes it as soon as it is opened "
            "for writing. Let `conductor runs` open it, then check it"
        )
    raise NoEvidence(f"the database {path} cannot be read" if path.exists() else f"no such file: {path}")


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


@contextmanager
def reading(report: Report, what: str) -> Iterator[None]:
    """Surrounds a part of a check: what cannot be read is a finding, and does not end the check."""
    try:
        yield
    except sqlite3.Error as error:
        report.add("evidence", f"{what} cannot be read, so not all of it was checked: {error_text(error)}")


def read_own_evidence(connection: sqlite3.Connection) -> OwnEvidence:
    """Reads what there is of it. Raises: NoEvidence, if there is none of an old or a strange database."""
    try:
        own = OwnEvidence(*read_log(connection))
    except NoEvidence as error:
        own = OwnEvidence(None, 0, faults=[f"what the log is named and where it began cannot be read: {error}"])
    rows = Report()
    with reading(rows, "the table leaves"):
        _read_leaves(connection, own)
    own.faults += [each.what for each in rows.findings]
    if own.origin is None:
        began = read_record(own.records.get(0, b""))
        if began.get("kind") != "log.began" or type(began.get("covered_from")) is not int:
            raise NoEvidence(own.faults[0].partition(": ")[2])
        own.covered_from = began["covered_from"]
    return own


def _read_leaves(connection: sqlite3.Connection, own: OwnEvidence) -> None:
    entries = own.entries
    for position, run_id, leaf, record in connection.execute(_LEAVES):
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


def read_log(connection: sqlite3.Connection) -> tuple[str, int]:
    """Returns the log's name, and the sequence from which on it has evidence. Raises: NoEvidence."""
    try:
        rows = connection.execute(_LOG).fetchmany(2)
    except sqlite3.Error as error:
        raise _no_evidence(str(error)) from error
    if len(rows) != 1 or not isinstance(rows[0][1], int) or rows[0][2] != "text":
        raise _no_evidence("the table evidence_log has no valid row")
    return text_of(rows[0][0]), rows[0][1]


def published_size(connection: sqlite3.Connection) -> int:
    """Returns how many entries were published, as the database says: a checkpoint is kept once it is published."""
    try:
        ((size,),) = connection.execute(_PUBLISHED)
    except sqlite3.Error:  # whoever reads the evidence says so
        return 0
    return size if isinstance(size, int) else 0


def _no_evidence(why: str) -> NoEvidence:
    return NoEvidence(f"the database has no evidence of its events ({why})")


def audit_database(
    connection: sqlite3.Connection,
    own: OwnEvidence,
    keys: Sequence[PublicKey],
    history: History,
    report: Report,
    progress: Progress,
) -> None:
    """Adds what it finds to ``report``, also what it cannot read. ``history``: what was published.

    Begin a transaction before ``own`` is read: then all is seen at one moment, while the program may go on writing.
    """
    for fault in own.faults:
        report.add("evidence", fault)
    if keys and own.origin != keys[0].name:
        if own.origin is not None:
            what = f"the database says it is the log {own.origin}, and the public key is that of {keys[0].name}"
            notes = [text_of(note) for _, note, _ in _kept_checkpoints(connection, report)]
            again = any(other_log(note, keys) == own.origin for note in notes)
            unsigned = Finding("unsigned", None, None, what)
            report.findings.append(began_again(own.origin, keys, what) if again else unsigned)
        own.origin = keys[0].name
    if own.origin is None:
        report.add("evidence", "events were not checked: without its public key (--public-key), nothing names the log")
        return
    if own.covered_from > 1:
        report.findings.append(began_late(own.covered_from))
    for position in range(len(history), len(own.entries)):
        history.append(own.entries.leaf(position), own.entries.run(position))
    records = _check_records(own, history, report)
    began = records.proven.get(0, {}).get("covered_from")
    if type(began) is int and began != own.covered_from:
        what = f"evidence_log says that events have evidence from {own.covered_from} on, and the log from {began} on"
        report.add("evidence", what)
    changed = _check_leaves(own, history, report)
    checkpoints, published = _signed(connection, keys, history, report)
    own.signed = max([published, *(each.size for each in checkpoints)])
    events = Events(history)
    aligner = Aligner(own.origin.encode(), events)
    found = aligner.align(_rows(connection, report), lambda seen: progress("events", seen))
    signed = max(published, _check_roots(history, checkpoints, report, progress))
    with reading(report, "what tells an older state"):
        _name(connection, own, history, aligner, report, records, found)
    _check_kept(events, found, records, report)
    with reading(report, "how rows are stored"):
        _check_stored(connection, own, events, found, report)
        _check_indexes(connection, report)
    if changed and report.ok:
        report.add("evidence", changed)
    elif changed:
        report.notes.append(changed)
    report.deleted_runs = len(records.gone)
    report.erased_runs = sum(records.gone.values())
    report.verified_size = max(history.anchored, signed)
    here = bisect_left(events.positions, report.verified_size)
    report.verified_events = here - bisect_left(found.missing, here)
    outside = bisect_left(events.positions, history.anchored)
    report.unanchored_events = len(events) - outside - (len(found.missing) - bisect_left(found.missing, outside))


def _rows(connection: sqlite3.Connection, report: Report) -> Iterator[Row]:
    with reading(report, "the table events"):
        for sequence, run_id, kind, at_utc, payload, position in connection.execute(_EVENTS):
            yield Row(sequence, run_id, kind, at_utc, hashlib.sha256(payload).hexdigest().encode(), position)


def _check_kept(events: Events, found: Differences, records: "_CheckedRecords", report: Report) -> None:
    """Finds events of erased runs that are gone: an encrypted run keeps all of them, and any other none."""
    if any(each.kind in ("rolled_back", "fork", "truncated") for each in report.findings):
        return
    sealed = {str(each.get("run")) for each in records.proven.values() if each.get("sealed") is True}
    erased = {run_id for run_id, was_erased in records.gone.items() if was_erased}
    lost = Counter(run_id for index in found.missing if (run_id := events.run(index)) in erased)
    if not lost:
        return
    had = Counter(run_id for index in range(len(events)) if (run_id := events.run(index)) in lost)
    for run_id, number in lost.items():
        if number < had[run_id] or run_id in sealed:
            what = f"of {counted(had[run_id], 'event')} that the erased run kept, {number} are missing"
            report.add("deleted", what, run_id)


def _check_stored(
    connection: sqlite3.Connection, own: OwnEvidence, events: Events, found: Differences, report: Report
) -> None:
    """Finds rows with the right bytes that readers miss, or that a later event would build upon in a wrong way.

    Where anything else was found, that may explain where leaves are, and which sequence is next.
    """
    for sequence, run_id in connection.execute(_ODD_EVENTS):
        what = "the event is stored as values of other types, so readers miss it"
        report.add("edited", what, text_of(run_id), sequence)
    for (position,) in connection.execute(_ODD_LEAVES):
        report.add("evidence", f"the leaf at entry {position} is stored as values of other types")
    if not report.ok:
        return
    if found.misplaced:
        index = found.misplaced[0]
        others = len(found.misplaced) - 1
        more = f", as {counted(others, 'other event does', 'other events do')}" if others else ""
        what = f"the event names another leaf than its own{more}"
        report.add("evidence", what, events.run(index), events.sequence(index))
    rows = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchall()
    newest = bisect_left(events.positions, len(own.entries))
    if (len(events) or rows) and newest and rows != [(newest,)]:
        what = f"the database does not say that its newest event had the sequence {newest}: the next would get another"
        report.add("evidence", what)


@dataclass
class _CheckedRecords:
    """
    Attributes:
        agreed: how many entries, from the first on, the database has as the history has them.
        gone: the runs whose deletion is on record, with whether they were erased.
        proven: the records that are as they were written, by position, but seals.
        late: what is wrong with records from ``agreed`` on. place: where among the findings it belongs.
    """

    agreed: int
    gone: dict[str, bool] = field(default_factory=dict)
    proven: dict[int, dict[str, Any]] = field(default_factory=dict)
    late: Report = field(default_factory=Report)
    place: int = 0


def _check_records(own: OwnEvidence, history: History, report: Report) -> _CheckedRecords:
    differs = first_difference(own.entries.leaves, history.leaves)
    checked = _CheckedRecords(min(len(own.entries), len(history)) if differs is None else differs // 32)
    heads: dict[str, tuple[int, bytes]] = {}
    sealed: dict[str, int] = {}
    there = _Records(own, history)
    for position in range(len(history)):
        run_id = history.run(position)
        if run_id is not None:
            if run_id in sealed:
                report.add("inserted", f"entry {position} comes after the seal of its run", run_id)
            heads[run_id] = heads.get(run_id, (0, b""))[0] + 1, history.leaf(position)
            continue
        into = report if position < checked.agreed else checked.late
        record = there.read(position, into)
        if record is None:
            continue
        run = str(record.get("run"))
        if record.get("kind") == "run.sealed":
            sealed[run] = position
            count, head = heads.get(run, (0, b""))
            if (record.get("events"), record.get("head")) != (count, head.hex()):
                into.add("evidence", "the seal of the run does not fit its events", run)
            continue
        checked.proven[position] = record
        if record.get("kind") == "run.deleted":
            checked.gone[run] = bool(record.get("erased"))
    checked.place = len(report.findings)
    return checked


def _check_leaves(own: OwnEvidence, history: History, report: Report) -> str:
    """Returns what to say of leaves that are not as published: a change of an event often explains them."""
    there, changed = own.entries, 0
    if (there.leaves, there.of, there.runs) != (history.leaves, history.of, history.runs):
        both = range(min(len(there), history.anchored))
        changed = sum(there.leaf(at) != history.leaf(at) or there.run(at) != history.run(at) for at in both)
    if own.gap is not None:
        report.add("evidence", f"the leaves of the database have a gap at entry {own.gap}")
    if own.odd:
        odd = counted(own.odd, "leaf of the database is not a digest", "leaves of the database are not digests")
        report.add("evidence", odd)
    leaves = counted(changed, "leaf in the database is", "leaves in the database are")
    return f"{leaves} not as published" if changed else ""


class _Records:
    """The records of a database, found by what they hold: one that was taken out moves those after it."""

    def __init__(self, own: OwnEvidence, history: History) -> None:
        self._own, self._history = own, history
        self._leaves = {at: record_leaf((own.origin or "").encode(), text) for at, text in own.records.items()}
        self._at = {leaf: at for at, leaf in self._leaves.items()}
        self._written = {history.leaf(at) for at in range(len(history)) if history.run(at) is None}

    def read(self, position: int, report: Report) -> dict[str, Any] | None:
        """Returns the record that the history has at ``position``; None if it is not there as it was written."""
        leaf, instead = self._history.leaf(position), self._leaves.get(position)
        at = position if instead == leaf else self._at.get(leaf)
        if at is None:
            what = "is missing"
            if instead is not None and instead not in self._written:
                # What it now claims to be helps to find it, and proves nothing.
                said = read_record(self._own.records[position])
                of = f" of run {str(said['run'])[:80]}" if said.get("run") is not None else ""
                claims = f"; it now reads {str(said['kind'])[:80]}{of}" if "kind" in said else ""
                what = f"is not as it was written{claims}"
            report.add("evidence", f"the record at entry {position} {what}")
            return None
        record = read_record(self._own.records[at])
        if self._own.runs[at] != record.get("run"):
            what = f"the record at entry {position} ({record.get('kind')}) is filed under run {self._own.runs[at]}"
            report.add("evidence", what, str(record.get("run")))
        return record


def _signed(
    connection: sqlite3.Connection, keys: Sequence[PublicKey], history: History, report: Report
) -> tuple[list[Checkpoint], int]:
    """Returns the database's own checkpoints, as far as the keys signed them, and the largest that needs no check.

    That is one that was published as it is.
    """
    found: list[Checkpoint] = []
    wrong = proven = unlike = 0
    if not keys:
        return found, proven
    for size, raw, peaks in _kept_checkpoints(connection, report):
        note = text_of(raw)
        if history.proven.get(size) == note_digest(note):
            proven = max(proven, size)
            unlike += not has_root(note, size, peaks)
            continue
        try:
            checkpoint = open_note(note, keys)
        except Invalid:
            wrong += 1
            continue
        found.append(checkpoint)
        wrong += checkpoint.size != size
        unlike += not has_root(note, size, peaks)
    if wrong:
        report.add("unsigned", f"checkpoints in the database that the key given has not signed: {wrong}")
    if unlike:
        what = counted(unlike, "checkpoint", "checkpoints")
        report.add("evidence", f"{what} in the database with other subtrees than those of the signed root")
    return found, proven


def _kept_checkpoints(connection: sqlite3.Connection, report: Report) -> Iterator[tuple[int, Any, Any]]:
    with reading(report, "the table checkpoints"):
        yield from connection.execute("SELECT size, CAST(note AS BLOB), peaks FROM checkpoints ORDER BY size")


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
                report.add("fork", f"the checkpoint of {size} entries {where} is signed for another history")
        if size < last:
            tree.append(history.leaf(size))
            progress("entries", size)
    for size in sorted(wanted):
        if any(outside for outside, _ in wanted[size]):
            report.add("rolled_back", f"a checkpoint says that the log had {size} entries, it has {len(history)}")
        else:
            report.add("truncated", f"a checkpoint in the database is signed for {size} entries")
    return good


def _name(
    connection: sqlite3.Connection,
    own: OwnEvidence,
    history: History,
    aligner: Aligner,
    report: Report,
    records: _CheckedRecords,
    found: Differences,
) -> None:
    """Puts what was done to the events before the findings about their evidence, which often follow from it.

    An older state, and another history, are one finding each, and not one for each event and record that it lacks.
    What was done to it besides is named as in any database.
    """
    events, gone, late = aligner.events, records.gone, records.late
    before, report.findings = report.findings, []
    tail = end_of_missing(events, found.missing)
    if _is_older(connection, own, history, events, found, tail):
        end = bisect_left(events.positions, len(own.entries))
        what = f"the database is an older state of itself: {len(own.entries)} of {history.anchored} published entries"
        older = _finding("rolled_back", events, range(end, len(events)), gone, what)
        rest = Differences(found.missing[: bisect_left(found.missing, end)], found.extra)
        name_differences(aligner, rest, report, gone, end)
        report.findings += [*before, older]
    elif _is_fork(events, found, tail, gone, records.agreed):
        what = "from this event on the database holds another history than the one that was published"
        fork = _finding("fork", events, range(tail, len(events)), gone, what)
        report.findings.append(fork)
        extra = [row for row in found.extra if row.sequence < events.sequence(tail)]
        rest = Differences(found.missing[: bisect_left(found.missing, tail)], extra)
        name_differences(aligner, rest, report, gone, tail)
        report.findings += [each for each in before if each.kind != "fork"]
    else:
        name_differences(aligner, found, report, gone, len(events))
        report.findings += [*before[: records.place], *late.findings, *before[records.place :]]
        report.more += late.more


def _finding(kind: str, events: Events, where: Iterable[int], gone: Container[str], what: str) -> Finding:
    """Returns a finding at the first of these events whose run is not gone, if there is one."""
    first = next((index for index in where if events.run(index) not in gone), None)
    run_id, sequence = (None, None) if first is None else (events.run(first), events.sequence(first))
    return Finding(kind, run_id, sequence, what)


def _is_older(
    connection: sqlite3.Connection, own: OwnEvidence, history: History, events: Events, found: Differences, tail: int
) -> bool:
    """Whether the database is an earlier state of itself, whatever else was done to it.

    Its entries are the first of those that were published, it has no event after them, and knows of none.
    """
    size = len(own.entries)
    if own.gap is not None or own.signed > size or not size < history.anchored:
        return False
    end = bisect_left(events.positions, size)
    if tail > end or not history.leaves.startswith(own.entries.leaves):
        return False
    newest = max([events.sequence(end) - 1, *(row.sequence for row in found.extra)])
    given = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return given is None or (isinstance(given[0], int) and given[0] <= newest)


def _is_fork(events: Events, found: Differences, tail: int, gone: Container[str], agreed: int) -> bool:
    """Whether, instead of the events from ``tail`` on, the database has others, with leaves of their own."""
    lost = [index for index in range(tail, len(events)) if events.run(index) not in gone]
    if len(lost) < 2 or agreed > events.positions[lost[0]]:
        return False
    return any(row.sequence >= events.sequence(lost[0]) for row in found.extra)


def _check_indexes(connection: sqlite3.Connection, report: Report) -> None:
    """Adds what SQLite finds in the tables and their indexes. The program reads events through an index.

    It takes two seconds for a million events. Full-text tables are left out: SQLite may lack what reads them.
    """
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in _TABLES:
        if table in there:
            for (fault,) in connection.execute(f"PRAGMA integrity_check({table})").fetchmany(_MOST_FAULTS):
                if fault != "ok":
                    report.add("evidence", f"SQLite finds a fault in the table {table}: {fault}")

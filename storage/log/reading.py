"""Reads one run from its rows, as far as they are neither damaged nor of a newer version.

A run's snapshot is used if its own digest holds, if the events it was made from are unchanged, and if the same code
made it. Then only later events are folded, else all are.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import ValidationError

from conductor_core.errors import RunGone, UnknownRun
from conductor_core.run import trace as folding
from conductor_core.run.actor import Caller
from conductor_core.run.events import EVENT, KINDS, VOCABULARY, Event
from conductor_core.run.trace import RunDamaged, RunKeyAway, RunTooNew, RunTrace, RunUnreadable
from storage import encoding
from storage.merkle.formats import text_of
from storage.privacy import SEALED, KeyAway, Sealed, Vault, event_place
from storage.records import ERASED, RawEvent, StoredEvent

if TYPE_CHECKING:
    from hashlib import _Hash

_SNAPSHOT = "SELECT run_id, sequence, fold_digest, trace, events_sha256, sha256 FROM snapshots WHERE run_id = ?"
_LONGEST_FAULT = 300


@dataclass(slots=True)
class Reading:
    """A run after the event ``sequence``. ``digest`` covers its events so far.

    ``snapshot_due`` is True if it had no usable snapshot.
    """

    trace: RunTrace
    sequence: int
    digest: "_Hash" = field(default_factory=hashlib.sha256)
    snapshot_due: bool = False


class BadRecord(Exception):
    """An event that cannot be read. ``newer``: a newer version of this program wrote it. ``away``: why its key is."""

    def __init__(self, raw: RawEvent, what: str, *, newer: bool = False, away: KeyAway | None = None) -> None:
        what = " ".join(what.split())  # of a library, perhaps: one readable line
        short = what if len(what) <= _LONGEST_FAULT else f"{what[:_LONGEST_FAULT]}..."
        super().__init__(f"its event {raw.sequence} ({raw.kind[:40]!r}) {short}")
        self.sequence = raw.sequence
        self.newer, self.away = newer, away


def read_run(connection: sqlite3.Connection, run_id: str, vault: Vault) -> Reading:
    """Reads a run. Raises: UnknownRun, also if it was erased; RunUnreadable, with what can be read of it."""
    snapshot: encoding.SnapshotRow | None = None
    with suppress(sqlite3.Error):  # the events may still be whole
        # The snapshot is read first, so that its events are among those read afterwards.
        row = connection.execute(_SNAPSHOT, (run_id,)).fetchone()
        snapshot = None if row is None else encoding.SnapshotRow(*row)
    if snapshot is not None and not snapshot.holds():
        snapshot = None
    rows, vocabulary = _rows(connection, run_id)
    reading: Reading | None = None
    changed = False
    if snapshot is not None:
        covered = [row for row in rows if row[0] <= snapshot.sequence]
        digest = hashlib.sha256(b"".join(encoding.stored_line(*row) for row in covered))
        changed = digest.hexdigest() != snapshot.events_sha256
        if not changed and snapshot.fold_digest == encoding.fold_digest():
            with suppress(ValidationError, Sealed):
                reading = Reading(_trace_of(snapshot, vault), snapshot.sequence, digest)
                rows = rows[len(covered) :]
    reading = _fold(run_id, rows, reading, vocabulary, vault)
    if changed and snapshot is not None:
        what = f"its events up to {snapshot.sequence} are not those that were written, their digest differs"
        raise RunDamaged(_advice(run_id, what, some=True), run_id=run_id, sequence=None, trace=reading.trace)
    return reading


def read_apart(connection: sqlite3.Connection, run_id: str, vault: Vault) -> tuple[Reading, str]:
    """Reads a run from its events alone, and says what is wrong with its snapshot; empty: nothing.

    The snapshot of another version of this program is of no use to a reader, and is not compared.

    Raises: UnknownRun, also if it was erased; RunUnreadable.
    """
    rows, vocabulary = _rows(connection, run_id)
    row = connection.execute(_SNAPSHOT, (run_id,)).fetchone()
    if row is None:
        return _fold(run_id, rows, None, vocabulary, vault), ""
    snapshot = encoding.SnapshotRow(*row)
    whole = snapshot.holds() and isinstance(snapshot.sequence, int)
    covered = [row for row in rows if row[0] <= snapshot.sequence] if whole else []
    if not covered:
        wrong = "is of other events" if whole else "was changed; readers pass over it"
        return _fold(run_id, rows, None, vocabulary, vault), wrong
    reading, wrong = _fold(run_id, covered, None, vocabulary, vault), ""
    if (reading.digest.hexdigest(), covered[-1][0]) != (snapshot.events_sha256, snapshot.sequence):
        wrong = "is of other events"
    elif snapshot.fold_digest == encoding.fold_digest():
        try:
            same = _trace_of(snapshot, vault) == reading.trace
        except (ValidationError, Sealed):
            same = False
        wrong = "" if same else "says other things than its events"
    return _fold(run_id, rows[len(covered) :], reading, vocabulary, vault), wrong


def _trace_of(snapshot: encoding.SnapshotRow, vault: Vault) -> RunTrace:
    folded = snapshot.trace.encode() if isinstance(snapshot.trace, str) else snapshot.trace
    return RunTrace.model_validate_json(vault.open(snapshot.run_id, encoding.snapshot_place(snapshot.sequence), folded))


def _fold(
    run_id: str, rows: Iterable[encoding.StoredRow], reading: Reading | None, vocabulary: int, vault: Vault
) -> Reading:
    """Folds the events of ``rows`` into ``reading``. None: the rows begin with the run's first event."""
    for row in rows:
        try:
            reading = _advance(run_id, opened(row, run_id, vault), reading, vocabulary)
        except BadRecord as bad:
            so_far = None if reading is None else reading.trace
            raise _unreadable(run_id, bad, so_far, some=so_far is not None) from bad
        reading.digest.update(encoding.stored_line(*row))
        reading.sequence = row[0]
    if reading is None:
        raise unknown_run(run_id)
    return reading


def _advance(run_id: str, raw: RawEvent, reading: Reading | None, vocabulary: int) -> Reading:
    """Folds one event into ``reading``, or begins it. Raises: BadRecord."""
    event = decode(raw, run_id, vocabulary)
    try:
        if reading is None:
            return Reading(folding.begin(event), raw.sequence, snapshot_due=True)
        folding.apply(reading.trace, event)
    except (KeyError, ValueError) as error:
        what = f"cannot follow what comes before it: {error}"
        raise BadRecord(raw, what, newer=vocabulary > VOCABULARY) from error
    return reading


def read_events(
    connection: sqlite3.Connection, run_id: str, vault: Vault, after: int = 0, limit: int | None = None
) -> tuple[list[StoredEvent], RunUnreadable | None]:
    """Returns the run's events after ``after``, at most ``limit``, and the fault that cut them short, if any."""
    vocabulary, erased = filed(connection, run_id)
    events: list[StoredEvent] = []
    for row in () if erased else encoding.stored_rows(connection, run_id, after, limit):
        try:
            events.append(StoredEvent(row[0], decode(opened(row, run_id, vault), run_id, vocabulary)))
        except BadRecord as bad:
            return events, _unreadable(run_id, bad, None, some=bool(events) or after > 0)
    return events, None


def read_raw(
    connection: sqlite3.Connection, run_id: str, vault: Vault, after: int = 0, limit: int | None = None
) -> list[RawEvent]:
    """Returns the run's events after ``after`` in order, as they were written: what can be decrypted is."""
    found = []
    for row in encoding.stored_rows(connection, run_id, after, limit):
        try:
            found.append(opened(row, run_id, vault))
        except BadRecord:
            found.append(raw_event(row))
    return found


def opened(row: encoding.StoredRow, run_id: str, vault: Vault) -> RawEvent:
    """Returns the event as it was written, decrypted. Raises: BadRecord."""
    raw = raw_event(row)
    if not raw.payload.startswith(SEALED):
        return raw
    try:
        plain = vault.open(run_id, event_place(raw.sequence, raw.kind, raw.at_utc), raw.payload)
    except Sealed as error:
        raise BadRecord(raw, f"cannot be read: {error}", away=error if isinstance(error, KeyAway) else None) from error
    return replace(raw, payload=plain)


def raw_event(row: encoding.StoredRow) -> RawEvent:
    sequence, kind, at_utc, payload = row
    return RawEvent(sequence, kind.decode("utf-8", "replace"), at_utc.decode("utf-8", "replace"), payload)


def decode(raw: RawEvent, run_id: str, vocabulary: int) -> Event:
    """Parses a stored event. ``vocabulary``: of the program that began the run. Raises: BadRecord."""
    try:
        event = EVENT.validate_json(raw.payload)
    except ValidationError as error:
        raise _bad_payload(raw, run_id, vocabulary, error) from error
    if (event.kind, event.run_id, event.at_utc.isoformat()) != (raw.kind, run_id, raw.at_utc):
        raise BadRecord(raw, "is not the event that it is filed as")
    return event


def unknown_run(run_id: str) -> UnknownRun:
    return UnknownRun(f"unknown run {run_id!r}; see `conductor runs`")


def _rows(connection: sqlite3.Connection, run_id: str) -> tuple[list[encoding.StoredRow], int]:
    """Returns the events of a run and its vocabulary. Raises: UnknownRun; RunDamaged if there are none."""
    rows = encoding.stored_rows(connection, run_id)
    vocabulary, erased = filed(connection, run_id)
    if rows and not erased:
        return rows, vocabulary
    deletion = read_deletion(connection, run_id)
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        raise unknown_run(run_id) if deletion is None else RunGone(deletion.in_words)
    if deletion is not None and deletion.erased:
        raise RunGone(deletion.in_words)
    raise RunDamaged(_advice(run_id, "none of its events is there", False), run_id=run_id, sequence=None, trace=None)


def _bad_payload(raw: RawEvent, run_id: str, vocabulary: int, error: ValidationError) -> BadRecord:
    """Says what is wrong with an event. It is too new only if it is whole but its kind or a part of it is unknown."""
    try:
        document = json.loads(raw.payload)
    except (ValueError, RecursionError) as fault:
        return BadRecord(raw, f"is not JSON, {fault}")
    if not isinstance(document, dict) or (document.get("kind"), document.get("run_id", run_id)) != (raw.kind, run_id):
        return BadRecord(raw, "is not the event that it is filed as")
    if raw.kind not in KINDS:
        return BadRecord(raw, "is of a kind that this program does not know", newer=True)
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    what = f"does not say what it should, {where + ': ' if where else ''}{first['msg']}"
    return BadRecord(raw, what, newer=vocabulary > VOCABULARY)


def _unreadable(run_id: str, bad: BadRecord, so_far: RunTrace | None, *, some: bool) -> RunUnreadable:
    """Makes the error of a run with a bad event. ``some``: whether the run has readable events before it."""
    if bad.away is not None:
        message = f"run {run_id} is encrypted, and its key is away: {bad.away}"
        return RunKeyAway(message, run_id=run_id, sequence=None, trace=so_far)
    if not bad.newer:
        return RunDamaged(_advice(run_id, str(bad), some), run_id=run_id, sequence=bad.sequence, trace=so_far)
    message = (
        f"run {run_id} was written by a newer version of this program: {bad}. "
        f"{'What comes before that event' if some else 'Nothing of it'} can be read here; "
        "upgrade this program to read it whole"
    )
    return RunTooNew(message, run_id=run_id, sequence=bad.sequence, trace=so_far)


def _advice(run_id: str, what: str, some: bool) -> str:
    return (
        f"run {run_id} is damaged: {what}. {'What comes before that' if some else 'Nothing of it'} can be read; "
        "restore a copy of the database to have the run whole, or run its task again"
    )


def filed(connection: sqlite3.Connection, run_id: str) -> tuple[int, bool]:
    """Returns the run's vocabulary, or this program's if its row is damaged or missing; and whether it was erased."""
    try:
        row = connection.execute("SELECT vocabulary, status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    except sqlite3.Error:
        return VOCABULARY, False
    if row is None:
        return VOCABULARY, False
    return row[0] if isinstance(row[0], int) else VOCABULARY, row[1] == ERASED


DELETIONS = "SELECT run_id, deleted_at_utc, actor, door, erased FROM deletions"
GONE = "SELECT run_id FROM deletions WHERE NOT erased AND run_id NOT IN (SELECT run_id FROM runs)"
"""The runs that were deleted, not erased, and that no later run has the id of."""


@dataclass(frozen=True)
class Deletion:
    """A run that was deleted, or erased: it then stays in lists. ``deleted_at_utc`` is None if it cannot be read."""

    run_id: str
    deleted_at_utc: datetime | None
    caller: Caller
    erased: bool = False

    @property
    def in_words(self) -> str:
        when = "" if self.deleted_at_utc is None else f" on {self.deleted_at_utc:%Y-%m-%d}"
        what = "was erased" if self.erased else "was deleted"
        rest = ": its text is gone for good, and its place in the record stays" if self.erased else ""
        return f"run {self.run_id} {what}{when} (by {self.caller.in_words}){rest}"


def read_deletion(connection: sqlite3.Connection, run_id: str) -> Deletion | None:
    row = connection.execute(f"{DELETIONS} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else deletion(row)


def deletion(row: tuple[object, object, object, object, object]) -> Deletion:
    run_id, deleted_at_utc, actor, door, erased = row
    try:
        caller = encoding.read_caller(actor, door)
    except ValueError:  # damaged
        caller = Caller()
    return Deletion(text_of(run_id), encoding.read_time(deleted_at_utc), caller, bool(erased))

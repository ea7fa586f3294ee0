"""Writes the evidence of events and records, in the transaction that writes them."""

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from storage.merkle.formats import NO_LEAF, event_leaf, record_leaf, text_of

_SIZE = "SELECT coalesce(max(position), -1) + 1 FROM leaves"
_INSERT = "INSERT INTO leaves (position, run_id, hash, record) VALUES "
_ROW = "(?, ?, ?, ?)"
_MOST_ROWS = 64
_COVERED = "SELECT count(*), max(position) FROM events WHERE run_id = ? AND position IS NOT NULL"


@dataclass(slots=True)
class RunChain:
    """The chain of one run: how many of its events have a leaf, and the last leaf."""

    places: int = 0
    head: bytes = NO_LEAF


def read_chain(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> RunChain:
    count, position = connection.execute(_COVERED, (run_id,)).fetchone()
    if not count:
        return RunChain()
    ((head,),) = connection.execute("SELECT hash FROM leaves WHERE position = ?", (position,))
    return RunChain(count, head)


def read_size(connection: sqlite3.Connection | sqlite3.Cursor) -> int:
    """Returns how many entries the log has."""
    return int(connection.execute(_SIZE).fetchone()[0])


def read_origin(connection: sqlite3.Connection | sqlite3.Cursor) -> str:
    """Returns the name of the log; empty: the database does not say. Raises: sqlite3.Error."""
    row = connection.execute("SELECT CAST(origin AS BLOB) FROM evidence_log").fetchone()
    return "" if row is None else text_of(row[0])


class Entries:
    """The entries that one transaction of the writer adds to the log. Call ``save`` before it ends."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self._origin, self._next = read_origin(cursor).encode(), read_size(cursor)
        if not self._origin:
            raise ValueError("the table evidence_log is empty")
        self._rows: list[tuple[int, str | None, bytes, str | None]] = []

    def add_event(self, run: RunChain, run_id: str, sequence: int, kind: bytes, at_utc: bytes, payload: bytes) -> int:
        """Adds an event with its columns as they are stored. Returns its position."""
        digest = hashlib.sha256(payload).hexdigest().encode()
        run.head = event_leaf(self._origin, run.places, sequence, digest, run.head, at_utc, kind, run_id.encode())
        run.places += 1
        return self._add(run_id, run.head, None)

    def seal(self, run_id: str, run: RunChain) -> None:
        """Records that a run has ended: it has so many events, and the last leaf is this."""
        self.add_record("run.sealed", run_id, events=run.places, head=run.head.hex())

    def add_record(self, kind: str, run_id: str | None = None, **fields: object) -> None:
        """Adds a record of something that is not an event of a run."""
        values = {"kind": kind, "at_utc": datetime.now(UTC).isoformat(), **fields}
        if run_id is not None:
            values["run"] = run_id
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        self._add(run_id, record_leaf(self._origin, text.encode()), text)

    def _add(self, run_id: str | None, leaf: bytes, record: str | None) -> int:
        position = self._next
        self._rows.append((position, run_id, leaf, record))
        self._next += 1
        return position

    def save(self) -> None:
        for start in range(0, len(self._rows), _MOST_ROWS):
            some = self._rows[start : start + _MOST_ROWS]
            self._cursor.execute(_INSERT + ", ".join([_ROW] * len(some)), list(chain.from_iterable(some)))
        self._rows = []


def add_record(cursor: sqlite3.Cursor, kind: str, run_id: str | None = None, **fields: object) -> None:
    """Adds one record to the log. Call it in a transaction of the writer."""
    entries = Entries(cursor)
    entries.add_record(kind, run_id, **fields)
    entries.save()

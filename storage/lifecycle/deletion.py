"""Deletes and erases runs, and places the holds that forbid it. The database keeps who did so to which run, and when.

Triggers in the database enforce this: they refuse to delete events of a run that is held or not in ``deletions``.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conductor_core.run.actor import Caller
from conductor_core.run.trace import ENDED_STATUSES
from storage.encoding import caller_columns, caller_fields, stored_line, stored_rows
from storage.evidence.derived import deletion_digest, digest_of, erased_row
from storage.log.live_runs import forget_images
from storage.merkle.chain import add_record, record_deletion
from storage.privacy import SEALED
from storage.records import ERASED
from storage.search.index import forget as forget_text

_RECORD = (
    "INSERT INTO deletions "
    "(run_id, deleted_at_utc, actor, door, created_at_utc, status, events, events_sha256, erased) "
    "VALUES (:run_id, :deleted_at_utc, :actor, :door, :created_at_utc, :status, :events, :events_sha256, :erased)"
)
_BLANK = (
    "UPDATE runs SET status = ?, task = '', error = NULL, asked_for = NULL, batch_row = NULL, purpose = '', "
    "owner_id = '' WHERE run_id = ?"
)
_PLAIN = (
    "SELECT EXISTS (SELECT 1 FROM events WHERE run_id = ? AND substr(CAST(ifnull(payload, '') AS BLOB), 1, 1) <> ?)"
)
_HOLD = "INSERT INTO holds (run_id, held, at_utc, actor, door) VALUES (?, ?, ?, ?, ?)"


@dataclass
class Deleted:
    """The outcome of a deletion or an erasure.

    ``refused`` gives, by run, why a run was not deleted. ``sealed``: the runs that were erased now, and of which
    encrypted events stay. ``keyless``: those of them whose key was not there to be destroyed.
    """

    run_ids: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    sealed: list[str] = field(default_factory=list)
    keyless: list[str] = field(default_factory=list)


def take_out(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, erased: bool) -> Deleted:
    """Deletes each run that has ended and is not held, or takes its text and leaves it in lists as erased.

    If all events of an erased run are encrypted, they stay: whoever destroys its key makes them unreadable. Else they
    go. A run that was erased before counts as erased again. Call it in a transaction of the writer.
    """
    done = Deleted()
    # SQLite then overwrites what it deletes, instead of only unlinking it.
    cursor.execute("PRAGMA secure_delete=ON")
    try:
        for run_id in dict.fromkeys(run_ids):
            run = cursor.execute("SELECT status, created_at_utc FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if erased and run is not None and run[0] == ERASED:
                done.run_ids.append(run_id)
                continue
            if refusal := _refusal(cursor, run_id, run):
                done.refused[run_id] = refusal
                continue
            sealed = False
            if erased:
                cursor.execute(_BLANK, (ERASED, run_id))
                sealed = cursor.execute(_PLAIN, (run_id, SEALED)).fetchone() == (0,)
            _record(cursor, run_id, run, caller, erased=erased, sealed=sealed)
            forget_images(cursor, run_id)
            forget_text(cursor, run_id)
            for table in (*([] if sealed else ["events"]), "commands", "snapshots", *([] if erased else ["runs"])):
                cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608  own names
            done.sealed += [run_id] if sealed else []
            done.run_ids.append(run_id)
    finally:
        cursor.execute("PRAGMA secure_delete=OFF")
    return done


def _refusal(cursor: sqlite3.Cursor, run_id: str, run: tuple[str, str] | None) -> str | None:
    """Says why a run is not deleted or erased; None if it can be."""
    if run is None:
        return "this run no longer exists"
    if run[0] == ERASED:
        return "it was erased: its place in the record stays"
    if run[0] == "waiting":
        return "it waits for an approval: deny or cancel it first"
    if run[0] not in ENDED_STATUSES:
        return "it is running: cancel it first"
    return "it is held: release it first" if is_held(cursor, run_id) else None


def _record(
    cursor: sqlite3.Cursor, run_id: str, run: tuple[str, str], caller: Caller, *, erased: bool, sealed: bool
) -> None:
    events = stored_rows(cursor.connection, run_id)
    sha256 = hashlib.sha256(b"".join(stored_line(*row) for row in events)).hexdigest()
    now = datetime.now(UTC).isoformat()
    actor, door = caller_columns(caller)
    row = {
        "run_id": run_id,
        "deleted_at_utc": now,
        "actor": actor,
        "door": door,
        "created_at_utc": run[1],
        "status": run[0],
        "events": len(events),
        "events_sha256": sha256,
        "erased": erased,
    }
    cursor.execute(_RECORD, row)
    more = {"erased": True, "run_sha256": digest_of([erased_row(cursor, run_id)])} if erased else {}
    more |= {"sealed": True} if sealed else {}  # then its events stay
    record_deletion(cursor, run_id, at_utc=now, row_sha256=deletion_digest(row), **caller_fields(caller), **more)


def hold(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, held: bool) -> None:
    """Places a hold on each run, or takes it off (``held`` False), and records it in the log.

    Call it in a transaction of the writer.
    """
    now = datetime.now(UTC).isoformat()
    actor, door = caller_columns(caller)
    for run_id in dict.fromkeys(run_ids):
        cursor.execute(_HOLD, (run_id, held, now, actor, door))
        add_record(cursor, "run.held" if held else "run.released", run_id, at_utc=now, **caller_fields(caller))


def is_held(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> bool:
    held = connection.execute("SELECT held FROM holds WHERE run_id = ? ORDER BY id DESC LIMIT 1", (run_id,)).fetchone()
    return held is not None and bool(held[0])

"""Deletes runs, and places the holds that forbid it. The database keeps for good who did so to which run, and when.

Triggers in the database enforce this: they refuse to delete events of a run that is held or not in ``deletions``.
"""

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conductor_core.actor import Caller
from conductor_core.trace import ENDED_STATUSES
from storage import contents
from storage.encoding import caller_columns, read_caller, read_text, read_time, stored_line, stored_rows
from storage.evidence.chain import record_deletion
from storage.search import forgetting

_RUN = "SELECT status, created_at_utc FROM runs WHERE run_id = ?"
_HELD = "SELECT held FROM holds WHERE run_id = ? ORDER BY id DESC LIMIT 1"
_RECORD = (
    "INSERT INTO deletions (run_id, deleted_at_utc, actor, door, created_at_utc, status, events, events_sha256) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_HOLD = "INSERT INTO holds (run_id, held, at_utc, actor, door) VALUES (?, ?, ?, ?, ?)"
_DELETIONS = "SELECT run_id, deleted_at_utc, actor, door FROM deletions"
_EMPTY_BATCHES = "DELETE FROM batches WHERE batch_id NOT IN (SELECT batch_id FROM runs WHERE batch_id IS NOT NULL)"


@dataclass
class Deleted:
    """The outcome of a deletion. ``refused`` gives, by run, why a run was not deleted."""

    run_ids: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Deletion:
    """A run that was deleted. ``deleted_at_utc`` is None if it cannot be read."""

    run_id: str
    deleted_at_utc: datetime | None
    caller: Caller


def delete(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller) -> Deleted:
    """Deletes each run that has ended and is not held. Call it in a transaction of the writer."""
    done = Deleted()
    # SQLite then overwrites what it deletes, instead of only unlinking it.
    cursor.execute("PRAGMA secure_delete=ON")
    try:
        for run_id in dict.fromkeys(run_ids):
            run = cursor.execute(_RUN, (run_id,)).fetchone()
            if run is None:
                done.refused[run_id] = "there is no such run any more"
            elif run[0] == "waiting":
                done.refused[run_id] = "it waits for an approval: deny or cancel it first"
            elif run[0] not in ENDED_STATUSES:
                done.refused[run_id] = "it is running: cancel it first"
            elif _is_held(cursor, run_id):
                done.refused[run_id] = "it is held: release it first"
            else:
                _delete_one(cursor, run_id, run, caller)
                done.run_ids.append(run_id)
        cursor.execute(_EMPTY_BATCHES)
    finally:
        cursor.execute("PRAGMA secure_delete=OFF")
    return done


def _delete_one(cursor: sqlite3.Cursor, run_id: str, run: tuple[str, str], caller: Caller) -> None:
    events = stored_rows(cursor.connection, run_id)
    sha256 = hashlib.sha256(b"".join(stored_line(*row) for row in events)).hexdigest()
    now = datetime.now(UTC).isoformat()
    actor, door = caller_columns(caller)
    cursor.execute(_RECORD, (run_id, now, actor, door, run[1], run[0], len(events), sha256))
    record_deletion(cursor, run_id, actor=None if actor is None else json.loads(actor), door=door)
    contents.forget(cursor, run_id)
    forgetting.forget(cursor, run_id)
    for table in ("events", "commands", "snapshots", "runs"):
        cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608  own names


def hold(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, held: bool) -> None:
    """Places a hold on each run, or takes it off (``held`` False). Call it in a transaction of the writer."""
    now = datetime.now(UTC).isoformat()
    cursor.executemany(_HOLD, [(run_id, held, now, *caller_columns(caller)) for run_id in dict.fromkeys(run_ids)])


def read_held(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """Returns the runs among ``run_ids`` that are held."""
    return {run_id for run_id in run_ids if _is_held(connection, run_id)}


def _is_held(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> bool:
    held = connection.execute(_HELD, (run_id,)).fetchone()
    return held is not None and bool(held[0])


def read_deletions(connection: sqlite3.Connection, limit: int) -> tuple[list[Deletion], int]:
    """Returns the newest deletions, and how many there are in all."""
    rows = connection.execute(f"{_DELETIONS} ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
    ((count,),) = connection.execute("SELECT count(*) FROM deletions")
    return [_deletion(row) for row in rows], count


def read_deletion(connection: sqlite3.Connection, run_id: str) -> Deletion | None:
    """Returns when and by whom the run was deleted, or None if it was not."""
    row = connection.execute(f"{_DELETIONS} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _deletion(row)


def _deletion(row: tuple[object, object, object, object]) -> Deletion:
    run_id, deleted_at_utc, actor, door = row
    try:
        caller = read_caller(actor, door)
    except ValueError:  # damaged
        caller = Caller()
    return Deletion(read_text(run_id), read_time(deleted_at_utc), caller)

"""Deletes and erases runs, and places the holds that forbid it. The database keeps who did so to which run, and when.

Triggers in the database enforce this: they refuse to delete events of a run that is held or not in ``deletions``.
"""

import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from conductor_core.errors import StoreError
from conductor_core.run.actor import Caller
from conductor_core.run.trace import ENDED_STATUSES
from storage.database.connections import Database
from storage.encoding import caller_columns, stored_line, stored_rows
from storage.evidence.anchoring import Anchoring
from storage.evidence.derived import deletion_digest, digest_of, erased_row
from storage.log.event_log import EventLog, RefusingLog
from storage.log.live_runs import forget_images
from storage.log.queries import Listing
from storage.log.reading import Deletion, read_deletion, read_deletions, read_gone
from storage.merkle.chain import add_record, record_deletion
from storage.privacy import SEALED
from storage.records import ERASED
from storage.search.index import forget as forget_text
from storage.search.search import RunSearch

log = logging.getLogger(__name__)

_RUN = "SELECT status, created_at_utc FROM runs WHERE run_id = ?"
_HELD = "SELECT held FROM holds WHERE run_id = ? ORDER BY id DESC LIMIT 1"
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
_RERUNS = "SELECT run_id FROM runs WHERE parent_run_id = ? AND status <> ?"
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
            run = cursor.execute(_RUN, (run_id,)).fetchone()
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
    return "it is held: release it first" if _is_held(cursor, run_id) else None


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
    who = {"actor": None if actor is None else json.loads(actor), "door": door}
    record_deletion(cursor, run_id, at_utc=now, row_sha256=deletion_digest(row), **who, **more)


def hold(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, held: bool) -> None:
    """Places a hold on each run, or takes it off (``held`` False), and records it in the log.

    Call it in a transaction of the writer.
    """
    now = datetime.now(UTC).isoformat()
    actor, door = caller_columns(caller)
    for run_id in dict.fromkeys(run_ids):
        cursor.execute(_HOLD, (run_id, held, now, actor, door))
        kind = "run.held" if held else "run.released"
        who = {"actor": None if actor is None else json.loads(actor), "door": door}
        add_record(cursor, kind, run_id, at_utc=now, **who)


def _is_held(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> bool:
    held = connection.execute(_HELD, (run_id,)).fetchone()
    return held is not None and bool(held[0])


class Removing:
    """The part of ``Store`` that takes runs out of its database, and forbids it. All methods raise StoreError."""

    log: EventLog | RefusingLog
    search: RunSearch
    _database: Database
    _anchoring: Anchoring
    _listing: Listing

    def delete(self, run_ids: Sequence[str], caller: Caller) -> Deleted:
        """Deletes runs for good, except running and held ones, and records that ``caller`` deleted them.

        Their keys go last, so that no copy of the database can be read with them. Raises: StoreError.
        """
        outcome = Deleted()

        def work(cursor: sqlite3.Cursor) -> None:
            nonlocal outcome
            outcome = take_out(cursor, run_ids, caller, erased=False)

        self.log.change_and_wait(work)
        self._anchoring.written(len(outcome.run_ids))
        for run_id in outcome.run_ids:
            self._listing.doubt(run_id)
        self._database.vault.destroy(outcome.run_ids)
        return outcome

    def erase(
        self, run_ids: Sequence[str], caller: Caller, forget: Callable[[str], None] = lambda run_id: None
    ) -> Deleted:
        """Destroys the text of runs for good, except of running and held ones. They stay in lists as erased.

        Their keys are destroyed, ``forget`` is called for each, then the file is rewritten without what was deleted:
        seconds for a gigabyte. Each of these is done even if another fails. A run that was erased before goes through
        the same again, in case that was interrupted.

        Raises: what ``forget`` raises; StoreError; StoreLocked if a reader keeps the log of SQLite from being emptied.
        """
        outcome = Deleted()

        def work(cursor: sqlite3.Cursor) -> None:
            nonlocal outcome
            outcome = take_out(cursor, run_ids, caller, erased=True)

        self.log.change_and_wait(work)
        self._anchoring.written(len(outcome.run_ids))
        if outcome.run_ids:
            with ExitStack() as last_first:
                last_first.callback(self.log.rewrite_and_wait)
                last_first.callback(self.search.sweep)
                for run_id in outcome.run_ids:
                    self._listing.doubt(run_id)
                    last_first.callback(forget, run_id)
                vault = self._database.vault
                outcome.keyless = sorted(set(outcome.sealed) - set(vault.all_of(outcome.sealed)))
                vault.destroy(outcome.run_ids)
        return outcome

    def unfinished(self, run_ids: Sequence[str]) -> set[str]:
        """Returns the runs among these erased ones whose key is still there: to erase them was broken off."""
        return set(self._database.vault.all_of(run_ids))

    def _drop_left_keys(self) -> None:
        """Destroys the keys of runs whose deletion was broken off after its transaction.

        It holds the write lock of the file, so that no other process begins a run of such an id meanwhile.
        """
        vault = self._database.vault
        if not vault.path.exists():
            return
        try:
            with self._database.reading() as connection:
                left = vault.all_of(read_gone(connection))
            if left:
                with self._database.writing():
                    with self._database.reading() as connection:
                        left = vault.all_of(read_gone(connection))
                    vault.destroy(left)
        except StoreError as error:
            log.warning("keys of deleted runs may be left: %s", error)

    def copies(self, run_id: str) -> list[str]:
        """Returns the re-runs of a run, which may hold text of it."""
        with self._database.reading() as connection:
            return [other for (other,) in connection.execute(_RERUNS, (run_id, ERASED))]

    def hold(self, run_ids: Sequence[str], caller: Caller, *, held: bool = True) -> None:
        """Forbids to delete these runs, or allows it again (``held`` False), and records who did so."""
        self.log.change_and_wait(lambda cursor: hold(cursor, run_ids, caller, held=held))
        self._anchoring.written(len(run_ids))

    def held(self, run_ids: Sequence[str]) -> set[str]:
        """Returns the runs among ``run_ids`` that are held."""
        with self._database.reading() as connection:
            return {run_id for run_id in run_ids if _is_held(connection, run_id)}

    def deletion(self, run_id: str) -> Deletion | None:
        """Returns when the run was deleted or erased and who did so; None: it was not."""
        with self._database.reading() as connection:
            return read_deletion(connection, run_id)

    def deletions(self, limit: int = 50) -> tuple[list[Deletion], int]:
        """Returns the newest deletions, and how many there are in all."""
        with self._database.reading() as connection:
            return read_deletions(connection, limit)

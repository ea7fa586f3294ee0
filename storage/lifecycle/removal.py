"""Deletes, erases and holds the runs of a store."""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from conductor_core.errors import StoreError
from conductor_core.run.actor import Caller
from storage.database.connections import Database
from storage.evidence.anchoring import Anchoring
from storage.lifecycle import deletion as deleting
from storage.lifecycle.deletion import Deleted
from storage.log import deletions
from storage.log.event_log import EventLog, RefusingLog
from storage.log.queries import Listing
from storage.search.search import RunSearch

log = logging.getLogger(__name__)


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
            outcome = deleting.delete(cursor, run_ids, caller)

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
            outcome = deleting.erase(cursor, run_ids, caller)

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
                left = vault.all_of(deletions.read_gone(connection))
            if left:
                with self._database.writing():
                    with self._database.reading() as connection:
                        left = vault.all_of(deletions.read_gone(connection))
                    vault.destroy(left)
        except StoreError as error:
            log.warning("keys of deleted runs may be left: %s", error)

    def copies(self, run_id: str) -> list[str]:
        """Returns the re-runs of a run, which may hold text of it."""
        with self._database.reading() as connection:
            return deleting.read_copies(connection, run_id)

    def hold(self, run_ids: Sequence[str], caller: Caller, *, held: bool = True) -> None:
        """Forbids to delete these runs, or allows it again (``held`` False), and records who did so."""
        self.log.change_and_wait(lambda cursor: deleting.hold(cursor, run_ids, caller, held=held))
        self._anchoring.written(len(run_ids))

    def held(self, run_ids: Sequence[str]) -> set[str]:
        """Returns the runs among ``run_ids`` that are held."""
        with self._database.reading() as connection:
            return deleting.read_held(connection, run_ids)

    def deletion(self, run_id: str) -> deletions.Deletion | None:
        """Returns when the run was deleted or erased and who did so; None: it was not."""
        with self._database.reading() as connection:
            return deletions.read_deletion(connection, run_id)

    def deletions(self, limit: int = 50) -> tuple[list[deletions.Deletion], int]:
        """Returns the newest deletions, and how many there are in all."""
        with self._database.reading() as connection:
            return deletions.read_deletions(connection, limit)

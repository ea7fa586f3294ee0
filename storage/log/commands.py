"""Commands to runs: sent by any process, heard by the one that carries out the run."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from conductor_core.errors import StoreError
from conductor_core.run.commands import COMMAND, Command, SentCommand
from conductor_core.run.trace import ENDED_STATUSES
from storage.database.connections import Database
from storage.privacy.vault import Sealed, Vault
from storage.records import ERASED

log = logging.getLogger(__name__)

Listener = Callable[[SentCommand], None]

_POLL_S = 0.1
_STATUS = "SELECT status FROM runs WHERE run_id = ?"
_SEND = "INSERT INTO commands (run_id, kind, at_utc, payload) VALUES (?, ?, ?, ?)"
_NEWEST = "SELECT coalesce(max(id), 0) FROM commands"
_AFTER = "SELECT id, payload, run_id, kind, at_utc FROM commands WHERE id > ? ORDER BY id"
_OF_RUN = "SELECT id, payload, run_id, kind, at_utc FROM commands WHERE run_id = ? AND id > ? ORDER BY id"
_TO_WAITING = (
    "SELECT DISTINCT run_id FROM runs JOIN commands USING (run_id) WHERE status = 'waiting' ORDER BY runs.sequence"
)


def send(cursor: sqlite3.Cursor, command: Command, vault: Vault) -> int | str:
    """Keeps the command and returns its id, or the status of a run that cannot hear it: it has ended, or is not there.

    Call it in a transaction of the writer.
    """
    row = cursor.execute(_STATUS, (command.run_id,)).fetchone()
    if row is None or row[0] in ENDED_STATUSES or row[0] == ERASED:
        return "unknown" if row is None else str(row[0])
    now = datetime.now(UTC).isoformat()
    kept = vault.seal(command.run_id, _place(command.kind, now), command.model_dump_json())
    cursor.execute(_SEND, (command.run_id, command.kind, now, kept))
    return int(cursor.lastrowid or 0)


def read_commands(connection: sqlite3.Connection, run_id: str, after: int, vault: Vault) -> list[SentCommand]:
    """Returns the commands sent to the run after the command ``after``, in order."""
    return _sent(connection.execute(_OF_RUN, (run_id, after)).fetchall(), vault)


def read_sent_to_waiting(connection: sqlite3.Connection) -> list[str]:
    """Returns the runs that wait and to which anything was ever sent."""
    return [run_id for (run_id,) in connection.execute(_TO_WAITING)]


def _place(kind: str, at_utc: str) -> str:
    return f"command {kind} {at_utc}"


def _sent(rows: Sequence[tuple[int, str | bytes, str, str, str]], vault: Vault) -> list[SentCommand]:
    """Reads commands. Leaves out those that are damaged, or of a newer version of this program."""
    sent = []
    for number, kept, run_id, kind, at_utc in rows:
        try:
            payload = kept if isinstance(kept, str) else vault.open(run_id, _place(kind, at_utc), kept)
            sent.append(SentCommand(number, COMMAND.validate_json(payload)))
        except Sealed as error:
            log.warning("command %s is left out: %s", number, error)
        except ValidationError as error:
            log.warning("command %s cannot be read and is left out: %s", number, error.errors()[0]["msg"])
    return sent


class CommandWatch:
    """Tells a listener each command that any process sends, from the moment that it begins, once and in order.

    One thread asks the database every 0.1 s, and at once when this process has sent one (``wake``).
    """

    def __init__(self, database: Database, listener: Listener) -> None:
        """Raises: StoreError."""
        self._database, self._listener = database, listener
        with database.reading() as connection:
            ((self._last,),) = connection.execute(_NEWEST)
        self._closed = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commands", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._news.wait(_POLL_S)
            self._news.clear()
            try:
                for sent in self._read():
                    self._listener(sent)
            except StoreError as error:
                # The database is gone or locked: whoever writes to it says so.
                log.debug("commands cannot be read: %s", error)

    def _read(self) -> list[SentCommand]:
        if self._closed:
            return []
        with self._database.reading() as connection:
            rows = connection.execute(_AFTER, (self._last,)).fetchall()
        if rows:
            self._last = rows[-1][0]
        return _sent(rows, self._database.vault)

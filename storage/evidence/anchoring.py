"""Signs checkpoints of the log and publishes them, in a thread of its own, off the path on which events are written."""

import logging
import sqlite3
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor_core.errors import BadInput, StoreError
from conductor_core.files import FileLock
from storage.database.connections import Database
from storage.encoding import read_time
from storage.evidence.anchors import FILE_NAME, Anchor, FileAnchor, anchor_at, anchor_line
from storage.evidence.keys import load_key
from storage.merkle.formats import Checkpoint, Invalid, Tree, error_text, open_note, text_of

log = logging.getLogger(__name__)

EVERY_S = 1.0
EVERY_ENTRIES = 256
_AGAIN_S = 5.0
"""The time before a place that could not be reached is tried again."""
_LOCK_S = 5.0
_MOST_ENTRIES = 50_000
"""The most entries of one checkpoint: a database of before that was copied in is published in parts."""
_NEWEST = "SELECT size, peaks FROM checkpoints ORDER BY size DESC LIMIT 1"
_LEAVES = (
    "SELECT CASE WHEN record IS NULL THEN run_id END, hash FROM leaves "
    "WHERE position >= ? AND position < ? ORDER BY position"
)
_KEEP = "INSERT OR IGNORE INTO checkpoints (size, at_utc, note, peaks) VALUES (?, ?, ?, ?)"
_ANCHORED = "SELECT size, at_utc, note FROM checkpoints ORDER BY size DESC LIMIT 1"
_ROTATED = "SELECT 1 FROM leaves WHERE position >= ? AND record LIKE '%\"key.rotated\"%' LIMIT 1"
_SIZE = "SELECT coalesce(max(position), -1) + 1 FROM leaves"
_OLDEST = "SELECT position, run_id FROM leaves WHERE position >= ? AND record IS NULL ORDER BY position LIMIT 1"
_UNANCHORED = "SELECT count(*) FROM leaves WHERE position >= ? AND record IS NULL"
_WHEN = "SELECT at_utc FROM events WHERE run_id = ? AND position = ?"


@dataclass(frozen=True)
class Places:
    """Where a log's key is, and where its checkpoints are published."""

    key: Path
    anchor: Anchor

    def beside(self, database: Path) -> bool:
        """Whether the anchor is beside the database, so that whoever can write the one can write the other."""
        return self.anchor.file.is_relative_to(database.parent)


def evidence_folder(database: Path) -> Path:
    """Returns the folder beside a database that holds its key and its anchor, unless the settings name others."""
    return database.with_name(f"{database.name}.evidence")


def places_of(database: Path, anchor: str | None = None, signing_key: Path | None = None) -> Places:
    """Returns the places that the settings name, else those beside the database. Raises: BadInput.

    The folder beside it is apart from the database, but whoever can write the database can write there, too.
    """
    folder = evidence_folder(database)
    key = folder / "signing-key" if signing_key is None else signing_key.expanduser().absolute()
    return Places(key, FileAnchor(folder / FILE_NAME) if anchor is None else anchor_at(anchor))


@dataclass(frozen=True)
class Evidence:
    """What of a log is protected.

    Attributes:
        entries: of the log in all. anchored: how many of them were published.
        unanchored_events: how many events were not. unanchored_since_utc: when the first of these happened.
        anchored_at_utc: when the last checkpoint was published. fault: why the last try failed; None: it did not.
        doubt: why what the database says of its publication cannot be believed; None: nothing speaks against it.
    """

    origin: str
    covered_from: int
    entries: int
    anchored: int
    unanchored_events: int
    unanchored_since_utc: datetime | None
    anchored_at_utc: datetime | None
    anchor: str
    fault: str | None
    doubt: str | None = None


def _doubt(
    connection: sqlite3.Connection, origin: str, note: object, size: int, entries: int, places: Places
) -> str | None:
    """Returns why the newest checkpoint of the database cannot be believed. Key and anchor are outside of it."""
    if size > entries:
        return f"a checkpoint says {size:,} entries, and the log has {entries:,}"
    try:
        if not places.key.is_file():
            return f"no signing key at {places.key}"
        if (published := FileAnchor(places.anchor.file).size(origin)) < size:
            return f"the database says that {size:,} entries are published, and the anchor has {published:,}"
        signed = open_note(text_of(note), [load_key(places.key, origin).public])
    except Invalid as error:
        # Until the next publication, the newest checkpoint is signed by the key that was replaced.
        return None if connection.execute(_ROTATED, (size,)).fetchone() else str(error)
    except (BadInput, OSError) as error:
        return error_text(error)
    return None if signed.size == size else f"the checkpoint has {signed.size:,} entries instead of {size:,}"


def read_evidence(connection: sqlite3.Connection, places: Places, fault: str | None) -> Evidence:
    """Reads how far the log is published. Raises: sqlite3.Error."""
    origin, covered_from = connection.execute("SELECT origin, covered_from FROM evidence_log").fetchone() or ("", 0)
    ((entries,),) = connection.execute(_SIZE)
    size, at_utc, note = connection.execute(_ANCHORED).fetchone() or (0, None, "")
    ((unanchored,),) = connection.execute(_UNANCHORED, (size,))
    first = connection.execute(_OLDEST, (size,)).fetchone()
    since = None if first is None else connection.execute(_WHEN, (first[1], first[0])).fetchone()
    return Evidence(
        origin=origin,
        covered_from=covered_from,
        entries=entries,
        anchored=size,
        unanchored_events=unanchored,
        unanchored_since_utc=None if since is None else read_time(since[0]),
        anchored_at_utc=read_time(at_utc),
        anchor=str(places.anchor.file),
        fault=fault,
        doubt=_doubt(connection, origin, note, size, entries, places) if size else None,
    )


class Anchoring:
    """Publishes what one process writes, at the latest a second or 256 entries after it was written.

    Attributes:
        fault: why the last try to publish failed; None: it did not.
    """

    def __init__(
        self, database: Database, change: Callable[[Callable[[sqlite3.Cursor], None]], None], places: Places
    ) -> None:
        """``change`` runs work in a transaction of the writer, and returns when it is durable."""
        self._database, self._change, self._places = database, change, places
        self._tree = Tree()
        self._agreed = 0
        self._lock = threading.Lock()
        self._news, self._due = threading.Event(), threading.Event()
        self._pending = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self.fault: str | None = None

    @property
    def places(self) -> Places:
        return self._places

    def written(self, entries: int) -> None:
        """Says that so many entries are durable. Any thread may call it; it returns at once."""
        with self._lock:
            if self._closing:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="anchoring", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is ending: the next process publishes what is left
                    return
                self._thread = thread
            self._pending += entries
            if self._pending >= EVERY_ENTRIES:
                self._due.set()
            self._news.set()

    def resume(self) -> None:
        """Publishes what an earlier process has left, as it does what was written. Raises: StoreError."""
        with self._database.reading() as connection:
            ((size,),) = connection.execute(_SIZE)
            stored = connection.execute(_NEWEST).fetchone()
        # The one record with which a log begins can wait for the first event.
        if size > max(1, stored[0] if stored else 0):
            self.written(0)

    def close(self) -> None:
        """Publishes what was written, then stops. A place that cannot be reached is tried once more, and left."""
        with self._lock:
            self._closing = True
            self._due.set()
            self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        published_s = 0.0
        while True:
            self._news.wait()
            self._due.wait(EVERY_S)
            if not self._closing:
                wait_s = _AGAIN_S if self.fault else self._places.anchor.every_s
                self._wait_until(published_s + wait_s)
            with self._lock:
                closing_now, self._pending = self._closing, 0
                self._news.clear()
                self._due.clear()
            more = self._try()
            published_s = time.monotonic()
            if closing_now:
                return
            if more or self.fault:
                self._news.set()

    def _wait_until(self, moment_s: float) -> None:
        while not self._closing and (left_s := moment_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.2))

    def _try(self) -> bool:
        """Publishes once. Returns whether more waits. What fails is kept in ``fault`` and does not stop anybody."""
        try:
            more = self.publish()
        except (OSError, sqlite3.Error, StoreError, BadInput) as error:
            fault = error_text(error) or type(error).__name__
            if fault != self.fault:
                log.warning("checkpoints are not published to %s: %s", self._places.anchor.file, fault)
            self.fault = fault
            return False
        except Exception as error:  # a fault of ours: the thread must live to say so, and to try again
            fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
            if fault != self.fault:
                log.exception("checkpoints are not published to %s", self._places.anchor.file)
            self.fault = fault
            return False
        self.fault = None
        return more

    def publish_all(self) -> None:
        """Publishes until no entry is left. Raises: StoreError, BadInput, sqlite3.Error."""
        try:
            while self.publish():
                pass
        except OSError as error:
            where = self._places.anchor.file
            raise StoreError(f"checkpoints cannot be published to {where}: {error.strerror or error}") from error

    def publish(self) -> bool:
        """Signs a checkpoint and publishes it with the leaves that the place does not know yet.

        Returns whether entries are left. Raises: StoreError, BadInput, OSError, sqlite3.Error.
        """
        if not self._database.in_place():
            return False  # whoever writes says so
        folder = self._places.key.parent
        folder.mkdir(exist_ok=True, mode=0o700)
        if self._places.anchor.file.parent == evidence_folder(self._database.path):
            self._places.anchor.file.touch(0o600)  # elsewhere others are meant to read it
        # Another process that writes this log has the same key and place.
        with closing(FileLock(folder / "lock")) as lock:
            if not lock.acquire(_LOCK_S):
                raise OSError(f"another process holds {folder / 'lock'}")
            with self._database.reading() as connection:
                try:
                    return self._publish(connection)
                except OSError as error:  # of the place: else it would be told as one of the database
                    fault = error
            raise fault

    def _publish(self, connection: sqlite3.Connection) -> bool:
        """Publishes from where the place ends, unless that holds what this log does not."""
        stored = connection.execute(_NEWEST).fetchone() or (0, b"")
        if stored[0] != self._tree.size:
            try:
                self._tree = Tree(*stored)
            except Invalid:  # damaged: all is read again
                self._tree, stored = Tree(), (0, b"")
        ((size,),) = connection.execute(_SIZE)
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
        known = self._places.anchor.size(origin)
        if known == size == stored[0] or not size:
            return False
        if known > size:
            raise BadInput(f"it holds {known} entries, and the database {size}: an older copy was put in its place")
        start = known
        end = min(size, start + _MOST_ENTRIES)
        tree = self._tree.copy() if stored[0] <= end else Tree()
        lower = min(start, tree.size)
        leaves = connection.execute(_LEAVES, (lower, end)).fetchall()
        tree.extend(leaf for _, leaf in leaves[tree.size - lower :])
        self._refuse_another_history(connection, origin, known)
        note = load_key(self._places.key, origin).note(Checkpoint(origin, end, tree.root()))
        at_utc = datetime.now(UTC).isoformat()
        if end > known:
            self._agreed = end
            self._places.anchor.publish(anchor_line(at_utc, note, start, leaves[start - lower :]))
        if end > stored[0]:
            self._change(lambda cursor: _keep(cursor, (end, at_utc, note, tree.peaks)))
            self._tree = tree
        return bool(end < size)

    def _refuse_another_history(self, connection: sqlite3.Connection, origin: str, known: int) -> None:
        """Raises: BadInput if the newest checkpoint of the place is not of this log's first ``known`` entries."""
        if known in (0, self._agreed):
            return
        tree = self._tree.copy() if self._tree.size <= known else Tree()
        tree.extend(leaf for _, leaf in connection.execute(_LEAVES, (tree.size, known)))
        root = self._places.anchor.note(origin).split("\n")[2:3]
        if root != [b64encode(tree.root()).decode()]:
            raise BadInput(
                f"its first {known} entries are not those of the database: an older copy was put in its place"
            )
        self._agreed = known


def _keep(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> None:
    cursor.execute(_KEEP, row)

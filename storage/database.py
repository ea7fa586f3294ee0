"""The database file: where it is, its connections, its version.

One connection writes and checkpoints, and only while it holds the file lock ``<database>.lock``: SQLite before 3.51.3
can corrupt a WAL database when two connections write or checkpoint at the same instant (sqlite.org/wal.html, "The
WAL-Reset Bug"), and several processes may have this file open. Readers open it read-only, and never checkpoint.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from conductor_core.errors import StoreError, StoreFull, StoreReadOnly
from conductor_core.file_lock import FileLock
from storage import failures
from storage.read_only import TEXT, ReadOnlyMedia
from storage.schema import upgrade

BUSY_TIMEOUT_S = 10.0
_READERS = 16


class Database:
    """A database file that is open and of the right version.

    Attributes:
        refusal: why it cannot be written; then it is open for reading alone. None: it is open for both.
    """

    def __init__(self, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Creates the file and its folder if missing, and upgrades an older one. Raises: StoreError."""
        self.path = path_of(url)
        self.busy_timeout_s = busy_timeout_s
        self.refusal: StoreError | None = None
        self._closed = False
        self._gone_told = False
        self._lock: FileLock | None = None
        self._writer: Connection | None = None
        self._media: ReadOnlyMedia | None = None
        self._writers = create_engine("sqlite://", creator=self._connect_writer, poolclass=StaticPool)
        event.listen(self._writers, "begin", _begin_immediate)
        self.readers = create_engine(
            "sqlite://",
            creator=self._connect_reader,
            poolclass=QueuePool,
            pool_size=_READERS,
            max_overflow=_READERS,
        )
        try:
            self._open_to_write()
        except (StoreReadOnly, StoreFull) as error:
            self._open_to_read(error)
        with failures.translated(self.path):
            files = [self.path] if self.refusal else [self.path, self._beside("-wal")]
            self._identities = {path: path.stat() for path in files}

    def _open_to_write(self) -> None:
        with failures.translated(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._refuse_other_files()
            self._lock = FileLock(self._beside(".lock"))
        try:
            with self.writing(), failures.translated(self.path):
                self._writer = self._open_writer()
        except BaseException:
            self._lock.close()
            self._lock = None
            raise

    def _refuse_other_files(self) -> None:
        """Before anything is written beside it."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            raise IsADirectoryError(errno.EISDIR, "no file", str(self.path))
        # By SQLite itself: to open and close the file past it would drop the locks that this process holds on it.
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as connection:
                connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            # All else is met again, and told, when the file is opened to write.
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise

    def _open_to_read(self, refusal: StoreError) -> None:
        """Raises: ``refusal`` if there is nothing to read either; StoreError."""
        with failures.translated(self.path):
            if not self.path.is_file() or not self.path.stat().st_size:
                raise refusal
            self._media = ReadOnlyMedia(self.path, self.busy_timeout_s)
            self.readers = create_engine("sqlite://", creator=self._media.connect, poolclass=NullPool)
            with self.readers.connect():
                self.refusal = type(refusal)(f"{refusal}; until then its runs can be read, but nothing can be run")

    @property
    def writer(self) -> Connection:
        """The one connection that writes. Raises: ``refusal``."""
        if self._writer is None:
            raise self.refusal or failures.closed(self.path)
        return self._writer

    @property
    def owners_folder(self) -> Path:
        """Where each process that owns runs keeps a lock file."""
        return self._beside(".owners")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def check(self) -> None:
        """Raises: StoreGone if the file, or its WAL, is no longer what was opened."""
        for path, opened in self._identities.items():
            with failures.translated(self.path):
                try:
                    in_place = os.path.samestat(opened, path.stat())
                except FileNotFoundError:
                    in_place = False
            if not in_place:
                self._gone_told = True
                raise failures.gone(self.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the write lock of the file. Raises: StoreLocked."""
        with failures.translated(self.path):
            lock = self._locked()
        try:
            yield
        finally:
            lock.release()

    def _locked(self) -> FileLock:
        while True:
            if self._lock is None:
                raise self.refusal or failures.closed(self.path)
            if not self._lock.acquire(self.busy_timeout_s):
                raise failures.locked(self.path, self.busy_timeout_s)
            if self._lock.is_of(self._lock.path):
                return self._lock
            # Somebody has deleted the file: another process would lock a new one, and so must this one.
            stale = self._lock
            stale.release()
            self._lock = FileLock(stale.path)
            stale.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read-only connection; each statement sees the newest committed state. Raises: StoreError."""
        if self._closed:
            raise failures.closed(self.path)
        self.check()
        with failures.translated(self.path), self.readers.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """A transaction of the writer, past SQLAlchemy, which would take twice the time of a group of a few events.

        Call it inside ``writing``. Raises: StoreError.
        """
        with failures.translated(self.path):
            connection = cast(sqlite3.Connection, self.writer.connection.driver_connection)
            cursor = connection.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def checkpoint(self) -> bool:
        """Moves what it can from the WAL into the database file: whether that was all. Call it inside ``writing``."""
        with failures.translated(self.path):
            # Past SQLAlchemy, which would open a transaction first; there is no checkpoint inside one.
            cursor = self.writer.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
            _, in_log, moved = cursor.fetchone()
            return bool(in_log == moved)

    @property
    def log_bytes(self) -> int:
        """How long the WAL is; what of it has been moved already nobody can tell from that."""
        wal = self._beside("-wal")
        return wal.stat().st_size if wal.exists() else 0

    def close(self) -> None:
        """Closes all connections; the last one of all processes also folds the WAL into the database file.

        Raises: StoreGone if the file is not there any more and nobody has been told yet.
        """
        if self._closed:
            return
        self._closed = True
        self.readers.dispose()
        if self._media is not None:
            self._media.close()
        if self._lock is None:
            return
        try:
            if not self._gone_told:
                self.check()
                with self.writing():
                    self._writers.dispose()
        finally:
            if self._gone_told:
                self._empty_wal()
            self._writers.dispose()
            self._lock.close()

    def _empty_wal(self) -> None:
        """Moves all into the file that was opened, wherever it is now, and leaves an empty WAL.

        A file that is put in its place would else be read together with a WAL that is not its own.
        """
        with suppress(StoreError), failures.translated(self.path):
            self.writer.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open_writer(self) -> Connection:
        try:
            writer = self._writers.connect()
            with writer.begin():
                upgrade(writer, self.path)
        except BaseException:
            self._writers.dispose()
            raise
        return writer

    def _connect_writer(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = TEXT
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_autocheckpoint=10000")
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=ro",
            uri=True,
            timeout=self.busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.text_factory = TEXT
        connection.execute("PRAGMA query_only=ON")
        return connection


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def path_of(url: str) -> Path:
    """The file that a database's URL names. Raises: StoreError."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is not a database URL: write sqlite:///FOLDER/FILE.sqlite3") from error
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(
            f"a {parsed.get_backend_name()} database is not supported: write sqlite:///FOLDER/FILE.sqlite3"
        )
    if not parsed.database or parsed.database == ":memory:" or parsed.query:
        raise StoreError(f"{url!r} names no database file: write sqlite:///FOLDER/FILE.sqlite3")
    try:
        path = Path(parsed.database).expanduser().resolve()
        str(path).encode()
    except (OSError, RuntimeError) as error:  # links that lead to themselves, a user that is unknown
        raise StoreError(f"{url!r} leads to no place for a database: name another place") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"{url!r} is not valid UTF-8 text: name another place") from error
    return path

"""Opens the database file, and keeps its connections and its locks.

One connection writes and checkpoints, and only while it holds the file lock ``<database>.lock``: SQLite before 3.51.3
can corrupt a WAL database when two connections write or checkpoint at the same instant (sqlite.org/wal.html, "The
WAL-Reset Bug"), and several processes may have this file open. Readers open it read-only, and never checkpoint.

A database that cannot be written (read-only media, no permission, a full disk) is read as it is.
"""

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import quote, unquote

from conductor_core.errors import StoreError, StoreFull, StoreLocked, StoreReadOnly
from conductor_core.files import FileLock, keep_private
from storage import errors
from storage.database import schema
from storage.errors import PRIMARY_CODE
from storage.privacy import Privacy

# Databases that cannot be written.

_NO_SIDE_FILES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})


def connect(path: Path, mode: str, timeout_s: float) -> sqlite3.Connection:
    """Returns a connection that any thread may use and that opens no transaction by itself.

    It also reads damaged text, so that the rows beside it can be read. ``mode``: the query of SQLite's URI.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


class ReadOnlyMedia:
    """Opens connections to a database that this process cannot write.

    SQLite needs two files beside a WAL database, ``-wal`` and ``-shm``. If it cannot make them, the file is opened as
    immutable. If there is a ``-wal``, which SQLite would then ignore, both files are copied to a writable place.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    def connect(self) -> sqlite3.Connection:
        """Returns a connection that only reads. Raises: sqlite3.Error, OSError, StoreError."""
        if self._copy is None:
            try:
                return self._open(self._path, "mode=ro")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & PRIMARY_CODE not in _NO_SIDE_FILES:
                    raise
            wal = self._path.with_name(f"{self._path.name}-wal")
            if not wal.exists() or not wal.stat().st_size:
                return self._open(self._path, "mode=ro&immutable=1")
            self._copy = self._copied(wal)
        return self._open(Path(self._copy.name) / self._path.name, "mode=rw")

    def close(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def _open(self, path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode, self._busy_timeout_s)
        try:
            version = schema.read_version(connection, self._path)
            if version != schema.HEAD:
                raise StoreReadOnly(
                    f"the database {self._path} is of schema {version} and cannot be brought to {schema.HEAD} where it "
                    "is: copy it to a place that can be written"
                )
            connection.execute("PRAGMA query_only=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _copied(self, wal: Path) -> "tempfile.TemporaryDirectory[str]":
        folder = None
        try:
            folder = tempfile.TemporaryDirectory(prefix="conductor-inspector-")
            for file in (self._path, wal):
                shutil.copyfile(file, Path(folder.name) / file.name)
        except OSError as error:
            if folder is not None:
                folder.cleanup()
            raise StoreReadOnly(
                f"the newest events of the database {self._path} are in {wal.name}, which can only be read from a "
                f"place that can be written, and {tempfile.gettempdir()} cannot ({error.strerror}): copy both files "
                "to one"
            ) from error
        return folder


Change = Callable[[Callable[[sqlite3.Cursor], Any]], Any]
"""Runs a piece of work in a transaction of the writer, and returns its result (``EventLog.change_and_wait``)."""
Bound = Sequence[object] | Mapping[str, object]

BUSY_TIMEOUT_S = 10.0
_READERS = 32
_ONLY_READ = "until then its runs can be read, which nothing records, but nothing can be run"


class Database:
    """An open database file of this program's version.

    Attributes:
        privacy: what the settings say about its texts. vault: the keys of its runs.
        refusal: why the file is open for reading only; None: it can be written, too.
    """

    def __init__(self, url: str, privacy: Privacy | None = None, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Creates the file and its folder if they are missing, and upgrades an older file. Raises: StoreError."""
        self.path = path_of(url)
        self.privacy = privacy or Privacy()
        self.vault = self.privacy.vault(self.path, self._is_encrypted)
        self.busy_timeout_s = busy_timeout_s
        self.refusal: StoreError | None = None
        self._closed = False
        self._gone_reported = False
        self._lock: FileLock | None = None
        self._writer: sqlite3.Connection | None = None
        self._media: ReadOnlyMedia | None = None
        self._turns = BoundedSemaphore(_READERS)
        self._idle: list[sqlite3.Connection] = []
        try:
            self._open_to_write()
        except (StoreReadOnly, StoreFull) as error:
            self._open_to_read(error)
        with errors.translated(self.path):
            files = [self.path] if self.refusal else [self.path, self._beside("-wal")]
            self._identities = {str(path): path.stat() for path in files}

    def _open_to_write(self) -> None:
        with errors.translated(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_other_files()
            self._lock = FileLock(self._beside(".lock"))
        try:
            with self.writing(), errors.translated(self.path):
                # The file is for its owner alone, and all beside it; SQLite makes its files beside it like it.
                if not self.path.exists():
                    os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
                beside = [self._beside(suffix) for suffix in ("-wal", "-shm", "-journal", ".lock", ".keys")]
                keep_private(self.path, *beside)
                keep_private(self._beside(".owners"), self._beside(".evidence"), levels=1)
                self._open_writer()
        except BaseException:
            self._lock.close()
            self._lock = None
            raise

    def _refuse_other_files(self) -> None:
        """Refuses a file that is not a database before writing beside it. Raises: OSError, sqlite3.Error."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            raise IsADirectoryError(errno.EISDIR, "no file", str(self.path))
        # SQLite itself reads it: opening and closing the file without SQLite would drop this process's locks on it.
        try:
            with closing(connect(self.path, "mode=ro", self.busy_timeout_s)) as connection:
                connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            # Any other fault recurs, and is reported, when the file is opened for writing.
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise

    def _open_to_read(self, refusal: StoreError) -> None:
        """Opens the file for reading. Raises: ``refusal`` if there is nothing to read either; StoreError."""
        with errors.translated(self.path):
            if not self.path.is_file() or not self.path.stat().st_size:
                raise refusal
            self._media = ReadOnlyMedia(self.path, self.busy_timeout_s)
            self._media.connect().close()
            self.refusal = type(refusal)(f"{refusal}; {_ONLY_READ}")

    @property
    def writer(self) -> sqlite3.Connection:
        """The only connection that writes. Raises: ``refusal``."""
        if self._writer is None:
            raise self.refusal or errors.closed(self.path)
        return self._writer

    @property
    def owners_folder(self) -> Path:
        """The folder in which each process that writes runs keeps a lock file."""
        return self._beside(".owners")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def check(self) -> None:
        """Raises StoreGone if the file or its WAL is no longer the one that was opened."""
        with errors.translated(self.path):
            in_place = self.in_place()
        if not in_place:
            self._gone_reported = True
            raise errors.gone(self.path)

    def in_place(self) -> bool:
        """Whether the file and its WAL are those that were opened. Raises: OSError."""
        try:
            return all(os.path.samestat(opened, os.stat(path)) for path, opened in self._identities.items())
        except FileNotFoundError:
            return False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the write lock of the file. Raises: StoreLocked."""
        with errors.translated(self.path):
            lock = self._locked()
        try:
            yield
        finally:
            lock.release()

    def _locked(self) -> FileLock:
        while True:
            if self._lock is None:
                raise self.refusal or errors.closed(self.path)
            if not self._lock.acquire(self.busy_timeout_s):
                raise StoreLocked(
                    f"the database {self.path} has been locked by another program for {self.busy_timeout_s:g} s: "
                    "close that program, then try again"
                )
            if self._lock.is_of(self._lock.path):
                return self._lock
            # Somebody has deleted the lock file. Other processes will lock a new one, so this one must, too.
            stale = self._lock
            stale.release()
            self._lock = FileLock(stale.path)
            stale.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lends a read-only connection. Each of its statements sees the newest committed state. Raises: StoreError.

        A thread may hold only one. Read each result to its end: otherwise the connection keeps seeing an old state.
        """
        if self._closed:
            raise errors.closed(self.path)
        self.check()
        with errors.translated(self.path), self._turns:
            connection = self._reader()
            try:
                yield connection
            except BaseException:
                connection.close()  # a statement may be unfinished
                raise
            self._idle.append(connection)
            if self._closed or self._media is not None:
                self._close_idle()

    def rows(self, query: str, bound: Bound = ()) -> list[Any]:
        """Returns all rows of a query. Raises: StoreError."""
        with self.reading() as connection:
            return connection.execute(query, bound).fetchall()

    def row(self, query: str, bound: Bound = ()) -> Any:
        """Returns the first row of a query; None: it has none. Raises: StoreError."""
        return next(iter(self.rows(query, bound)), None)

    def _reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            return self._idle.pop()
        if self._media is not None:
            connection = self._media.connect()
        else:
            connection = connect(self.path, "mode=ro", self.busy_timeout_s)
            connection.execute("PRAGMA query_only=ON")
        connection.create_function("plain", 3, self._plain)
        return connection

    def _plain(self, run_id: str, column: str, stored: bytes) -> str | None:
        """SQL's ``plain(run_id, column, value)``: an encrypted text of ``runs`` as it was; NULL if it is sealed."""
        try:
            return self.vault.open(run_id, f"runs {column}", stored).decode()
        except (StoreError, UnicodeDecodeError):
            return None

    def _is_encrypted(self, run_id: str) -> bool | None:
        """Whether a run is stored encrypted; None: there is no such run. Raises: StoreError."""
        # Of the texts of a run, its row has the task from the first event on.
        row = self.row("SELECT typeof(task) FROM runs WHERE run_id = ?", (run_id,))
        return None if row is None else row[0] == "blob"

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Runs a transaction of the writer. Call it inside ``writing``. Raises: StoreError."""
        with errors.translated(self.path):
            cursor = self.writer.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                self.writer.commit()
            except BaseException:
                self.writer.rollback()
                raise

    def checkpoint(self) -> bool:
        """Moves what it can from the WAL into the file and returns whether that was all. Call it inside ``writing``."""
        with errors.translated(self.path):
            _, in_log, moved = self.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return bool(in_log == moved)

    def rewrite(self) -> bool:
        """Rewrites the whole file, so that nothing stays of what was deleted, and empties the WAL.

        Returns whether the WAL is empty: a reader can be in the way. It takes seconds for a gigabyte. Call it inside
        ``writing``, outside of a transaction.
        """
        with errors.translated(self.path):
            self.writer.execute("VACUUM")
            busy, *_ = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    @property
    def log_bytes(self) -> int:
        """The length of the WAL in bytes, including what was already moved into the database file."""
        wal = self._beside("-wal")
        return wal.stat().st_size if wal.exists() else 0

    def close(self) -> None:
        """Closes all connections. The last process to close also moves the WAL into the database file.

        Raises: StoreGone if the file is gone and no earlier call has raised that.
        """
        if self._closed:
            return
        self._closed = True
        self._close_idle()
        if self._media is not None:
            self._media.close()
        if self._lock is None:
            return
        try:
            if not self._gone_reported:
                self.check()
                with self.writing():
                    self.writer.close()
        finally:
            if self._gone_reported:
                # The whole WAL goes into the file that was opened, wherever that is now. Otherwise a new file in its
                # place would be read together with a WAL that is not its own.
                with suppress(StoreError), errors.translated(self.path):
                    self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.writer.close()
            self._lock.close()

    def _open_writer(self) -> None:
        self._writer = connect(self.path, "mode=rwc", self.busy_timeout_s)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=10000"):
                self._writer.execute(f"PRAGMA {pragma}")
            with self.transaction() as cursor:
                version = schema.read_version(cursor, self.path)
                if version is None:
                    schema.make(cursor, schema.HEAD)
                elif version != schema.HEAD:
                    schema.upgrade(cursor, version, schema.HEAD)
        except BaseException:
            self._writer.close()
            self._writer = None
            raise


def path_of(url: str) -> Path:
    """Returns the file that a database's URL names. Raises: StoreError."""
    kind, separator, place = url.partition("://")
    if not kind or not separator:
        raise StoreError(f"{url!r} is not a database URL: write sqlite:///FOLDER/FILE.sqlite3")
    if kind != "sqlite":
        raise StoreError(f"a {kind} database is not supported: write sqlite:///FOLDER/FILE.sqlite3")
    file = unquote(place[1:])
    if not place.startswith("/") or file in ("", ":memory:") or "?" in place:
        raise StoreError(f"{url!r} names no database file: write sqlite:///FOLDER/FILE.sqlite3")
    try:
        path = Path(file).expanduser().resolve()
        str(path).encode()
    except (OSError, RuntimeError) as error:  # a link to itself, or an unknown user
        raise StoreError(f"{url!r} leads to no place for a database: name another place") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"{url!r} is not valid UTF-8 text: name another place") from error
    return path

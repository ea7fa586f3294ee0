"""The database file: where it is, its connections, its version.

One connection writes and checkpoints, and only while it holds the file lock ``<database>.lock``: SQLite before 3.51.3
can corrupt a WAL database when two connections write or checkpoint at the same instant (sqlite.org/wal.html, "The
WAL-Reset Bug"), and several processes may have this file open. Readers open it read-only, and never checkpoint.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool, StaticPool

from conductor_core.errors import StoreError, StoreTooNew
from conductor_core.file_lock import FileLock
from storage import failures

HEAD = "0001"
"""The newest migration, which this program reads and writes. A test holds it equal to the migrations' own head."""

BUSY_TIMEOUT_S = 10.0
_READERS = 16


class Database:
    """A database file that is open and of the right version."""

    def __init__(self, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Creates the file and its folder if missing, and upgrades an older one. Raises: StoreError."""
        self.path = _path_of(url)
        self.busy_timeout_s = busy_timeout_s
        self._closed = False
        with failures.translated(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "a folder", str(self.path))
            self._lock = FileLock(self._beside(".lock"))
            self._writers = create_engine("sqlite://", creator=self._connect_writer, poolclass=StaticPool)
            self.readers = create_engine(
                "sqlite://",
                creator=self._connect_reader,
                poolclass=QueuePool,
                pool_size=_READERS,
                max_overflow=_READERS,
            )
        event.listen(self._writers, "begin", _begin_immediate)
        try:
            with self.writing(), failures.translated(self.path):
                self.writer = self._open_writer()
        except BaseException:
            self._lock.close()
            raise

    @property
    def owners_folder(self) -> Path:
        """Where each process that owns runs keeps a lock file."""
        return self._beside(".owners")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the write lock of the file. Raises: StoreLocked."""
        with failures.translated(self.path):
            if not self._lock.acquire(self.busy_timeout_s):
                raise failures.locked(self.path, self.busy_timeout_s)
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read-only connection; each statement sees the newest committed state. Raises: StoreError."""
        if self._closed:
            raise failures.closed(self.path)
        with failures.translated(self.path), self.readers.connect() as connection:
            yield connection

    def checkpoint(self) -> None:
        """Moves what it can from the WAL into the database file. Call it inside ``writing``."""
        with failures.translated(self.path):
            # Past SQLAlchemy, which would open a transaction first; there is no checkpoint inside one.
            self.writer.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Closes all connections; the last one of all processes also folds the WAL into the database file."""
        if self._closed:
            return
        self._closed = True
        self.readers.dispose()
        try:
            with self.writing():
                self._writers.dispose()
        finally:
            self._lock.close()

    def _open_writer(self) -> Connection:
        try:
            writer = self._writers.connect()
            with writer.begin():
                _upgrade(writer, self.path)
        except BaseException:
            self._writers.dispose()
            raise
        return writer

    def _connect_writer(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout_s, isolation_level=None, check_same_thread=False
        )
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
        connection.execute("PRAGMA query_only=ON")
        return connection


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _path_of(url: str) -> Path:
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
    return Path(parsed.database).expanduser().resolve()


def _upgrade(connection: Connection, path: Path) -> None:
    """Brings the schema to ``HEAD``. Raises: StoreTooNew, StoreError for another program's database."""
    tables = set(connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")))
    if "alembic_version" in tables:
        version = connection.scalar(text("SELECT version_num FROM alembic_version"))
        if version == HEAD:
            return
        if version is not None and version > HEAD:
            raise StoreTooNew(
                f"the database {path} was written by a newer version of this program (schema {version}, this program "
                f"knows {HEAD}): upgrade this program, or name another database with --db or DATABASE_URL"
            )
    elif tables:
        raise StoreError(f"the database {path} belongs to another program: name another one with --db or DATABASE_URL")
    migrate(connection, HEAD)


def migrate(connection: Connection, revision: str) -> None:
    """Runs the migrations up to ``revision`` inside the connection's open transaction."""
    # Imported here: only a blank or an old database needs it, and it costs a third of the start of the command line.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)

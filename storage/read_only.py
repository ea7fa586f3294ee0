"""Reads a database that cannot be written: on read-only media, without permission, or on a full disk."""

import shutil
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import quote

from conductor_core.errors import StoreReadOnly
from storage.failures import PRIMARY_CODE
from storage.schema import HEAD, checked_version

_NO_SIDE_FILES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_IS_A_DOOR = "\"by\" IN ('page', 'cli', 'api')"
_CALLER = (
    f"CASE WHEN {_IS_A_DOOR} THEN \"by\" ELSE 'cli' END AS door, "
    f"CASE WHEN {_IS_A_DOOR} THEN '' ELSE \"by\" END AS purpose, NULL AS actor"
)
_NO_BATCHES = (
    "CREATE TEMP TABLE batches (batch_id, sequence, created_at_utc, name, size)",
    "CREATE TEMP TABLE deletions (id, run_id, deleted_at_utc, actor, door, created_at_utc, status, events, "
    "events_sha256, erased)",
    "CREATE TEMP TABLE holds (id, run_id, held, at_utc, actor, door)",
)
_NO_ACTORS = tuple(
    f'CREATE TEMP VIEW {table} AS SELECT *, "by" AS door, NULL AS actor{more} FROM main.{table}'  # noqa: S608  own names
    for table, more in (("deletions", ", 0 AS erased"), ("holds", ""))
)
_EVIDENCE_SINCE = "0013"
_NO_EVIDENCE = (
    "CREATE TEMP TABLE evidence_log (origin, covered_from)",
    "CREATE TEMP TABLE leaves (position, run_id, hash, record)",
    "CREATE TEMP TABLE checkpoints (size, at_utc, note, peaks)",
)
_NONE_ERASED = "CREATE TEMP VIEW deletions AS SELECT *, 0 AS erased FROM main.deletions"


def _runs(*missing: str, caller: bool = True, imported: bool = True, answers: bool = True) -> str:
    columns = [*missing, *([_CALLER] if caller else []), *([_IMPORTED] if imported else [])]
    columns += [*([_ANSWERS] if answers else []), _RECORDED]
    return f"CREATE TEMP VIEW runs AS SELECT *, {', '.join(columns)} FROM main.runs"  # noqa: S608  own names


_KNOWN, _ESTIMATED = "coalesce(cost_usd, 0) AS known_usd", "0 AS cost_estimated"
_ASKED = "NULL AS asked_for"
_IMPORTED, _ANSWERS, _RECORDED = "0 AS imported", "0 AS imported_answers", "0 AS recorded"
_BATCH = ("NULL AS batch_id", "NULL AS batch_row")
_AS_IF_UPGRADED = {
    "0001": (
        _runs("1 AS vocabulary", *_BATCH, _KNOWN, _ESTIMATED, _ASKED),
        "CREATE TEMP VIEW snapshots AS SELECT *, '' AS events_sha256, '' AS sha256 FROM main.snapshots",
        *_NO_BATCHES,
    ),
    "0002": (_runs(*_BATCH, _KNOWN, _ESTIMATED, _ASKED), *_NO_BATCHES),
    "0003": (_runs(_KNOWN, _ESTIMATED, _ASKED), *_NO_ACTORS),
    "0004": (_runs(_ESTIMATED, _ASKED), *_NO_ACTORS),
    "0005": (_runs(_ASKED), *_NO_ACTORS),
    "0006": (_runs(_ASKED, caller=False), _NONE_ERASED),
    "0007": (_runs(_ASKED, caller=False), _NONE_ERASED),
    "0008": (_runs(_ASKED, caller=False), _NONE_ERASED),
    "0009": (_runs(caller=False), _NONE_ERASED),
    "0010": (_runs(caller=False, imported=False), _NONE_ERASED),
    "0011": (_runs(caller=False, imported=False, answers=False), _NONE_ERASED),
    "0012": (_NONE_ERASED,),
    "0013": (_NONE_ERASED,),
    "0014": (_NONE_ERASED,),
    "0015": (),
}
"""Statements that make an older schema, which cannot be upgraded here, read like the newest one."""


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
        connection = self._connect()
        version = checked_version(connection.execute("SELECT version_num FROM alembic_version").fetchone(), self._path)
        if version != HEAD:
            connection.execute("PRAGMA temp_store=MEMORY")
            for view in (*_AS_IF_UPGRADED[version], *(_NO_EVIDENCE if version < _EVIDENCE_SINCE else ())):
                connection.execute(view)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def close(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def _connect(self) -> sqlite3.Connection:
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

    def _open(self, path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode, self._busy_timeout_s)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
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

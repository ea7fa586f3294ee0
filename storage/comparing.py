"""Compares a backup with the database whose place it is to take: another log must not replace a protected one."""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from conductor_core.errors import StoreError
from storage import schema
from storage.evidence.anchoring import Places
from storage.evidence.checking import FoundFault
from storage.evidence.database_audit import NoEvidence, open_database
from storage.records import ERASED
from storage.vault import Vault

_PARTS = (
    "SELECT type, name, CASE WHEN type IN ('trigger', 'view') THEN sql END FROM sqlite_master "
    "WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_ORIGIN = "SELECT origin FROM evidence_log"
_GONE = "SELECT DISTINCT run_id FROM deletions"
_HELD = "SELECT run_id FROM holds WHERE id IN (SELECT max(id) FROM holds GROUP BY run_id) AND held"
_THERE = "SELECT run_id FROM runs WHERE status <> ?"
_ENCRYPTED = "SELECT run_id, task FROM runs WHERE typeof(task) = 'blob' AND status <> ?"
EVIDENCE_SINCE = "0013"


def strange(copy: Path, version: str, target: Path, places: Places) -> Iterator[FoundFault]:
    """Yields why the copy, of this version of the schema, is no copy of the log that is or was at ``target``.

    Raises: NoEvidence, sqlite3.Error.
    """
    with closing(open_database(copy)) as connection:
        for what in sorted(_parts(connection) ^ _made(version)):
            yield _fault(f"the {what[0]} {what[1]} of the backup is not as this program makes it")
        row = connection.execute(_ORIGIN).fetchone() if version >= EVIDENCE_SINCE else None
    here = _origin(target)
    if version < EVIDENCE_SINCE and (here or places.key.is_file() or places.anchor.file.is_file()):
        yield _fault("the backup has no evidence of its events, and the log of this place has")
    elif row is not None and here not in (None, row[0]):
        yield _fault(f"the backup is of the log {row[0]}, and the database of the log {here}")


def entries(database: Path) -> int:
    """Returns how many entries the log has. Raises: NoEvidence, sqlite3.Error."""
    with closing(open_database(database)) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM leaves")
    return int(count)


def _fault(what: str) -> FoundFault:
    return FoundFault(kind="evidence", run_id=None, sequence=None, what=what)


def _origin(database: Path) -> str | None:
    try:
        with closing(_reading(database)) as connection:
            row = connection.execute(_ORIGIN).fetchone()
    except (NoEvidence, sqlite3.Error):  # none is there, or it is damaged or older
        return None
    return None if row is None else str(row[0])


def _reading(database: Path) -> sqlite3.Connection:
    """Opens a database that nobody has open. Without a log to read, no file appears beside it."""
    wal = database.with_name(f"{database.name}-wal")
    if wal.exists() and wal.stat().st_size:
        return open_database(database)
    return sqlite3.connect(f"file:{quote(str(database))}?mode=ro&immutable=1", uri=True)


def _parts(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Returns tables, indexes, triggers and views; of the last two their text, too."""
    return {(kind, name, " ".join((sql or "").split())) for kind, name, sql in connection.execute(_PARTS)}


def _made(version: str) -> set[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "made")) as connection:
        if version == schema.HEAD:
            schema.create(connection.cursor())
        else:
            schema.migrate(lambda: sqlite3.connect(Path(folder) / "made"), version)
        return _parts(connection)


def come_back(target: Path, copy: Path) -> tuple[str, ...] | None:
    """Returns the runs that are gone from the database at ``target`` and come back; None: it cannot be read."""
    return _both(target, copy, _GONE)


def lose_hold(target: Path, copy: Path) -> tuple[str, ...] | None:
    """Returns the runs that are held in the database at ``target`` and not in the copy; None: it cannot be read."""
    found = _both(target, copy, _HELD)
    if not found:
        return found
    with closing(open_database(copy)) as connection:
        held = {str(run_id) for (run_id,) in connection.execute(_HELD)} if _has_holds(connection) else set()
    return tuple(run_id for run_id in found if run_id not in held)


def lose_held(target: Path, copy: Path) -> tuple[str, ...] | None:
    """Returns the runs that are held in the database at ``target`` and missing in the copy; None: it cannot be read."""
    held = _named_by(target, _HELD)
    return None if held is None else tuple(sorted(held - _kept_in(copy)))


def _has_holds(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holds'").fetchone() is not None


def _both(target: Path, copy: Path, query: str) -> tuple[str, ...] | None:
    named = _named_by(target, query)
    return None if named is None else tuple(sorted(named & _kept_in(copy)))


def _named_by(target: Path, query: str) -> set[str] | None:
    try:
        with closing(_reading(target)) as connection:
            return {str(run_id) for (run_id,) in connection.execute(query)}
    except (NoEvidence, sqlite3.Error):
        return None


def _kept_in(copy: Path) -> set[str]:
    """Returns the runs of the copy that are not erased."""
    with closing(open_database(copy)) as connection:
        return {str(run_id) for (run_id,) in connection.execute(_THERE, (ERASED,))}


def sealed_runs(database: Path, vault: Vault) -> Counter[str]:
    """Returns why encrypted runs cannot be opened with the keys that are there, each with the number of runs."""
    sealed: Counter[str] = Counter()
    with closing(open_database(database)) as connection:
        for run_id, task in connection.execute(_ENCRYPTED, (ERASED,)):
            try:
                vault.open(run_id, "runs task", task)
            except StoreError as error:
                sealed[str(error)] += 1
    return sealed

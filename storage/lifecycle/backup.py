"""Copies a database into one file while programs go on writing to it.

The main file alone is no copy, because the newest writes are in the log beside it (``-wal``).
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from conductor_core.errors import BadInput, StoreDamaged
from storage import errors
from storage.privacy.vault import flush, keys_beside

_RESERVED = ("-wal", "-shm", "-journal", ".keys", ".lock", ".owners", ".evidence", "master-key", "signing-key")


@dataclass(frozen=True)
class Backup:
    """A checked copy. ``size`` is in bytes. ``keys``: the copy of the keys of encrypted runs; None: there are none."""

    path: Path
    runs: int
    events: int
    size: int
    keys: Path | None


def backup(source: Path, target: Path) -> Backup:
    """Copies the database at ``source`` into a new file, checks the copy, and then names it ``target``.

    The keys of encrypted runs go into a file of their own beside it. The master key is not copied.

    Raises: BadInput if there is no such database or if ``target`` exists already; StoreError.
    """
    if not source.is_file():
        raise BadInput(f"no database at {source}")
    if target.exists() or target.is_symlink():
        raise BadInput(f"{target} is there already: a backup overwrites nothing, name another file")
    refuse_reserved(target)
    own_keys, keys = keys_beside(source), keys_beside(target)
    if own_keys.exists() and (keys.exists() or keys.is_symlink()):
        raise BadInput(f"{keys} is there already: a backup overwrites nothing, name another file")
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent} is not a folder")
    with errors.translated(target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        os.close(handle)
        copy, copy_of_keys = Path(name), Path(f"{name}.keys")
        try:
            with errors.translated(source):
                copy_database(source, copy)
            runs, events, faults = contents(copy)
            if faults:
                raise StoreDamaged(f"no backup is made: the database {source} is damaged: {'; '.join(faults)}")
            # After the runs: each that is in the copy has its key there. Before the copy has its name: it comes whole.
            if own_keys.exists():
                copy_keys(own_keys, copy_of_keys)
                os.link(copy_of_keys, keys)
            # A link fails if somebody else has made the file meanwhile. A rename would replace it.
            os.link(copy, target)
        finally:
            copy.unlink(missing_ok=True)
            copy_of_keys.unlink(missing_ok=True)
        flush(target)
        flush(target.parent)
    return Backup(target, runs, events, target.stat().st_size, keys if own_keys.exists() else None)


def refuse_reserved(target: Path) -> None:
    """Raises: BadInput if the name is that of a file which the program keeps beside a database."""
    if target.name.endswith(_RESERVED):
        raise BadInput(f"{target} is the name of a file that belongs to a database: name another one")


def copy_keys(source: Path, target: Path) -> None:
    """Copies the keys of runs into a new file that its owner alone may read. Raises: OSError, sqlite3.Error."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    readable = f"file:{quote(str(source))}?mode=ro"
    with closing(sqlite3.connect(readable, uri=True)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)
    flush(target)


def copy_database(source: Path, copy: Path) -> None:
    """Copies a database of this program over ``copy``, as it is at one moment. Raises: sqlite3.Error."""
    os.close(os.open(copy, os.O_CREAT | os.O_RDWR, 0o600))
    with (
        closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as here,
        closing(sqlite3.connect(copy)) as there,
    ):
        here.execute("SELECT version_num FROM alembic_version")
        here.backup(there)  # all pages in one step: the copy shows one moment, and no writer waits
        # Without this, reading the copy would create a log beside it.
        there.execute("PRAGMA journal_mode=DELETE")


def contents(copy: Path) -> tuple[int, int, list[str]]:
    """Returns how many runs and events a copy holds, and what SQLite finds wrong with it. Raises: sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{quote(str(copy))}?mode=ro", uri=True)) as connection:
        faults = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
        if faults:
            return 0, 0, faults
        (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return runs, events, []

"""Turns errors of SQLite and of the file system into StoreErrors: one line each, which says what to do."""

import errno
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conductor_core.errors import StoreDamaged, StoreError, StoreFull, StoreGone, StoreLocked, StoreReadOnly

PRIMARY_CODE = 0xFF
"""The bits of an error code of SQLite that name its kind."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PROBE_BYTES = 64 << 10
"""The size of the smallest files beside a database in use."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns errors of the database or the file system in the block into a StoreError about the file at ``path``."""
    try:
        yield
    except sqlite3.Error as error:
        raise _from_sqlite(error, path) from error
    except OSError as error:
        raise _from_os(error, path) from error


def read_only(path: Path) -> StoreReadOnly:
    return StoreReadOnly(
        f"the database {path} cannot be written: allow this user to write the file and its folder, "
        "or name another place with --db or DATABASE_URL"
    )


def full(path: Path) -> StoreFull:
    return StoreFull(f"no space left for the database {path}: free some space on its disk, then continue")


def gone(path: Path) -> StoreGone:
    return StoreGone(
        f"the database {path} was deleted, moved or replaced while this program had it open, so nothing that happens "
        "now is kept: put the file back or leave it, and start this program again"
    )


def damaged(path: Path, detail: str) -> StoreDamaged:
    return StoreDamaged(
        f"the database {path} is damaged or not a SQLite database ({detail}): "
        "restore a copy, or move the file away to start afresh"
    )


def closed(path: Path) -> StoreError:
    return StoreError(f"the database {path} has been closed by this program")


def _from_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    detail = " ".join(str(error).split())
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & PRIMARY_CODE:
        case sqlite3.SQLITE_FULL:
            return full(path)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if _no_room(path):
            return full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return read_only(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreLocked(
                f"the database {path} is locked by another program ({detail}): close that program, then try again"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged(path, detail)
        case sqlite3.SQLITE_TOOBIG:
            return StoreError(f"a text is longer than the database {path} can hold ({detail})")
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"the disk of the database {path} failed ({detail}): see whether it is there and sound")
        case sqlite3.SQLITE_ERROR if detail.startswith(("no such ", "malformed ")):
            return damaged(path, detail)
    return StoreError(f"the database {path} failed: {detail}")


def _from_os(error: OSError, path: Path) -> StoreError:
    match error.errno:
        case code if code in _NO_ROOM:
            return full(path)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return read_only(path)
        case errno.ENOENT:
            return gone(path)
        case errno.ENOTDIR | errno.EEXIST | errno.EISDIR:
            return StoreError(
                f"the database {path} cannot be there: {error.filename} is in the way; name another place"
            )
    return StoreError(f"the database {path} failed: {error.strerror or error}")


def _no_room(path: Path) -> bool:
    """Whether the disk is too full for a small file beside the database: SQLite reports only a disk failure."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in _NO_ROOM
    return False

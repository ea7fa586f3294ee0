"""What SQLite and the file system say of a fault, and what is told of it: what happened, where, and what to do."""

import errno
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest

from conductor_core.errors import StoreDamaged, StoreError, StoreFull, StoreGone, StoreLocked, StoreReadOnly
from storage import errors


def of_sqlite(code: int, words: str = "what SQLite said") -> sqlite3.Error:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


def told(path: Path, error: Exception) -> StoreError:
    with pytest.raises(StoreError) as caught, errors.translated(path):
        raise error
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is error
    return caught.value


BY_CODE = [
    (sqlite3.SQLITE_FULL, StoreFull, "no space left"),
    (sqlite3.SQLITE_READONLY, StoreReadOnly, "cannot be written"),
    (sqlite3.SQLITE_READONLY_DBMOVED, StoreReadOnly, "cannot be written"),  # the primary code counts
    (sqlite3.SQLITE_CANTOPEN, StoreReadOnly, "cannot be written"),
    (sqlite3.SQLITE_PERM, StoreReadOnly, "cannot be written"),
    (sqlite3.SQLITE_AUTH, StoreReadOnly, "cannot be written"),
    (sqlite3.SQLITE_BUSY, StoreLocked, "locked by another program"),
    (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreLocked, "locked by another program"),
    (sqlite3.SQLITE_LOCKED, StoreLocked, "locked by another program"),
    (sqlite3.SQLITE_CORRUPT, StoreDamaged, "restore a copy"),
    (sqlite3.SQLITE_NOTADB, StoreDamaged, "restore a copy"),
    (sqlite3.SQLITE_TOOBIG, StoreError, "a text is longer than"),
    (sqlite3.SQLITE_IOERR, StoreError, "see whether it is there and sound"),
    (sqlite3.SQLITE_IOERR_READ, StoreError, "see whether it is there and sound"),
    (sqlite3.SQLITE_CONSTRAINT, StoreError, "failed: what SQLite said"),
]


@pytest.mark.parametrize(("code", "kind", "says"), BY_CODE)
def test_a_fault_of_sqlite(tmp_path: Path, code: int, kind: type[StoreError], says: str) -> None:
    path = tmp_path / "runs.sqlite3"
    found = told(path, of_sqlite(code))
    assert type(found) is kind
    assert says in str(found)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("no such table: events", StoreDamaged),
        ("malformed database schema", StoreDamaged),
        ('near "SELEC": syntax error', StoreError),
    ],
)
def test_a_missing_table_is_damage_and_a_wrong_statement_is_not(
    tmp_path: Path, words: str, kind: type[StoreError]
) -> None:
    found = told(tmp_path / "runs.sqlite3", of_sqlite(sqlite3.SQLITE_ERROR, words))
    assert type(found) is kind
    assert words in str(found)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN])
def test_where_no_small_file_can_be_written_beside_it_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked: list[Path] = []

    def none_left(*, dir: Path) -> Any:
        asked.append(dir)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", none_left)
    assert type(told(tmp_path / "runs.sqlite3", of_sqlite(code))) is StoreFull
    assert asked == [tmp_path]


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, StoreFull, "no space left"),
        (errno.EDQUOT, StoreFull, "no space left"),
        (errno.EACCES, StoreReadOnly, "cannot be written"),
        (errno.EROFS, StoreReadOnly, "cannot be written"),
        (errno.ENOENT, StoreGone, "was deleted, moved or replaced"),
        (errno.ENOTDIR, StoreError, "in-the-way is in the way; name another place"),
        (errno.EIO, StoreError, "failed: what the system said"),
    ],
)
def test_a_fault_of_the_file_system(tmp_path: Path, number: int, kind: type[StoreError], says: str) -> None:
    found = told(tmp_path / "runs.sqlite3", OSError(number, "what the system said", "in-the-way"))
    assert type(found) is kind
    assert says in str(found)


def test_what_is_no_fault_of_the_database_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), errors.translated(tmp_path):
        raise ZeroDivisionError

"""Writes files whole, for the user alone. Several processes may write into one folder. Imports no torch."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from conductor_core.files import FileLock

_UNFINISHED = ".unfinished"
_LOCK_WAIT_S = 2.0


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[bool]:
    """Makes ``folder`` if need be, and lets one process at a time write into it. What a killed one left there goes.

    Yields whether this one may write; False if another writes for longer than ``_LOCK_WAIT_S``. Raises: OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        mine = lock.acquire(_LOCK_WAIT_S)
        if mine:
            for path in folder.glob(f"*{_UNFINISHED}"):
                path.unlink(missing_ok=True)
        yield mine
    finally:
        lock.close()


def write_whole(path: Path, data: bytes) -> None:
    """Writes ``data`` under a name that nobody reads, and gives it ``path``'s once it is on the disk.

    Raises: OSError; then ``path`` is as it was before.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=_UNFINISHED)  # with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""Tells which process writes the folder of a training or an evaluation, and whether it still lives.

The process holds a lock on a file in the folder. The kernel drops the lock when the process ends; the file stays.
"""

import socket
from contextlib import closing
from os import getpid
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.files import FileLock

LOCK = ".in-use.lock"
"""The file with host and process id of its last holder. It is hidden: the model beside it does not include it."""

_ASKED_S = 0.5
"""Time to wait for a lock, because a page that asks ``in_use`` holds it for a moment."""
_HELD: dict[Path, FileLock] = {}
"""The locks that this process holds, by path."""


def hold(folder: Path) -> None:
    """Takes the existing ``folder`` for this process until it ends or releases it. A second call does no harm.

    Raises: BadInput if another process has it; OSError if the lock cannot be written.
    """
    path = folder.resolve() / LOCK
    if path in _HELD and _HELD[path].is_of(path):
        return
    release(folder)  # an old lock, if the folder was deleted and made again
    lock = FileLock(path)
    try:
        if not lock.acquire(_ASKED_S):
            host, _, pid = _owner(path).partition(" ")
            which = f" ({pid} on {host})" if pid else ""
            raise BadInput(f"{folder} is in use by another process{which}: wait for its end, or choose another folder")
        path.write_text(f"{socket.gethostname()} {getpid()}\n", encoding="utf-8")
    except BaseException:
        lock.close()
        raise
    _HELD[path] = lock


def release(folder: Path) -> None:
    """Lets others write ``folder``. Does nothing if this process does not hold it."""
    lock = _HELD.pop(folder.resolve() / LOCK, None)
    if lock is not None:
        lock.close()


def in_use(folder: Path) -> bool | None:
    """Whether a process writes ``folder``. None if unknown: no lock was ever taken, or another host took it."""
    path = folder / LOCK
    try:
        if not path.is_file():
            return None
        with closing(FileLock(path)) as lock:
            # A shared lock, so that two processes that ask do not take each other for a writer.
            if not lock.try_acquire(shared=True):
                return True
        return False if _owner(path).partition(" ")[0] == socket.gethostname() else None
    except OSError:
        return None


def _owner(path: Path) -> str:
    """Returns host and process id, or an empty text if they are not written yet."""
    return path.read_text(encoding="utf-8", errors="replace").strip()

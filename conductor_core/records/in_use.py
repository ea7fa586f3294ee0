"""Which process writes the folder of a training or an evaluation, and whether it still lives.

It holds a lock on a file in the folder, which the kernel drops when the process ends. The file stays.
"""

import socket
from os import getpid
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.file_lock import FileLock

LOCK = ".in-use.lock"
"""The file: host and process id of who holds it, or held it last. Hidden: it is no part of the model beside it."""

_ASKED_S = 0.5
"""How long a lock is waited for: a page that asks has it as long as it takes to ask."""
_HELD: dict[Path, FileLock] = {}
"""The locks that this process holds, by their path."""


def hold(folder: Path) -> None:
    """Takes ``folder``, which is there, for this process until it ends or releases it; again is no fault.

    Raises: BadInput if another process has it; OSError if the lock cannot be written.
    """
    path = folder.resolve() / LOCK
    if path in _HELD and _HELD[path].is_of(path):
        return
    release(folder)  # of a folder that is gone and was made anew
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
    """Lets others write ``folder``; nothing if this process does not hold it."""
    lock = _HELD.pop(folder.resolve() / LOCK, None)
    if lock is not None:
        lock.close()


def in_use(folder: Path) -> bool | None:
    """Whether a process writes ``folder``. None if that cannot be told: no lock was ever taken, or on another host."""
    path = folder / LOCK
    try:
        if not path.is_file():
            return None
        lock = FileLock(path)
        try:
            # Shared, so that those who ask do not take each other for the one who writes.
            if not lock.try_acquire(shared=True):
                return True
        finally:
            lock.close()
        return False if _owner(path).partition(" ")[0] == socket.gethostname() else None
    except OSError:
        return None


def _owner(path: Path) -> str:
    """Host and process id; empty if they are not written yet."""
    return path.read_text(encoding="utf-8", errors="replace").strip()

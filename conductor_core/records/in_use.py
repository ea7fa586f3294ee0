"""Which process writes the folder of a training or an evaluation, and whether it still lives.

It holds a ``flock`` on a file in the folder, as the writers of runs do on files beside the database (``storage.locks``,
which the core does not know): the kernel drops the lock when the process ends, however that happens. The file stays.
"""

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from conductor_core.errors import BadInput

LOCK = ".in-use.lock"
"""The file: host and process id of who holds it, or held it last. Hidden: it is no part of the model beside it."""

_ASKED_S = 0.5
_AGAIN_S = 0.01
_HELD: dict[Path, int] = {}
"""The open files of the locks that this process holds, by the path of the lock."""


def hold(folder: Path) -> None:
    """Takes ``folder``, which is there, for this process until it ends or releases it; again is no fault.

    Raises: BadInput if another process has it; OSError if the lock cannot be written.
    """
    path = folder.resolve() / LOCK
    if path in _HELD and _is_of(_HELD[path], path):
        return
    release(folder)  # of a folder that is gone and was made anew
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _taken(file):
            host, _, pid = _owner(file).partition(" ")
            which = f" ({pid} on {host})" if pid else ""
            raise BadInput(f"{folder} is in use by another process{which}: wait for its end, or choose another folder")
        os.ftruncate(file, 0)
        os.pwrite(file, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(file)
        raise
    _HELD[path] = file


def release(folder: Path) -> None:
    """Lets others write ``folder``; nothing if this process does not hold it."""
    file = _HELD.pop(folder.resolve() / LOCK, None)
    if file is not None:
        os.close(file)


def in_use(folder: Path) -> bool | None:
    """Whether a process writes ``folder``. None if that cannot be told: no lock was ever taken, or on another host."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, so that those who ask do not take each other for the one who writes.
        if not _locked(file, fcntl.LOCK_SH):
            return True
        return False if _owner(file).partition(" ")[0] == socket.gethostname() else None
    except OSError:
        return None
    finally:
        os.close(file)


def _taken(file: int) -> bool:
    """Waits a moment: a page that asks has the lock as long as it takes to ask."""
    deadline = time.monotonic() + _ASKED_S
    while not _locked(file, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_AGAIN_S)
    return True


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _owner(file: int) -> str:
    """Host and process id; empty if they are not written yet."""
    return os.pread(file, 512, 0).decode(errors="replace").strip()


def _is_of(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False

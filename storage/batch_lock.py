"""Lets one process at a time carry out a batch: two would pay for the same tasks."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.file_lock import FileLock

_ASKED_S = 0.5
"""Time to wait for the lock: meanwhile a process that has just taken it writes its name into the file."""


@contextmanager
def held(folder: Path, key: str, what: str) -> Iterator[None]:
    """Holds the lock of ``key`` until the block or the process ends.

    Args:
        folder: the folder of the owners' locks, beside the database.
        what: names the batch in the message.

    Raises: BadInput, which names the process that holds the lock; OSError.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"batch-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    lock = FileLock(path)
    try:
        while not (taken := lock.acquire(_ASKED_S)) or not lock.is_of(path):
            if not taken:
                raise BadInput(f"{what} is carried out by {_holder(path)}: wait for its end, or stop it")
            lock.close()  # whoever held it has deleted its file meanwhile
            lock = FileLock(path)
        path.write_text(f"{getpid()} {socket.gethostname()}\n", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        lock.close()


def _holder(path: Path) -> str:
    try:
        pid, _, host = path.read_text(encoding="utf-8", errors="replace").strip().partition(" ")
    except FileNotFoundError:
        pid = host = ""
    return f"process {pid} on {host}" if pid and host else "another process"

"""Which process carries out a batch: one at a time, or two would pay for the same tasks."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.file_lock import FileLock

_ASKED_S = 0.5
"""How long the lock is waited for: whoever has just taken it then says who that is."""


@contextmanager
def held(folder: Path, key: str, what: str) -> Iterator[None]:
    """Holds ``key`` until the block is left, or the process ends, however that happens.

    Args:
        folder: that of the owners' locks, beside the database.
        what: what ``key`` stands for, for the message.

    Raises: BadInput, naming the other process, if one holds it; OSError.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"batch-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    lock = FileLock(path)
    try:
        while not (taken := lock.acquire(_ASKED_S)) or not lock.is_of(path):
            if not taken:
                raise BadInput(f"{what} is carried out by {_holder(path)}: wait for its end, or stop it")
            lock.close()  # of a file that was deleted meanwhile, by whoever held it
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

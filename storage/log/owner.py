"""File locks of the log: which process writes a run, and whether it still lives; and one process for each batch.

Two processes with one batch would pay for the same tasks.
"""

import fcntl
import hashlib
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from os import getpid
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.files import FileLock, private_folder

OWNER_ID = re.compile(r"[0-9a-f]{32}")


class Owner:
    """This process as a writer of runs. It holds the lock of ``folder/<id>`` from its first run until it closes."""

    def __init__(self, folder: Path) -> None:
        self.id = uuid.uuid4().hex
        self._path = folder / self.id
        self._lock: FileLock | None = None

    def hold(self) -> None:
        """Takes the lock. Call it before a run of this owner is committed. Raises: OSError."""
        if self._lock is None:
            self._lock = self._acquired()

    def in_place(self) -> bool:
        """Whether others see that this process lives: False if somebody deleted its file. Raises: OSError."""
        return self._lock is None or self._lock.is_of(self._path)

    def hold_again(self) -> None:
        """Takes the lock on a new file after the old one was deleted. Raises: OSError."""
        lock, self._lock = self._lock, self._acquired()
        if lock is not None:
            lock.close()

    def _acquired(self) -> FileLock:
        private_folder(self._path.parent)
        lock = FileLock(self._path)
        lock.try_acquire()
        return lock

    def close(self) -> None:
        if self._lock is not None:
            self._path.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


@contextmanager
def gone(folder: Path, owner_id: str) -> Iterator[bool]:
    """Gives whether the owner's process has ended. If so, no other process learns it before the block ends.

    Raises: OSError.
    """
    path = folder / owner_id
    if not OWNER_ID.fullmatch(owner_id) or not path.exists():
        yield True
        return
    with closing(FileLock(path)) as lock:
        if lock.try_acquire():
            yield True
            path.unlink(missing_ok=True)
        else:
            yield False


def left(folder: Path, owner_id: str) -> bool:
    """Whether the owner's process has ended, for a process that cannot write in ``folder``."""
    path = folder / owner_id
    if not OWNER_ID.fullmatch(owner_id) or not path.exists():
        return True
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# Batches.

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
    private_folder(folder)
    path = folder / f"batch-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    lock = FileLock(path)
    try:
        while not (acquired := lock.acquire(_ASKED_S)) or not lock.is_of(path):
            if not acquired:
                pid = host = ""
                with suppress(FileNotFoundError):
                    pid, _, host = path.read_text(encoding="utf-8", errors="replace").strip().partition(" ")
                holder = f"process {pid} on {host}" if pid and host else "another process"
                raise BadInput(f"{what} is carried out by {holder}: wait for its end, or stop it")
            lock.close()  # whoever held it has deleted its file meanwhile
            lock = FileLock(path)
        path.write_text(f"{getpid()} {socket.gethostname()}\n", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        lock.close()

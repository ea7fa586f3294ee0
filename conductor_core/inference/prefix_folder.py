"""The folder of files of read prefixes: one writer at a time, and room for new files. It imports no torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from conductor_core.files import UNFINISHED, FileLock
from conductor_core.inference.generation import PrefixFolder

SUFFIXES = (".safetensors", ".llama")
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
            for path in folder.glob(f"*{UNFINISHED}"):
                path.unlink(missing_ok=True)
        yield mine
    finally:
        lock.close()


def make_room(folder: PrefixFolder, needed_bytes: int) -> bool:
    """Deletes the files not used for longest. Returns whether there is room.

    The caller has the lock. Raises: OSError.
    """
    found = [(path.lstat(), path) for path in folder.path.iterdir() if path.suffix in SUFFIXES]
    oldest_first = sorted(found, key=lambda each: each[0].st_mtime_ns)
    total = sum(status.st_size for status, _ in found) + needed_bytes
    if needed_bytes > folder.max_bytes:
        return False
    for status, path in oldest_first:
        if total > folder.max_bytes:
            path.unlink(missing_ok=True)
            total -= status.st_size
    return True

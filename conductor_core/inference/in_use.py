"""Marks the models that are in memory, for all processes of this machine: nobody deletes the files under them.

The mark is a shared lock on the model's ``config.json``, which the kernel drops when a process dies.
"""

import logging
from pathlib import Path

from conductor_core.files import FileLock

log = logging.getLogger(__name__)


def hold(folder: Path) -> FileLock | None:
    """Marks the model until the lock is closed. None where the files may not be written: nobody can delete them."""
    try:
        lock = FileLock(folder / "config.json")
    except OSError as error:
        log.info("%s is not marked as in use: %s", folder, error)
        return None
    if lock.try_acquire(shared=True):
        return lock
    lock.close()
    return None


def is_held(folder: Path) -> bool:
    """Tells whether any process has the model in memory."""
    if not (folder / "config.json").is_file():
        return False
    lock = FileLock(folder / "config.json")
    try:
        return not lock.try_acquire()
    finally:
        lock.close()

"""Keeps what llama.cpp has read of prompts' static beginnings as files, so that it is read once.

Only whole static beginnings are kept: reading a prompt in other pieces rounds differently, and the text would differ.
A file is named by a digest of all that decides it, and by the SHA-256 of its content, which is checked before
llama.cpp gets it: a cut file would end its process.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from conductor_core.files import UNFINISHED, FileLock
from conductor_core.inference.generation import PrefixFolder
from conductor_core.inference.gguf_digest import file_sha256

FORM = 1
"""The version of these files. Raise it when a beginning is read in another way than before."""
SUFFIX = ".llama"
_OLD_SUFFIX = ".safetensors"
"""Files of versions that kept what torch had read. They count, and leave as the oldest."""
_LOCK_WAIT_S = 2.0

log = logging.getLogger(__name__)


class KeptStatics:
    """The files of one model. Those beside its socket leave with its process."""

    def __init__(self) -> None:
        self._checked: dict[str, tuple[str, tuple[int, int]]] = {}

    def clear(self) -> None:
        """Forgets the files beside the socket: they are gone."""
        self._checked.clear()

    def key(self, stamps: tuple[str, ...], batch: int, ids: Sequence[int]) -> str:
        """Returns the name of a beginning ``ids`` of the model of these files, read in batches of ``batch``."""
        decides = [FORM, list(stamps), batch, metadata.version("xllamacpp"), platform.machine(), list(ids)]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def find(self, key: str, beside: Path, kept: PrefixFolder | None) -> str | None:
        """Returns the name of a whole file in ``beside``, the socket's folder; None if there is none."""
        path = beside / key
        if key in self._checked and _state(path) == self._checked[key][1]:
            return key
        path.unlink(missing_ok=True)
        for found in sorted(kept.path.glob(f"{key}-*{SUFFIX}")) if kept is not None else ():
            try:
                digest = file_sha256(found)
                if found.name != f"{key}-{digest}{SUFFIX}":
                    log.warning("%s is dropped, and the prompt is read again: its content is damaged", found)
                    found.unlink()
                    continue
                os.utime(found)  # the oldest leave first
                path.symlink_to(found.resolve())
                self._checked[key] = digest, _state(path)
                return key
            except OSError as error:
                log.warning("%s cannot be used: %s", found, error.strerror or error)
        return None

    def keep(self, key: str, beside: Path, kept: PrefixFolder | None) -> None:
        """Keeps the file ``key`` that was written in ``beside``; the oldest in ``kept`` leave for it."""
        path = beside / key
        try:
            digest = file_sha256(path)
            self._checked[key] = digest, _state(path)
            if kept is None:
                return
            with _writing_to(kept.path) as may_write:
                if not may_write or not _make_room(kept, path.stat().st_size):
                    return
                whole = kept.path / f"{key}-{digest}{SUFFIX}"
                unfinished = whole.with_name(f"{whole.name}{UNFINISHED}")
                shutil.copyfile(path, unfinished)
                unfinished.chmod(0o600)
                os.replace(unfinished, whole)
            path.unlink()
            path.symlink_to(whole.resolve())
            self._checked[key] = digest, _state(path)
        except OSError as error:
            log.warning("a prefix is not kept: %s", error.strerror or error)


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_ctime_ns


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[bool]:
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


def _make_room(folder: PrefixFolder, needed_bytes: int) -> bool:
    """Deletes the files not used for longest. Returns whether there is room.

    The caller has the lock. Raises: OSError.
    """
    found = [(path.lstat(), path) for path in folder.path.iterdir() if path.suffix in (SUFFIX, _OLD_SUFFIX)]
    oldest_first = sorted(found, key=lambda each: each[0].st_mtime_ns)
    total = sum(status.st_size for status, _ in found) + needed_bytes
    if needed_bytes > folder.max_bytes:
        return False
    for status, path in oldest_first:
        if total > folder.max_bytes:
            path.unlink(missing_ok=True)
            total -= status.st_size
    return True

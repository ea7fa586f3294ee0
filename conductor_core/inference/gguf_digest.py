"""The SHA-256 of model files, computed once for each state of a file; and a stamp that changes with a file.

A digest of all bytes of a large model would take longer than loading it. So of a large file its size, its times and
samples of its content are digested. The system sets ``ctime`` at every change of a file, and no program can set it
back: it tells of a file that was changed in place with its size and ``mtime`` kept. Samples are for file systems that
keep no times of their own. Small files are digested whole.
"""

import hashlib
import logging
import os
import threading
import time
from pathlib import Path

from pydantic import TypeAdapter

from conductor_core.files import open_regular
from conductor_core.inference.pace import Kept

CHEAP_BYTES = 2**30
"""Up to this size a digest is computed at once, in a second or two; of a larger file in the background."""

WHOLE_BYTES = 16 * 2**20
"""Files up to this size are digested whole: that takes about 10 ms."""
SAMPLES, SAMPLE_BYTES = 16, 4096
SETTLED_S = 2.0
"""Times of files are as coarse as this on some systems: a file changed later than this may change again unnoticed."""

log = logging.getLogger(__name__)


def known_digest(path: Path, data_folder: Path) -> str | None:
    """Returns the SHA-256 of a file; None while that of a large one is not known yet, or if it cannot be read."""
    kept = Kept(data_folder / "digests.json", TypeAdapter(dict[str, str]))
    try:
        status = path.stat()
        key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
        if (known := kept.get(key)) is not None:
            return known
        if status.st_size > CHEAP_BYTES:
            threading.Thread(target=_compute, args=(path, key, kept), daemon=True).start()
            return None
        return _compute(path, key, kept)
    except OSError as error:
        log.info("%s: %s", path, error)
        return None


def _compute(path: Path, key: str, kept: Kept[str]) -> str:
    digest = file_sha256(path)
    kept.keep(key, digest)
    return digest


def file_sha256(path: Path) -> str:
    """Raises: OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> str:
    """Returns what changes with a file, and each time for one that was changed just now. Raises: OSError."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size <= WHOLE_BYTES:
            return hashlib.sha256(file.read()).hexdigest()
        if abs(time.time() - status.st_ctime) < SETTLED_S:
            return f"changed just now, {time.time_ns()}"
        digest = hashlib.sha256(repr((status.st_size, status.st_mtime_ns, status.st_ctime_ns)).encode())
        for sample in range(SAMPLES):
            file.seek(sample * (status.st_size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()

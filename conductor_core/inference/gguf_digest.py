"""The SHA-256 of model files, computed once for each state of a file."""

import hashlib
import logging
import threading
from pathlib import Path

from pydantic import TypeAdapter

from conductor_core.inference.pace import Kept

CHEAP_BYTES = 2**30
"""Up to this size a digest is computed at once, in a second or two; of a larger file in the background."""

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
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kept.keep(key, digest)
    return digest

"""Tells in milliseconds whether a model on disk is still the same one.

Digests of all bytes would take longer than loading a large model does. So of a large file of weights this digests its
size, its times, its header and samples of its content. The system sets ``ctime`` at every change of a file, and no
program can set it back: it tells of a checkpoint that was changed in place with its size and ``mtime`` kept. Samples
are for file systems that keep no times of their own. Small files are digested whole.
"""

import hashlib
import os
import time
from pathlib import Path

WHOLE_BYTES = 16 * 2**20
"""Files up to this size are digested whole: that takes about 10 ms."""
SAMPLES, SAMPLE_BYTES = 16, 4096
SETTLED_S = 2.0
"""Times of files are as coarse as this on some systems: a file changed later than this may change again unnoticed."""
_READ_BY_TRANSFORMERS = (".json", ".jinja", ".txt", ".model", ".safetensors")


def model_stamp(folder: Path) -> str | None:
    """Returns a digest of a model's weights, configuration, tokenizer and chat template.

    Returns None where a change could go unnoticed: a large file was changed just now, or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(each for each in folder.iterdir() if each.suffix in _READ_BY_TRANSFORMERS):
            file_digest = _file_digest(path)
            if file_digest is None:
                return None
            digest.update(f"{len(path.name)}:{path.name}".encode() + file_digest)
    except OSError:
        return None
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes | None:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size <= WHOLE_BYTES:
            return hashlib.sha256(file.read()).digest()
        if abs(time.time() - status.st_ctime) < SETTLED_S:
            return None
        digest = hashlib.sha256(repr((status.st_size, status.st_mtime_ns, status.st_ctime_ns)).encode())
        header_bytes = int.from_bytes(file.read(8), "little") if path.suffix == ".safetensors" else 0
        digest.update(file.read(min(header_bytes, WHOLE_BYTES)))
        for sample in range(SAMPLES):
            file.seek(sample * (status.st_size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()

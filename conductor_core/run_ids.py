"""Makes ids of runs: they sort by time, cannot be guessed, and are safe in URLs and file names."""

import hashlib
import secrets
import threading
import time

_lock = threading.Lock()
_last_ms = 0


def file_part(run_id: str) -> str:
    """Returns a run's part of the name of a file about it. An id comes from a database, and may be any text there."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:24]


def new_run_id() -> str:
    """Returns ``TTTTTTTTTTTT-RRRRRRRRRRRRRRRR``: 48 bits of Unix milliseconds, then 64 random bits, in hexadecimal.

    The ids of one process sort in the order in which they were made, even within one millisecond (the time in the id
    then runs ahead) and if the clock is set back.
    """
    global _last_ms
    with _lock:
        _last_ms = max(_last_ms + 1, time.time_ns() // 1_000_000)
        return f"{_last_ms:012x}-{secrets.token_hex(8)}"

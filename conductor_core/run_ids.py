"""Ids of runs: sortable by time, not guessable, safe in a URL and a file name."""

import secrets
import threading
import time

_lock = threading.Lock()
_last_ms = 0


def new_run_id() -> str:
    """``TTTTTTTTTTTT-RRRRRRRRRRRRRRRR``: 48 bits of Unix milliseconds, then 64 random bits, in hexadecimal.

    Ids made by one process sort in the order in which they were made: two made within one millisecond get different
    ones, the clock running ahead by as much; a clock set back does not turn the order around.
    """
    global _last_ms
    with _lock:
        _last_ms = max(_last_ms + 1, time.time_ns() // 1_000_000)
        now_ms = _last_ms
    return f"{now_ms:012x}-{secrets.token_hex(8)}"

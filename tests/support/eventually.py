"""Waits for a state that another thread or process brings about."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)

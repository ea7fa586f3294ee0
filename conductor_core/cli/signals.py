"""Ctrl-C and SIGTERM while a command works."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one ends the program. Needs a running event loop.

    Yields a list: empty at first, it holds the exit code from the first signal on.
    """
    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def on_signal(number: signal.Signals) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_EXIT_CODES[number])
        stop()

    for number in _EXIT_CODES:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield codes
    finally:
        for number in _EXIT_CODES:
            loop.remove_signal_handler(number)

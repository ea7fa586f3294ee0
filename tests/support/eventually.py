"""Waits for a state that another thread or process brings about. What never comes is ended by the test's time limit."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T]) -> T:
    """Returns what ``condition`` gives once that is true."""
    while not (found := condition()):
        time.sleep(0.01)
    return found


async def eventually_async(condition: Callable[[], T]) -> T:
    """As ``eventually``, while the loop goes on."""
    while not (found := condition()):  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)
    return found

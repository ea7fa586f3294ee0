"""Reports the progress of a model in this process to the caller that waits for it.

The caller asks for progress with ``watching``. The code that runs the model reports to ``watcher()``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from conductor_core.workflow.model import Frozen


class Progress(Frozen):
    """The progress of a model.

    Attributes:
        phase: ``loading`` its weights into memory, ``reading`` the prompt, or ``writing`` the answer.
        done, total: bytes of weights, tokens of the prompt, or tokens written and the most allowed.
        per_s: tokens a second; only in the phase ``writing``.
    """

    phase: Literal["loading", "reading", "writing"]
    done: NonNegativeInt
    total: NonNegativeInt
    per_s: NonNegativeFloat | None = None


Tell = Callable[[Progress], None]

_watcher: ContextVar[Tell | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(tell: Tell) -> Iterator[None]:
    """Makes models that are asked in the block report to ``tell``, in the event loop that asks them."""
    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


def watcher() -> Tell | None:
    return _watcher.get()

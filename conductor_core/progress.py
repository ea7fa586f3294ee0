"""How far a model in this process is, for whoever waits for it.

Whoever asks the model says with ``watching`` that it wants to know; whoever runs it asks ``watcher`` where to tell.
What passes between the two otherwise stays what it is: text, and at last its end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from conductor_core.workflow.model import Frozen


class Progress(Frozen):
    """What a model does.

    Attributes:
        phase: ``loading`` its weights into memory, ``reading`` the prompt, ``writing`` the answer.
        done, total: bytes of weights, tokens of the prompt, or tokens written and the most that may be.
        per_s: tokens a second, of ``writing`` alone.
    """

    phase: Literal["loading", "reading", "writing"]
    done: NonNegativeInt
    total: NonNegativeInt
    per_s: NonNegativeFloat | None = None


Tell = Callable[[Progress], None]

_watcher: ContextVar[Tell | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(tell: Tell) -> Iterator[None]:
    """Models that are asked in here tell ``tell``, in the event loop that asks them."""
    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


def watcher() -> Tell | None:
    return _watcher.get()

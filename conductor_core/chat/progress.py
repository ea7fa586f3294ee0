"""Reports the progress of a model in this process to the caller that waits for it.

The caller asks for progress with ``watching``. The code that runs the model reports to ``watcher()``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from conductor_core.workflow.model import Frozen

Phase = Literal["loading", "converting", "reading", "thinking", "writing"]


class Progress(Frozen):
    """The progress of a model.

    Attributes:
        phase: ``loading`` its weights into memory, ``converting`` them to another number format, ``reading`` the
            prompt, ``thinking`` before the answer, or ``writing`` it.
        done, total: bytes of weights, tokens of the prompt, or tokens written and the most allowed.
        per_s: bytes or tokens a second; None while it is unknown.
        left_s: seconds until the phase ends, by estimate; for ``thinking`` those until the answer is written. None
            where nothing tells it.
    """

    phase: Phase
    done: NonNegativeInt
    total: NonNegativeInt
    per_s: NonNegativeFloat | None = None
    left_s: NonNegativeFloat | None = None

    @property
    def writes(self) -> bool:
        """Whether text comes: thinking is writing, too."""
        return self.phase in ("thinking", "writing")


def time_left(seconds: float) -> str:
    """Says an estimate as roughly as it is known."""
    if seconds < 7.5:
        return "a few seconds left"
    return f"about {5 * round(seconds / 5)} s left" if seconds < 90 else f"about {round(seconds / 60)} min left"


Notify = Callable[[Progress], None]

_watcher: ContextVar[Notify | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(notify: Notify) -> Iterator[None]:
    """Makes models that are asked in the block report to ``notify``, in the event loop that asks them."""
    token = _watcher.set(notify)
    try:
        yield
    finally:
        _watcher.reset(token)


def watcher() -> Notify | None:
    return _watcher.get()

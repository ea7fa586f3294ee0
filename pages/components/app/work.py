"""What a page has a thread do: it continues while the page is redrawn, reloaded, or left for a while."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from conductor_core.errors import InspectorError

log = logging.getLogger(__name__)

ABANDONED_S = 300.0
"""After this time without anybody who looks, the work stops."""
Result = TypeVar("Result")


class _Stopped(Exception):
    """Nobody wants the result any more."""


class Work(Generic[Result]):
    """A piece of work, and how far it is. Any thread may use it.

    Attributes:
        stage, done, total: what is done at the moment, and how much of it. per_s: how much in a second.
        share: of the whole, from 0 to 1.
        result: None until it is done. error: why it ended without a result; None: it did not.
    """

    def __init__(self, name: str, do: "Callable[[Work[Result]], Result]") -> None:
        """Begins at once. ``do`` calls ``report`` often."""
        self.stage, self.done, self.total, self.share = "", 0, 0, 0.0
        self.result: Result | None = None
        self.error: str | None = None
        self._do = do
        self._stop = False
        self._stage_s = self._looked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def per_s(self) -> float:
        return self.done / max(0.001, time.monotonic() - self._stage_s)

    def report(self, stage: str, done: int, total: int, share: float) -> None:
        """Says how far the work is; ends it if somebody stopped it, or if nobody looks."""
        now_s = time.monotonic()
        if stage != self.stage:
            self._stage_s = now_s
        self.stage, self.done, self.total, self.share = stage, done, total, min(1.0, share)
        if self._stop or now_s - self._looked_s > ABANDONED_S:
            raise _Stopped

    def keep_alive(self) -> None:
        """Says that somebody looks."""
        self._looked_s = time.monotonic()

    def stop(self) -> None:
        self._stop = True

    def wait(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self.result = self._do(self)
        except _Stopped:
            self.error = "stopped before its end"
        except InspectorError as error:
            self.error = str(error)
        except Exception:  # a fault of the program
            log.exception("%s ended unexpectedly", self._thread.name)
            self.error = "it ended unexpectedly, see the log"

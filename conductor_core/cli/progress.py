"""Shows on stderr how far something is: a bar on a terminal, elsewhere lines from time to time."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

LINE_EVERY_S = 10.0
_RATE_OVER_S, _SEEN_EVERY_S = 60.0, 0.1


class Line:
    """How far something is: a bar on a terminal, elsewhere a line every ten seconds, or with ``quiet`` nothing.

    A context manager. ``redirect``: print above the bar what goes to stdout meanwhile.
    """

    def __init__(self, *columns: ProgressColumn, quiet: bool, redirect: bool = True, expand: bool = False) -> None:
        self._says = not quiet and not sys.stderr.isatty()
        self._progress = Progress(
            *columns,
            console=Console(stderr=True),
            redirect_stdout=redirect,
            expand=expand,
            disable=quiet or self._says,
        )
        self._id = self._progress.add_task("", total=None, said="")
        self._task = self._progress.tasks[0]
        self._said_s = self._began_s = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def per_s(self) -> float:
        """How much was done a second over the last minute; 0 while that is not known."""
        (from_s, from_), (_, done) = (self._seen[0], self._seen[-1]) if self._seen else ((0.0, 0), (0.0, 0))
        return max(0, done - from_) / max(1e-9, time.monotonic() - from_s)

    @property
    def left_s(self) -> float | None:
        """Seconds; None while that is not known."""
        return (self._task.remaining or 0.0) / self.per_s if self.per_s else None

    @property
    def elapsed_ms(self) -> float:
        return 1000 * (time.monotonic() - self._began_s)

    def show(
        self,
        done: int,
        total: int,
        line: Callable[[], str],
        *,
        title: str = "",
        said: Callable[[], str] = str,
        now: bool = False,
    ) -> None:
        """Shows the bar with ``title`` and ``said``; else prints ``line``, if it is due or to be said ``now``."""
        self._progress.start()
        now_s = time.monotonic()
        if len(self._seen) > 1 and now_s - self._seen[-2][0] < _SEEN_EVERY_S:
            self._seen.pop()
        self._seen.append((now_s if self._seen else self._began_s, done))
        while self._seen[0][0] < now_s - _RATE_OVER_S and len(self._seen) > 2:
            self._seen.popleft()
        self._progress.update(self._id, completed=done, total=total, description=title)
        self._progress.update(self._id, said=said())
        if self._says and (now or time.monotonic() - self._said_s >= LINE_EVERY_S):
            self._said_s = time.monotonic()
            print(line(), file=sys.stderr, flush=True)

    def forget_pace(self, done: int) -> None:
        """Makes the pace count from now on: what was ``done`` took its time for something else."""
        self._progress.reset(self._id, completed=done)
        self._seen = deque([(time.monotonic(), done)])


Show = Callable[[int, int], None]


@contextmanager
def bar(title: str, *, quiet: bool, of_bytes: bool = True) -> Iterator[Show]:
    """Yields what takes how much is done, of how much: of a download, or of things."""
    units: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), *units, TimeRemainingColumn())
    with Line(*columns, quiet=quiet) as line:
        first = True

        def show(done: int, total: int) -> None:
            nonlocal first

            def said() -> str:
                amount = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if of_bytes else f"{done} of {total}"
                rate = f", {line.per_s / 1e6:.1f} MB/s" if of_bytes and line.per_s else ""
                return f"{title}: {amount}{rate}" + (f", about {line.left_s:,.0f} s left" if line.left_s else "")

            line.show(done, total, said, now=first or done >= total, title=title)
            first = False

        yield show


def terminal_bar(title: str) -> AbstractContextManager[Show]:
    """Shows a bar of things done on a terminal, and nothing elsewhere."""
    return bar(title, quiet=not sys.stderr.isatty(), of_bytes=False)

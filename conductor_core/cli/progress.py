"""Shows on stderr how far something is: a bar on a terminal, elsewhere lines from time to time."""

import sys
import time
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
_RATE_OVER_S = 60.0


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
            speed_estimate_period=_RATE_OVER_S,
            disable=quiet or self._says,
        )
        self._id = self._progress.add_task("", total=None, said="")
        self._task = self._progress.tasks[0]
        self._said_s = self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def per_s(self) -> float:
        """How much was done a second over the last minute; 0 while that is not known."""
        return self._task.speed or 0.0

    @property
    def left_s(self) -> float | None:
        return self._task.time_remaining

    @property
    def elapsed_ms(self) -> float:
        return 1000 * (time.monotonic() - self._began_s)

    def show(
        self, done: int, total: int, line: Callable[[], str], *, title: str = "", said: str = "", now: bool = False
    ) -> None:
        """Shows the bar with ``title`` and ``said``; else prints ``line``, if it is due or to be said ``now``."""
        self._progress.start()
        self._progress.update(self._id, completed=done, total=total, description=title, said=said)
        if self._says and (now or time.monotonic() - self._said_s >= LINE_EVERY_S):
            self._said_s = time.monotonic()
            print(line(), file=sys.stderr, flush=True)

    def forget_pace(self, done: int) -> None:
        """Makes the pace count from now on: what was ``done`` took its time for something else."""
        self._progress.reset(self._id, completed=done)


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

"""Shows on stderr how far a download or a measurement is: with a bar on a terminal, else with a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
Show = Callable[[int, int], None]


@contextmanager
def bar(title: str, *, quiet: bool, of_bytes: bool = True) -> Iterator[Show]:
    """Yields what takes how much is done, of how much."""
    if quiet or not sys.stderr.isatty():
        yield _lines(title, of_bytes) if not quiet else lambda _done, _all: None
        return
    units: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), *units, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, all_: progress.update(task, completed=done, total=all_)


def _lines(title: str, of_bytes: bool) -> Show:
    said_s, first = 0.0, (0.0, 0)

    def show(done: int, all_: int) -> None:
        nonlocal said_s, first
        now_s = time.monotonic()
        if not said_s:
            first = (now_s, done)
        elif now_s - said_s < LINE_EVERY_S and done < all_:
            return
        said_s = now_s
        print(f"{title}: {_amount(done, all_, of_bytes)}{_left(first, now_s, done, all_, of_bytes)}", file=sys.stderr)

    return show


def _amount(done: int, all_: int, of_bytes: bool) -> str:
    return f"{done / 1e6:,.0f} of {all_ / 1e6:,.0f} MB" if of_bytes else f"{done} of {all_}"


def _left(first: tuple[float, int], now_s: float, done: int, all_: int, of_bytes: bool) -> str:
    took_s, made = now_s - first[0], done - first[1]
    if took_s <= 0 or made <= 0 or done >= all_:
        return ""
    rate = made / took_s
    speed = f", {rate / 1e6:.1f} MB/s" if of_bytes else ""
    return f"{speed}, about {(all_ - done) / rate:,.0f} s left"

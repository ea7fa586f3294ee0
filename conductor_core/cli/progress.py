"""Shows on stderr how far an evaluation, a batch, a download or a measurement is.

On a terminal a bar or one live line, elsewhere a line now and then.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from conductor_core.analysis.concluded import concluded
from conductor_core.cli.output import one_line
from conductor_core.formats import run_word, seconds
from conductor_core.lab.records.evaluation import Outcome
from conductor_core.run.costs import Cost, cost_so_far, in_list, is_estimated
from conductor_core.run.trace import RunTrace

LINE_EVERY_S = 10.0
_SHOWN = 4


class EvaluationProgress:
    """Counts outcomes as they come, with the scores so far; a context manager.

    Shows the orchestrator ``first`` first, and how many of ``total`` outcomes there are. ``quiet``: shows nothing.
    """

    def __init__(self, first: str, total: int, *, quiet: bool) -> None:
        self._first, self._total, self._quiet = first, total, quiet
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn(
                    "{task.fields[scores]}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", min_width=12, ratio=1),
                ),
                console=Console(stderr=True),
                expand=True,
            )
            self._task = self._bar.add_task("evaluating", total=total, scores="")
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._done = 0
        self._started_s = self._said_s = time.monotonic()
        self._before = 0

    def __enter__(self) -> "EvaluationProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, recorded: int) -> None:
        """Takes the number of outcomes that an earlier part recorded: they take no time now."""
        self._before = recorded

    def fitting(self, done: int, total: int) -> None:
        """Shows how many of the runs are done on which learned routers are fitted."""
        if self._bar is not None:
            self._bar.update(self._task, description="fitting routers", completed=done, total=total)
        elif self._due() or done == total:
            self._say(f"runs to fit routers on: {done} of {total}")

    def on_outcome(self, outcome: Outcome) -> None:
        score = self._sums[outcome.orchestrator]
        score[0] += outcome.score
        score[1] += 1
        self._done += 1
        if self._done <= self._before + 1:
            self._started_s = time.monotonic()  # what came before took its time for something else
        if self._bar is not None:
            self._bar.update(
                self._task, description="evaluating", completed=self._done, total=self._total, scores=self._scores()
            )
        elif self._due():
            self._say(f"{self._done} of {self._total} · {self._left()} left · {self._scores()}")

    def _due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._said_s < LINE_EVERY_S:
            return False
        self._said_s = now_s
        return True

    def _left(self) -> str:
        made = self._done - self._before - 1
        if made <= 0:
            return "unknown time"
        return seconds(1000 * (time.monotonic() - self._started_s) / made * (self._total - self._done))

    def _scores(self) -> str:
        """Names the first orchestrator, then the best so far, with their scores in percent."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        ranked = sorted(means, key=lambda name: (name != self._first, -means[name]))
        return " · ".join(f"{one_line(name, 24)} {100 * means[name]:.1f}" for name in ranked[:_SHOWN])

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)


# A batch.

_RATE_OVER_S = 60.0


class BatchProgress:
    """Counts tasks as they begin and end; a context manager. Safe to use from any thread.

    Args:
        total: tasks of the batch; ``completed`` of them had completed before, at this ``cost``, ``estimated`` or not.
        quiet: show nothing. answers: also print a line on stdout for each task that ends.
    """

    def __init__(self, total: int, completed: int, cost: Cost, *, estimated: bool, quiet: bool, answers: bool) -> None:
        self._total, self._before, self._cost, self._estimated = total, completed, cost, estimated
        self._quiet, self._answers = quiet, answers
        self._lock = Lock()
        self._running = 0
        self._ended: Counter[str] = Counter()
        self._ends_s: list[float] = []
        self._started_s = self._said_s = time.monotonic()
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TextColumn("{task.fields[said]}", markup=False),
                console=Console(stderr=True),
                # What goes to a file must go to that file, and not above the bar.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._task = self._bar.add_task("tasks", total=total, completed=completed, said="")

    def __enter__(self) -> "BatchProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def elapsed_ms(self) -> float:
        return 1000 * (time.monotonic() - self._started_s)

    def begun(self) -> None:
        with self._lock:
            self._running += 1
            self._show()

    def ended(self, id_: str, trace: RunTrace) -> None:
        """Counts a task that has ended. ``begun`` was called for it before."""
        with self._lock:
            self._running -= 1
            self._ended[trace.status] += 1
            self._ends_s.append(time.monotonic())
            self._cost += cost_so_far(trace)
            self._estimated |= is_estimated(trace)
            if self._answers:
                print(task_line(id_, trace), flush=True)
            self._show()

    @property
    def line(self) -> str:
        """``12 done · 32 running · 1 failed · 4.1/s · $0.0021 · 38 s left``; without the time once nothing is left."""
        done = self._before + self._ended["completed"]
        failed = self._ended.total() - self._ended["completed"]
        parts = [f"{done} done", f"{self._running} running", f"{failed} failed", self._rate()]
        return " · ".join([*parts, in_list(self._cost, estimated=self._estimated), *self._left()])

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._before + self._ended.total(), said=self.line)
        elif not self._quiet and time.monotonic() - self._said_s >= LINE_EVERY_S:
            self._said_s = time.monotonic()
            print(f"{self._before + self._ended.total()} of {self._total} · {self.line}", file=sys.stderr, flush=True)

    def _per_s(self) -> float:
        """Returns the tasks per second over the last minute."""
        now_s = time.monotonic()
        over_s = min(_RATE_OVER_S, now_s - self._started_s)
        recent = sum(at_s > now_s - over_s for at_s in self._ends_s)
        return recent / over_s if over_s > 0 else 0.0

    def _rate(self) -> str:
        per_s = self._per_s()
        return f"{per_s:.1f}/s" if per_s >= 1 or per_s == 0 else f"{60 * per_s:.1f}/min"

    def _left(self) -> list[str]:
        if not (left := self._total - self._before - self._ended.total()):
            return []
        per_s = self._per_s()
        return [f"{seconds(1000 * left / per_s)} left" if per_s else "unknown time left"]


def task_line(id_: str, trace: RunTrace) -> str:
    """Says on one line how a task ended, with its answer or the reason why there is none."""
    said = concluded(trace) if trace.status == "completed" else None
    what = trace.error if said is None else said.text
    simulated = " · simulated" if trace.simulated else ""
    spent = f"{seconds(trace.duration_ms)} · {in_list(cost_so_far(trace), estimated=is_estimated(trace))}{simulated}"
    return f"{one_line(id_, 60)} · {run_word(trace.status)} · {spent} · {one_line(what or '', 160)}"


# A download or a measurement.

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

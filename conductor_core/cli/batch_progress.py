"""Shows on stderr how far a batch is: with one live line on a terminal, else with a line now and then."""

import sys
import time
from collections import Counter
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from conductor_core.cli.text import duration, one_line
from conductor_core.spending import Cost, cost_so_far
from conductor_core.trace import RunTrace

LINE_EVERY_S = 10.0
_RATE_OVER_S = 60.0


class BatchProgress:
    """Counts tasks as they begin and end; a context manager. Safe to use from any thread.

    Args:
        total: tasks of the batch; ``completed`` of them had completed before, at this ``cost``.
        quiet: show nothing. answers: also print a line on stdout for each task that ends.
    """

    def __init__(self, total: int, completed: int, cost: Cost, *, quiet: bool, answers: bool) -> None:
        self._total, self._before, self._cost = total, completed, cost
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
            if self._answers:
                print(task_line(id_, trace), flush=True)
            self._show()

    @property
    def line(self) -> str:
        """``12 done · 32 running · 1 failed · 4.1/s · $0.0021 · 38 s left``; without the time once nothing is left."""
        done = self._before + self._ended["completed"]
        failed = self._ended.total() - self._ended["completed"]
        parts = [f"{done} done", f"{self._running} running", f"{failed} failed", self._rate()]
        return " · ".join([*parts, self._cost.in_line, *self._left()])

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
        return [f"{duration(1000 * left / per_s)} left" if per_s else "unknown time left"]


def task_line(id_: str, trace: RunTrace) -> str:
    """Says on one line how a task ended, with its answer or the reason why there is none."""
    what = trace.answer if trace.status == "completed" else trace.error
    simulated = " · simulated" if trace.simulated else ""
    spent = f"{duration(trace.duration_ms)} · {cost_so_far(trace).in_line}{simulated}"
    return f"{one_line(id_, 60)} · {trace.status} · {spent} · {one_line(what or '', 160)}"

"""Shows on stderr how far an evaluation is: with a bar on a terminal, else with a line now and then."""

import sys
import time
from collections import defaultdict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from conductor_core.cli.text import duration, one_line
from conductor_core.records.evaluation import Outcome

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
        return duration(1000 * (time.monotonic() - self._started_s) / made * (self._total - self._done))

    def _scores(self) -> str:
        """Names the first orchestrator, then the best so far, with their scores in percent."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        ranked = sorted(means, key=lambda name: (name != self._first, -means[name]))
        return " · ".join(f"{one_line(name, 24)} {100 * means[name]:.1f}" for name in ranked[:_SHOWN])

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)

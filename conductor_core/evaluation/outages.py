"""Failures of workers: a server that is away, limits or fails, a key that is refused. They say nothing of a plan."""

from collections import defaultdict
from collections.abc import Iterable

from conductor_core.endings import INCOMPLETE
from conductor_core.errors import WorkerError, WorkerOutputTooLarge, codes_of
from conductor_core.evaluation.outcome import error_code
from conductor_core.records.evaluation import Outcome
from conductor_core.trace import RunTrace

FAILURES_IN_A_ROW = 3
"""After so many different pieces of work, with no answer between, nothing more is asked of a worker."""

_AT_A_WORKER = codes_of(WorkerError) - codes_of(WorkerOutputTooLarge) - {WorkerError.__name__}


def failed_at_a_worker(done: RunTrace | Outcome) -> bool:
    """Whether a run has no answer because of a worker. An answer that is too large is its worker's own doing."""
    return (done.error_code if isinstance(done, RunTrace) else error_code(done)) in _AT_A_WORKER


class Outages:
    """Which workers fail one piece of work after another: a task of an evaluation, a workflow of a training."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, set[str]] = defaultdict(set)

    def down(self, agent: str) -> bool:
        return len(self._in_a_row[agent]) >= FAILURES_IN_A_ROW

    def take_in(self, work: str, traces: Iterable[RunTrace], *, blamed: bool = True) -> str | None:
        """Takes in the runs of one piece of ``work``. Returns which worker is down now and why; None: none is.

        Args:
            blamed: whether the workers are to blame for what failed.
        """
        down = None
        for step in (step for trace in traces for step in trace.walk() if step.round is None):
            if step.answered or step.status in INCOMPLETE:
                self._in_a_row.pop(step.agent, None)
            elif blamed and step.status == "failed" and step.error_code in _AT_A_WORKER:
                self._in_a_row[step.agent].add(work)
                if self.down(step.agent):
                    failures = len(self._in_a_row[step.agent])
                    down = f"worker {step.agent} failed {failures} tasks in a row ({step.error})"
        return down

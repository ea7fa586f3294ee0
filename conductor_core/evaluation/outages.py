"""Recognises failures of workers (a server that is down, limits or fails, a refused key), which no plan has caused."""

from collections import defaultdict
from collections.abc import Iterable

from conductor_core.endings import INCOMPLETE
from conductor_core.errors import WorkerError, WorkerOutputTooLarge, codes_of
from conductor_core.evaluation.outcome import error_code
from conductor_core.records.evaluation import Outcome
from conductor_core.trace import RunTrace

FAILURES_IN_A_ROW = 3
"""A worker that fails so many different pieces of work, with no answer in between, is asked nothing more."""

_AT_A_WORKER = codes_of(WorkerError) - codes_of(WorkerOutputTooLarge) - {WorkerError.__name__}


def failed_at_a_worker(done: RunTrace | Outcome) -> bool:
    """Says whether a run has no answer because a worker failed. An answer that is too large is no such failure."""
    return (done.error_code if isinstance(done, RunTrace) else error_code(done)) in _AT_A_WORKER


class Outages:
    """Tracks which workers fail one piece of work after another: a task of an evaluation, a workflow of a training."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, set[str]] = defaultdict(set)

    def down(self, agent: str) -> bool:
        return len(self._in_a_row[agent]) >= FAILURES_IN_A_ROW

    def take_in(self, work: str, traces: Iterable[RunTrace], *, blamed: bool = True) -> str | None:
        """Takes in the runs of one piece of ``work``. Returns which worker is down now and why, or None.

        Args:
            blamed: whether failed steps count against their workers.
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

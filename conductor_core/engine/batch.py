"""Runs of a batch of tasks: the request of each task, the resume of a stopped batch, its cost and its budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.budgets import longest_plan, longest_usd
from conductor_core.engine.request import asks_conductor, resume_of
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import BatchRow
from conductor_core.workflow.model import Workflow


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch.

    Attributes:
        id: unique within the batch.
        workflow: run as given; None: the Conductor writes one.
        line: its line in the file of tasks, from 1.
    """

    id: str
    task: str
    workflow: Workflow | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class BatchSpent:
    """What a batch has spent. A call that broke off counts with the highest cost that it may have had."""

    usd: float = 0.0
    tokens: int = 0


def request_of(task: BatchTask, place: BatchRow, each: RunRequest, earlier: Sequence[RunTrace]) -> RunRequest:
    """Returns the request that runs ``task``, or resumes it so that no finished step is paid again.

    Args:
        each: what all runs of the batch have in common.
        earlier: the runs of the task in this batch so far, oldest first; none of them completed.
    """
    request = each.model_copy(
        update={"task": task.task, "workflow": task.workflow, "batch": place, "run_id": new_run_id()}
    )
    if earlier:
        last, *before = reversed(earlier)
        resumed = resume_of(last, *before, door="cli")
        more = {"workflow": resumed.workflow, "parent_run_id": last.run_id, "taken_up": resumed.taken_up}
        request = request.model_copy(update={**more, "resumed": last.status in ("interrupted", "cancelled")})
        # Also where the last run failed: what its steps called may have had effects.
        request = request.model_copy(update={"overrides": resumed.overrides})
    return request if asks_conductor(request.workflow) else request.model_copy(update={"conductor": None})


def spent_at_most(traces: Sequence[RunTrace], plan_max_tokens: int) -> BatchSpent:
    """Returns the highest cost that these runs may have had: the true cost of a call that broke off is unknown.

    Args:
        plan_max_tokens: the most tokens that the Conductor may write for a plan.
    """
    usd = sum(trace.known_usd - trace.broken_off_usd for trace in traces)
    for trace in traces:
        usd += sum(_unsaid_usd(trace, step) for step in trace.walk() if step.messages and step.status != "reused")
        usd += sum(_unsaid_plan_usd(trace, each, plan_max_tokens) for each in trace.root.rounds())
    return BatchSpent(usd, sum(trace.usage.total_tokens for trace in traces))


def _unsaid_usd(trace: RunTrace, step: StepTrace) -> float:
    """Returns the USD that broken-off calls of a step may have cost beyond the recorded cost."""
    specs = {spec.name: spec for spec in trace.pool.workers}
    usd = sum(
        _beyond(specs.get(each.agent or step.agent), step, each.cost_usd)
        for each in step.attempts
        if each.usage.total_tokens and each.usage.estimated
    )
    if step.status == "failed" and step.usage.total_tokens:
        usd += _beyond(
            specs.get(step.asked), step, step.known_usd - sum(each.cost_usd or 0.0 for each in step.attempts)
        )
    elif step.status in ("running", "cancelled"):
        most = step.attempts[-1].then_max_tokens if step.attempts else None
        usd += _beyond(specs.get(step.asked), step, 0.0, most)
    return usd


def _beyond(spec: WorkerSpec | None, step: StepTrace, said_usd: float | None, max_tokens: int | None = None) -> float:
    """Returns the USD that a call of this worker may have cost beyond ``said_usd``; 0 without a known price."""
    price = None if spec is None else spec.price
    if spec is None or price is None:
        return 0.0
    if max_tokens is not None:
        spec = spec.model_copy(update={"params": {**spec.params, "max_tokens": max_tokens}})
    return max(0.0, longest_usd(price, spec, step.messages) - (said_usd or 0.0))


def _unsaid_plan_usd(trace: RunTrace, round_: RoundTrace, plan_max_tokens: int) -> float:
    price = None if trace.conductor is None else trace.conductor.price
    if price is None or not round_.messages:
        return 0.0
    most = price.cost_usd(longest_plan(round_.messages, plan_max_tokens))
    broken_off = [each.cost_usd or 0.0 for each in round_.retries if each.usage.total_tokens and each.usage.estimated]
    broken_off += [0.0] if round_.status in ("planning", "unfinished") else []
    return sum(max(0.0, most - said) for said in broken_off)


class Room:
    """Decides when a further task may begin within a budget, so that every begun task can finish.

    The cost cap bounds each call. This class keeps the rest of the budget from being spent on the first steps of many
    tasks. It expects a task to cost the average of the completed ones; until one has completed, tasks run singly.

    Attributes:
        refused: why a task was refused; None if none was.
    """

    def __init__(self, max_usd: float, spent_usd: float, costs: Sequence[float]) -> None:
        """``costs``: the USD of each task of this batch that completed before."""
        self._max_usd, self._spent_usd, self._costs = max_usd, spent_usd, list(costs)
        self._running = 0
        self._changed = Condition()
        self._closed = False
        self.refused: str | None = None

    def begin(self) -> bool:
        """Blocks until a task may begin. Returns False if none may begin any more. Each True needs an ``end``."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._running == 0 or self._fits())
            if self._closed:
                return False
            if not self._fits():
                left = max(0.0, self._max_usd - self._spent_usd)
                self.refused = self.refused or (
                    f"the budget is used: {left:.6f} of {self._max_usd:g} USD are left and a task costs "
                    f"{self._expected():.6f} on average. Raise --max-usd and continue with --resume"
                )
                return False
            self._running += 1
            return True

    def end(self, cost_usd: float, *, completed: bool) -> None:
        with self._changed:
            self._running -= 1
            self._spent_usd += cost_usd
            if completed:
                self._costs.append(cost_usd)
            self._changed.notify_all()

    def close(self) -> None:
        """Lets no further task begin; ``begin`` returns False from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _expected(self) -> float:
        return sum(self._costs) / len(self._costs)

    def _fits(self) -> bool:
        if not self._costs:
            return self._running == 0
        return self._spent_usd + (self._running + 1) * self._expected() <= self._max_usd

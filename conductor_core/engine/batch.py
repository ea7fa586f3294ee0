"""A batch: many tasks, each a run of its own; what is left of one that was stopped, and what it has spent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Condition

from conductor_core.chat import WorkerSpec
from conductor_core.engine.cost_cap import longest_plan, longest_usd
from conductor_core.engine.ids import new_run_id
from conductor_core.engine.request import RunRequest
from conductor_core.events import BatchRow
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.model import Workflow

_TAKEN_UP = frozenset({"interrupted", "cancelled"})


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch.

    Attributes:
        id: names it in its batch, once.
        workflow: carried out as given; None: the Conductor writes one.
        line: where it stands in the file of tasks, from 1.
    """

    id: str
    task: str
    workflow: Workflow | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class BatchSpent:
    """What a batch has spent, what broke off counted at the most that it may have cost."""

    usd: float = 0.0
    tokens: int = 0


def request_of(task: BatchTask, place: BatchRow, each: RunRequest, earlier: Sequence[RunTrace]) -> RunRequest:
    """The run that carries out ``task``, or takes it up so that no finished step is paid again.

    Args:
        each: what all runs of the batch have in common.
        earlier: its runs in this batch so far, oldest first; none of them completed.
    """
    request = replace(each, task=task.task, workflow=task.workflow, batch=place, run_id=new_run_id())
    if not earlier:
        return request
    last, *before = reversed(earlier)
    taken_up = RunRequest.resume(last, *before, by=each.by)
    return replace(
        request, workflow=taken_up.workflow, reuse_from=last, before=tuple(before), resumed=last.status in _TAKEN_UP
    )


def spent_at_most(traces: Sequence[RunTrace], plan_max_tokens: int) -> BatchSpent:
    """What these runs cost. A call that broke off counts as the most that it may have: nobody says how far it was.

    Args:
        plan_max_tokens: those that a Conductor is allowed for a plan.
    """
    usd = sum(trace.known_usd - trace.broken_off_usd for trace in traces)
    for trace in traces:
        usd += sum(_unsaid_usd(trace, step) for step in trace.walk() if step.messages and step.status != "reused")
        usd += sum(_unsaid_plan_usd(trace, each, plan_max_tokens) for each in trace.root.rounds())
    return BatchSpent(usd, sum(trace.usage.total_tokens for trace in traces))


def _unsaid_usd(trace: RunTrace, step: StepTrace) -> float:
    """What the calls of a step that broke off may have cost beside what the record says."""
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
    """By how much a call of this worker may have cost more than ``said_usd``."""
    price = None if spec is None else spec.price
    if spec is None or price is None:
        return 0.0
    if max_tokens is not None:
        spec = spec.model_copy(update={"params": {**spec.params, "max_tokens": max_tokens}})
    return max(0.0, longest_usd(price, spec, step.messages) - (said_usd or 0.0))


def _unsaid_plan_usd(trace: RunTrace, round_: RoundTrace, plan_max_tokens: int) -> float:
    """The same of a plan that was never whole."""
    price = None if trace.conductor is None else trace.conductor.price
    if price is None or not round_.messages:
        return 0.0
    most = price.cost_usd(longest_plan(round_.messages, plan_max_tokens))
    broken_off = [each.cost_usd or 0.0 for each in round_.retries if each.usage.total_tokens and each.usage.estimated]
    broken_off += [0.0] if round_.status == "planning" else []
    return sum(max(0.0, most - said) for said in broken_off)


class Room:
    """Says when a further task may begin within a budget, so that those that are begun can also be ended.

    The cap bounds each call; this keeps the last of the money from going into first steps of many tasks. A task is
    expected to cost what those before it did on average; while nothing says what that is, one runs alone.

    Attributes:
        refused: why no further task is begun; None so far.
    """

    def __init__(self, max_usd: float, spent_usd: float, costs: Sequence[float]) -> None:
        """``costs``: of tasks of this batch that completed before."""
        self._max_usd, self._spent_usd, self._costs = max_usd, spent_usd, list(costs)
        self._running = 0
        self._changed = Condition()
        self._closed = False
        self.refused: str | None = None

    def begin(self) -> bool:
        """Blocks until a task may begin; False: none may any more. Each True is followed by ``end``."""
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
        """A task has ended. ``cost_usd``: what it took, also of a task that did not complete."""
        with self._changed:
            self._running -= 1
            self._spent_usd += cost_usd
            if completed:
                self._costs.append(cost_usd)
            self._changed.notify_all()

    def close(self) -> None:
        """No further task begins."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _expected(self) -> float:
        return sum(self._costs) / len(self._costs)

    def _fits(self) -> bool:
        if not self._costs:
            return self._running == 0
        return self._spent_usd + (self._running + 1) * self._expected() <= self._max_usd

"""Runs of a batch of tasks: the request of each task, the resume of a stopped batch, its cost and its budget."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition, Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.budgets import CostCap, longest_plan, longest_usd
from conductor_core.engine.request import asks_conductor, resume_of
from conductor_core.run.actor import Caller
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import BatchRow
from conductor_core.workflow.model import Workflow

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost


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


Work = TypeVar("Work")


class ManyRuns(ABC, Generic[Work]):
    """Carries out runs, several at once, until none is left, the budget is used or it is stopped.

    Attributes:
        cap: what all may spend together, earlier ones included; None: no limit.
    """

    def __init__(
        self,
        host: "EngineHost",
        caller: Caller,
        left: Iterable[Work],
        concurrency: int,
        *,
        max_usd: float | None,
        earlier: Sequence[RunTrace],
        plan_max_tokens: int,
    ) -> None:
        """``earlier``: the runs that count against the budget, too."""
        self.host, self._caller, self._left = host, caller, iter(left)
        self._concurrency, self._plan_max_tokens = concurrency, plan_max_tokens
        self.cap: CostCap | None = None
        self._room = Room(math.inf, 0.0, [0.0])
        if max_usd is not None:
            spent = spent_at_most(earlier, plan_max_tokens)
            self.cap = CostCap(spent, max_usd=max_usd)
            self._room = Room(max_usd, spent.usd, [run.cost_usd or 0.0 for run in earlier if run.status == "completed"])
        self._under_way: set[str] = set()
        self._stopped = False
        self._broken: Exception | None = None
        self._lock, self._ending = Lock(), Lock()

    @abstractmethod
    def request(self, work: Work) -> RunRequest: ...

    def wait(self, run_id: str) -> RunTrace:
        return self.host.wait(run_id)

    def on_end(self, work: Work, trace: RunTrace) -> None:
        """Is told of each run that ended, by one thread at a time."""

    @property
    def refusal(self) -> str | None:
        """Why the budget let no further run begin; None: it did not."""
        reached = None if self.cap is None else self.cap.reached
        return self._room.refused if reached is None else str(reached)

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._under_way)

    def run(self) -> None:
        """Blocks. Raises: what broke one of the runs; the others are cancelled then."""
        # Each run has a thread, which only waits and uses no processor.
        with ThreadPoolExecutor(self._concurrency, "runs") as threads:
            for each in [threads.submit(self._work) for _ in range(self._concurrency)]:
                each.result()
        if self._broken is not None:
            raise self._broken

    def stop(self) -> None:
        """Lets no further run begin and cancels those that go on. What is finished is kept. Any thread may call it."""
        with self._lock:
            self._stopped = True
            running = list(self._under_way)
        self._room.close()
        for run_id in running:
            self.host.cancel(run_id, self._caller)

    def _work(self) -> None:
        while self._room.begin():
            with self._lock:
                over = self._stopped or (self.cap is not None and self.cap.reached is not None)
                following = None if over else next(self._left, None)
            if following is None:
                self._room.close()
                return
            try:
                self._one(following)
            except Exception as error:  # noqa: BLE001  kept and raised in the end, whatever it is: the others must stop
                with self._lock:
                    self._broken = self._broken or error
                self.stop()
                return

    def _one(self, work: Work) -> None:
        run_id = self.host.start(self.request(work), self.cap)
        with self._lock:
            self._under_way.add(run_id)
            stopped = self._stopped
        if stopped:
            self.host.cancel(run_id, self._caller)
        try:
            trace = self.wait(run_id)
        finally:
            with self._lock:
                self._under_way.discard(run_id)
        spent_usd = 0.0 if self.cap is None else spent_at_most([trace], self._plan_max_tokens).usd
        self._room.end(spent_usd, completed=trace.status == "completed")
        with self._ending:
            self.on_end(work, trace)

"""The interface of an orchestrator: the task that it is given, and the attempt that it returns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from conductor_core.chat.messages import Conductor, WorkerSpec
from conductor_core.engine.pools import Pool
from conductor_core.grading.tasks import Task
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow

EngineRun = Callable[[RunRequest, Conductor | None, Pool], Awaitable[RunTrace]]
"""``engine.Engine.run``: carries out one run, durably."""


@dataclass(frozen=True, slots=True)
class GivenTask:
    """One task as an orchestrator gets it.

    Attributes:
        excluded: workers of the pool that must not be used.
        limits: limits of each run. An orchestrator sets its own ``max_steps`` and ``max_depth`` if its form needs it.
        seed: seeds the workers' answers and the orchestrator's draws.
    """

    task: Task
    pool: Pool
    limits: Limits
    seed: int
    excluded: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[WorkerSpec, ...]:
        """Returns the present workers in the pool's order."""
        return tuple(spec for spec in self.pool.specs if spec.name not in self.excluded)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    def request(
        self,
        workflow: Workflow | None = None,
        *,
        depth: int = 0,
        plan_only: bool = False,
        reuse_from: RunTrace | None = None,
        purpose: str = "evaluate",
    ) -> RunRequest:
        """Returns a request for a run of this task. A given workflow may exceed ``max_steps``."""
        steps = self.limits.max_steps if workflow is None else max(self.limits.max_steps, len(workflow.steps))
        return RunRequest(
            task=self.task.question,
            workflow=workflow,
            limits=self.limits.model_copy(update={"max_steps": steps, "max_depth": depth}),
            seed=self.seed,
            purpose=purpose,
            plan_only=plan_only,
            parent_run_id=None if reuse_from is None else reuse_from.run_id,
            excluded=self.excluded,
        )


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An orchestrator's attempt at a task.

    Attributes:
        trace: the run whose answer counts.
        also: further runs that the attempt needed; their cost counts too.
    """

    trace: RunTrace
    also: tuple[RunTrace, ...] = ()


class Orchestrator(Protocol):
    """One way to answer tasks.

    Attributes:
        name: as given to ``--orchestrators``, unique in an evaluation.
        whole_pool: whether all workers are present for it even if other orchestrators get a subset. It is true for an
            orchestrator that names one worker.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole_pool(self) -> bool: ...

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        """Answers one task. A failed run is an attempt too. Raises: StoreError, BadInput if it cannot be run."""
        ...

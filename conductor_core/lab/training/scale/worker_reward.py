"""The reward of a rollout whose workflow real workers carry out (arXiv 2512.04388, section 4).

The reward is 0 for a completion without a valid workflow, 0.5 for a wrong answer and 1 for a right one. Each valid
workflow is one run of our engine, and the task's grader grades its answer. Departures from the paper:

1. Identical steps of several rollouts share one answer (``workers.CachedPool``), and identical workflows share one run.
2. A failing worker does not count against a plan: the rollout waits and is carried out again. Only a fault that the
   plan causes (an answer that is too large, a request that a healthy worker refuses) counts as a wrong answer.

A failing pool stops the training after pauses with ``WorkerPoolFailed``; the cost cap stops it with ``CostCapReached``.
In both cases every call under way first ends and is kept, and so is every finished rollout.
"""

import asyncio
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conductor_core.chat.messages import INCOMPLETE, Conductor, ParentPlan
from conductor_core.engine.budgets import CostCap, CostCapReached
from conductor_core.engine.pools import Pool
from conductor_core.engine.recorder import NoLog
from conductor_core.engine.runner import Engine
from conductor_core.errors import InspectorError, StoreError, WorkerRefused, codes_of
from conductor_core.grading import grade
from conductor_core.grading.tasks import Graded, Task
from conductor_core.lab.evaluation.runner import Outages
from conductor_core.lab.training.scale.workers import AnswerCache, CachedPool, RolloutOutcome
from conductor_core.run.events import EventSink
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.health import check_health
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.parser import parse_completion, to_lists
from conductor_core.workflow.validation import validate

PARSED, RIGHT = 0.5, 1.0

_PLANS_OWN_FAULTS = frozenset({"WorkerOutputTooLarge", "LimitReached", "PlanRejected", "NothingToReturn"})
_STORE_ERRORS = frozenset({"StoreError", *(each.__name__ for each in StoreError.__subclasses__())})


class WorkerPoolFailed(InspectorError):
    """The workers do not answer, even after the pauses. Finished rollouts are kept."""


@dataclass(frozen=True)
class WorkerRollout:
    """A completion to be rewarded.

    Attributes:
        agents: the workers that its prompt offered, in the order of their ordinals.
        parent: set for an inner round; three empty lists return its last response.
        allow_recursion: whether its prompt offered the Conductor itself.
    """

    task: Task
    completion: str
    agents: tuple[str, ...]
    max_steps: int = 5
    parent: ParentPlan | None = None
    allow_recursion: bool = False


@dataclass(frozen=True)
class WorkerScore:
    """A rollout's reward and its reason. ``workflow`` is None if not valid; ``run_id`` is None if there was no run."""

    reward: float
    reason: str
    workflow: Workflow | None = None
    answer: str | None = None
    run_id: str | None = None

    @property
    def right(self) -> bool:
        return self.workflow is not None and self.reward > PARSED


@dataclass(frozen=True)
class Patience:
    """How long the training waits for a failing pool before it stops.

    Attributes:
        concurrency: runs at once. Each worker's own ``max_concurrency`` applies as well.
        pauses: number of waits, each followed by another pass over the rollouts without an outcome.
        pause_s: seconds of the first wait; each further one is twice as long.
    """

    concurrency: int = 32
    pauses: int = 4
    pause_s: float = 30.0


@dataclass
class _Job:
    """One distinct workflow for one task."""

    rollout: WorkerRollout
    workflow: Workflow
    digest: str
    outcome: RolloutOutcome | None = None
    failure: str = ""

    @property
    def recursive(self) -> bool:
        return any(step.agent == CONDUCTOR_AGENT for step in self.workflow.steps)


class WorkerReward:
    """Scores rollouts on an event loop of its own, in a thread of its own; ``score`` and ``close`` block.

    Args:
        sink: where the runs' events go: a store, so that each can be inspected, or ``NoLog``.
        conductor: answers the steps in which a plan names the Conductor itself.
        report: called with one line that says what the training waits for.
    """

    def __init__(
        self,
        pool: Pool,
        cache: AnswerCache,
        cap: CostCap,
        settings: Settings,
        *,
        sink: EventSink | None = None,
        conductor: Conductor | None = None,
        patience: Patience | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Starts the thread. Raises: BadInput if the cap cannot be kept, StoreError."""
        cap.check_workers(pool.specs)
        self.pool, self.cache, self.cap = pool, cache, cap
        self._settings = settings.model_copy(update={"max_seconds": None, "max_tokens": None, "max_usd": None})
        self._engine = Engine(sink or NoLog(), self._settings)
        self._calls = CachedPool(pool, cache, cap)
        self._conductor = conductor
        self._patience = patience or Patience()
        self._report = report
        self._outages = Outages()
        self._stop: InspectorError | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="worker reward", daemon=True)
        self._thread.start()

    def score(self, rollouts: Sequence[WorkerRollout]) -> list[WorkerScore]:
        """Returns rewards in the order of ``rollouts``.

        Raises: CostCapReached, WorkerPoolFailed, StoreError; BadInput for a task that cannot be graded.
        """
        future = asyncio.run_coroutine_threadsafe(self._score(rollouts), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what is under way, and closes the pool and the Conductor. The caller closes the cache."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        await self._calls.aclose()
        if self._conductor is not None:
            await self._conductor.aclose()

    async def _score(self, rollouts: Sequence[WorkerRollout]) -> list[WorkerScore]:
        jobs: dict[str, _Job] = {}
        scored = [await self._without_run(rollout, jobs) for rollout in rollouts]
        await self._run_all(list(jobs.values()))
        return [_scored(jobs[each]) if isinstance(each, str) else each for each in scored]

    async def _without_run(self, rollout: WorkerRollout, jobs: dict[str, _Job]) -> WorkerScore | str:
        """Returns the score of a rollout that needs no worker, or the digest of the job that will give it."""
        checked = validate(
            parse_completion(rollout.completion),
            rollout.agents,
            max_steps=rollout.max_steps,
            allow_recursion=rollout.allow_recursion and self._conductor is not None,
            allow_stop=rollout.parent is not None,
        )
        if checked.workflow is None:
            return WorkerScore(0.0, checked.faults[0].message)
        if not checked.workflow.steps:
            last = "" if rollout.parent is None else rollout.parent.last_response
            graded = await asyncio.to_thread(grade, rollout.task, last)
            reward = RIGHT if graded.right else PARSED
            return WorkerScore(reward, f"Stopped. {graded.reason}", checked.workflow, last)
        digest = self._digest(rollout, checked.workflow)
        jobs.setdefault(digest, _Job(rollout, checked.workflow, digest))
        return digest

    def _digest(self, rollout: WorkerRollout, workflow: Workflow) -> str:
        """Returns the digest of what determines the reward: task, grading, workflow and workers."""
        task, specs = rollout.task, {name: self.pool.workers[name].spec for name in rollout.agents}
        used = sorted({step.agent for step in workflow.steps} - {CONDUCTOR_AGENT})
        content = {
            "task": [task.task_id, task.question, task.reference, task.grader, dict(task.extra)],
            "workflow": workflow.model_dump(mode="json"),
            "workers": [specs[name].model_dump(mode="json", include={"name", "provider", "model", "base_url", "params"})
                        for name in used],
            "seed": self.pool.seed if self.pool.simulated else None,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    async def _run_all(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            job.outcome = None if job.recursive else self.cache.outcome(job.digest)
        patience = self._patience
        for number in range(patience.pauses + 1):
            left = [job for job in jobs if job.outcome is None]
            if number and left:
                wait_s = patience.pause_s * 2 ** (number - 1)
                self._report(
                    f"{len(left)} of {len(jobs)} workflows wait for a worker ({_first_failure(left)}); again in "
                    f"{wait_s:g} s, pause {number} of {patience.pauses}"
                )
                await asyncio.sleep(wait_s)
            await self._one_pass(left)
        left = [job for job in jobs if job.outcome is None]
        if left:
            raise self._failed(_first_failure(left), len(jobs) - len(left), len(jobs))

    async def _one_pass(self, jobs: Sequence[_Job]) -> None:
        """Carries out all jobs that it can. An error that stops the training is raised after all calls have ended."""
        self._outages = Outages()
        self._stop = None
        self._calls.gone.clear()
        queue = deque(jobs)

        async def take() -> None:
            while queue and self._stop is None:
                await self._run(queue.popleft())

        takers = [asyncio.create_task(take()) for _ in range(min(self._patience.concurrency, len(jobs)))]
        try:
            await asyncio.gather(*takers)
        except InspectorError as error:
            self._stop = self._stop or error
        finally:
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)
        await self._calls.drain()
        if isinstance(self._stop, WorkerPoolFailed):
            done = sum(job.outcome is not None for job in jobs)
            raise self._failed(str(self._stop), done, len(jobs))
        if self._stop is not None:
            raise self._stop

    async def _run(self, job: _Job) -> None:
        """Carries out one job. Leaves ``job.outcome`` None if a worker failed. Raises: StoreError, BadInput."""
        down = next((step.agent for step in job.workflow.steps if self._outages.down(step.agent)), None)
        if down is not None:
            job.failure = job.failure or f"worker {down} is failing"
            return
        request = RunRequest(
            task=job.rollout.task.question,
            workflow=job.workflow,
            limits=Limits(max_steps=job.rollout.max_steps, max_depth=self._settings.max_depth if job.recursive else 0),
            seed=self.pool.seed,
            purpose="training",
            on_incomplete="allow",  # the grader gets the worker's own answer as it came
        )
        conductor = self._conductor if job.recursive else None
        trace = await self._engine.run(request, conductor, self._calls.for_run(job.rollout.agents))
        reason = "" if trace.status == "completed" or trace.status in INCOMPLETE else await self._why_wrong(job, trace)
        self._outages.observe(job.digest, [trace], blamed=reason is None)
        if reason is None:
            return
        graded = Graded(0.0, reason) if reason else await asyncio.to_thread(grade, job.rollout.task, trace.answer or "")
        job.outcome = RolloutOutcome(
            task_id=job.rollout.task.task_id,
            run_id=trace.run_id,
            plan=to_lists(job.workflow, tuple(self.pool.workers)),
            answer=trace.answer,
            score=1.0 if graded.right else 0.0,
            reason=graded.reason,
        )
        if not job.recursive:
            # The outcome of a recursion depends on the current weights, so it is not kept.
            self.cache.keep_outcome(job.digest, job.outcome)

    async def _why_wrong(self, job: _Job, trace: RunTrace) -> str | None:
        """Returns why a failed run counts as a wrong answer; None if the plan did not cause the failure.

        Raises: StoreError.
        """
        code, message = trace.error_code or "", trace.error or "no reason is known"
        if code in _STORE_ERRORS:
            raise StoreError(message)
        if code in _PLANS_OWN_FAULTS:
            return message
        if code == CostCapReached.__name__ and self.cap.reached is not None:
            self._stop = self._stop or self.cap.reached
            return None
        failed = [step for step in trace.walk() if step.status == "failed" and step.round is None]
        refused = [step for step in failed if step.error_code in codes_of(WorkerRefused)]
        if code in codes_of(WorkerRefused) and refused:
            return await self._why_refused(job, refused)
        job.failure = message
        return None

    async def _why_refused(self, job: _Job, steps: Sequence[StepTrace]) -> str | None:
        """Returns why a healthy worker refused; None otherwise. Waiting does not restore a key, credit or a model."""
        message = steps[0].error or "refused"
        why = next((str(self._calls.gone[step.agent]) for step in steps if step.agent in self._calls.gone), None)
        if why is None:
            health = await check_health(self.pool.workers[steps[0].agent])
            if health.ok:
                return message
            why = health.detail
        job.failure = message
        self._stop = self._stop or WorkerPoolFailed(why)
        return None

    def _failed(self, why: str, done: int, wanted: int) -> WorkerPoolFailed:
        return WorkerPoolFailed(
            f"the worker pool is failing: {why}. {done} of {wanted} workflows of this iteration are finished and kept "
            f"in {self.cache.path}: once the workers answer again, start the same command with --resume"
        )


def _first_failure(jobs: Sequence[_Job]) -> str:
    return next((job.failure for job in jobs if job.failure), "a worker is failing")


def _scored(job: _Job) -> WorkerScore:
    outcome = job.outcome
    if outcome is None:
        raise RuntimeError(f"the workflow of task {job.rollout.task.task_id} was not carried out")
    reward = RIGHT if outcome.score == 1.0 else PARSED
    return WorkerScore(reward, outcome.reason, job.workflow, outcome.answer, outcome.run_id)

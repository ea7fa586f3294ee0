"""The reward of a rollout whose workflow real workers carry out (arXiv 2512.04388, section 4).

The reward is 0 for a completion without a valid workflow, 0.5 for a wrong answer and 1 for a right one. Each valid
workflow is one run of our engine, and the task's grader grades its answer. Departures from the paper:

1. Identical steps of several rollouts share one answer, and identical workflows share one run. Identical steps of one
   workflow are independent attempts (best of n): the first gets sample 0 of the question, the second sample 1 ...
2. A failing worker does not count against a plan: the rollout waits and is carried out again. Only a fault that the
   plan causes (an answer that is too large, a request that a healthy worker refuses) counts as a wrong answer.

A failing pool stops the training after pauses with ``WorkerPoolFailed``; the cost cap stops it with ``CostCapReached``.
In both cases every call under way first ends and is kept, and so is every finished rollout.

``AnswerCache`` keeps what a training has paid for in one SQLite file beside the checkpoints. An answer is durable
before any step reads it, so a training that was killed or stopped continues where it was and pays for nothing twice.
One process at a time holds the file. Its exclusive lock also avoids a bug of SQLite 3.7.0 to 3.51.2 that occurs when
two connections write to one WAL: https://www.sqlite.org/wal.html#walresetbug.
"""

import asyncio
import hashlib
import itertools
import json
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from conductor_core import errors
from conductor_core.chat.messages import (
    INCOMPLETE,
    NO_TERMS,
    CallTerms,
    Chunk,
    Conductor,
    Finished,
    Message,
    PlanRequest,
    ReasoningDelta,
    TextDelta,
    TextWasReasoning,
    Usage,
    Worker,
)
from conductor_core.chat.usage import estimate_input_tokens, tokens_of
from conductor_core.conductors.prompts import full_prompt
from conductor_core.engine.budgets import CostCap, CostCapReached
from conductor_core.engine.pools import Pool
from conductor_core.engine.prompts import worker_identity
from conductor_core.engine.recorder import NoLog, closing
from conductor_core.engine.runner import Engine
from conductor_core.engine.step import cost_of
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Graded, Task
from conductor_core.lab.evaluation.runner import Outages
from conductor_core.lab.training.config import WorkersConfig
from conductor_core.run.events import EventSink
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.text import whole_characters
from conductor_core.workers.discovery import check_health
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.parser import parse_completion, to_lists
from conductor_core.workflow.validation import validate

PARSED, RIGHT = 0.5, 1.0

# What was paid for.

VERSION = 3
_SCHEMA = """
CREATE TABLE answer (
    identity TEXT NOT NULL,          -- engine.prompts.worker_identity
    sample INTEGER NOT NULL,         -- which of several independent answers to the same question within one workflow
    output TEXT NOT NULL,
    finished TEXT NOT NULL,          -- the stream's last chunk: ending, usage, cost and model
    PRIMARY KEY (identity, sample)
) WITHOUT ROWID;
CREATE TABLE spending (
    id INTEGER PRIMARY KEY,
    worker TEXT NOT NULL,
    answered INTEGER NOT NULL,       -- 0: the call is under way or broke off, and its figures are the most it may cost
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL
);
CREATE TABLE outcome (
    digest TEXT PRIMARY KEY,         -- task, workflow, workers, grader: all that determines a reward
    task_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    plan TEXT NOT NULL,              -- the three lists, numbered by the whole pool
    answer TEXT,
    score REAL NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class CachedAnswer:
    """A worker's whole answer, with what the provider reported about it."""

    output: str
    finished: Finished


@dataclass(frozen=True)
class Spent:
    """Totals over the whole training: calls that were answered, calls that broke off, tokens and USD of both.

    A call that broke off, or was under way when its process ended, counts with the most that it may have cost.
    """

    answered: int = 0
    broken_off: int = 0
    tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True)
class RolloutOutcome:
    """The outcome of one workflow for one task. ``answer`` is None if the run gave none. ``score`` is 1 if right."""

    task_id: str
    run_id: str
    plan: str
    answer: str | None
    score: float
    reason: str


class AnswerCache:
    """The file. Each write is durable when it returns. All methods raise StoreError."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises: StoreLocked while another training uses it; StoreTooNew, StoreDamaged, StoreError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.StoreReadOnly(f"{path.parent} cannot be made: {error.strerror or error}") from error
        with self._named():
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self._db.execute(f"PRAGMA {pragma}")
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise errors.StoreTooNew(
                    f"{self.path} was written by another version of this program: continue with that one"
                )
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")

    def answer(self, identity: str, sample: int) -> CachedAnswer | None:
        rows = self._rows("SELECT output, finished FROM answer WHERE identity = ? AND sample = ?", identity, sample)
        return CachedAnswer(rows[0][0], Finished.model_validate(json.loads(rows[0][1]))) if rows else None

    def begin_call(self, worker: str, most: Usage, most_usd: float) -> int:
        """Counts a call at its highest cost before it is sent, so that a kill does not hide it. Returns its number."""
        (added,) = self._rows(
            "INSERT INTO spending (worker, answered, input_tokens, output_tokens, cost_usd) VALUES (?, 0, ?, ?, ?)"
            " RETURNING id",
            worker,
            most.input_tokens,
            most.output_tokens,
            most_usd,
        )
        return int(added[0])

    def drop_call(self, number: int) -> None:
        """Forgets a call that costs nothing."""
        self._rows("DELETE FROM spending WHERE id = ?", number)

    def keep_answer(
        self, identity: str, sample: int, number: int, answer: CachedAnswer, usage: Usage, paid_usd: float
    ) -> None:
        """Keeps the answer of call ``number`` and its price in one transaction."""
        finished = json.dumps(answer.finished.model_dump(mode="json", exclude_defaults=True))
        with self._named(), self._transaction():
            self._db.execute("INSERT INTO answer VALUES (?, ?, ?, ?)", (identity, sample, answer.output, finished))
            self._db.execute(
                "UPDATE spending SET answered = 1, input_tokens = ?, output_tokens = ?, cost_usd = ? WHERE id = ?",
                (usage.input_tokens, usage.output_tokens, paid_usd, number),
            )

    def spent(self) -> Spent:
        (totals,) = self._rows(
            "SELECT coalesce(sum(answered), 0), coalesce(sum(1 - answered), 0),"
            " coalesce(sum(input_tokens + output_tokens), 0), coalesce(sum(cost_usd), 0.0) FROM spending"
        )
        return Spent(*totals)

    def outcome(self, digest: str) -> RolloutOutcome | None:
        rows = self._rows("SELECT * FROM outcome WHERE digest = ?", digest)
        return RolloutOutcome(*rows[0][1:]) if rows else None

    def outcomes(self, task_id: str) -> list[RolloutOutcome]:
        """Returns all outcomes of a task in a fixed order, which is not the order of time."""
        rows = self._rows("SELECT * FROM outcome WHERE task_id = ? ORDER BY digest", task_id)
        return [RolloutOutcome(*row[1:]) for row in rows]

    def keep_outcome(self, digest: str, outcome: RolloutOutcome) -> None:
        self._rows("INSERT OR REPLACE INTO outcome VALUES (?, ?, ?, ?, ?, ?, ?)", digest, *astuple(outcome))

    def close(self) -> None:
        self._db.close()

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """Executes one statement, which is durable at once, and returns its rows."""
        with self._named():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, which say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise _store_error(self.path, error) from error


def _store_error(path: Path, error: sqlite3.Error) -> errors.StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return errors.StoreLocked(
            f"{path} is in use by another training; wait for it, or give this one a folder of its own"
        )
    if name.startswith("SQLITE_FULL"):
        return errors.StoreFull(f"no space left for {path}; free some and start again: what is finished is kept")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return errors.StoreReadOnly(f"{path} cannot be written: {error}; choose another folder or correct its rights")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return errors.StoreDamaged(
            f"{path} is damaged or not a cache of answers: {error}; move it away to start afresh"
        )
    return errors.StoreError(f"{path}: {error}")


# Workers behind the cache and the cap.

_NO_LIMIT_S = 7 * 24 * 3600.0
"""The engine's time limit for a step. Calls keep the pool file's own limit, and a step may wait for the cap."""

_Key = tuple[str, int]


class CachedPool:
    """A pool behind the cache and the cap: each question is paid for once, however many rollouts ask it.

    It belongs to one event loop. Two rollouts that ask the same question at the same time share one call.

    Attributes:
        gone: why a worker refuses every request, by the worker's name.
    """

    def __init__(self, pool: Pool, cache: AnswerCache, cap: CostCap) -> None:
        self.pool, self._cache, self._cap = pool, cache, cap
        self._under_way: dict[_Key, asyncio.Task[CachedAnswer]] = {}
        self.gone: dict[str, errors.WorkerRefused] = {}

    def for_run(self, names: Sequence[str]) -> Pool:
        """Returns the workers ``names`` for one run, in that order. Raises: KeyError."""
        taken: set[_Key] = set()
        workers = {name: _CachedWorker(self, self.pool.workers[name], taken) for name in names}
        return Pool(name=self.pool.name, workers=workers, seed=self.pool.seed)

    async def drain(self) -> None:
        """Waits until every call under way has ended and is kept, because a call that was sent is charged anyway."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def aclose(self) -> None:
        calls = list(self._under_way.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.pool.aclose()

    async def ask(self, worker: Worker, messages: Sequence[Message], key: _Key) -> CachedAnswer:
        """Returns the answer from the file, from a call that is under way, or from a new call.

        A call goes on even if its caller is cancelled. Raises: WorkerError, CostCapReached, StoreError.
        """
        kept = self._cache.answer(*key)
        if kept is not None:
            return kept
        call = self._under_way.get(key)
        if call is None:
            call = self._under_way[key] = asyncio.create_task(self._pay(worker, messages, key))
            call.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(call)

    def _ended(self, key: _Key, call: "asyncio.Task[CachedAnswer]") -> None:
        del self._under_way[key]
        if not call.cancelled():
            call.exception()  # Marks the exception as seen, even if every caller has been cancelled.

    async def _pay(self, worker: Worker, messages: Sequence[Message], key: _Key) -> CachedAnswer:
        spec = worker.spec
        async with self._cap.call(spec, messages) as call:
            number = self._cache.begin_call(spec.name, call.most, call.most_usd)
            text: list[str] = []
            reasoning: list[str] = []
            try:
                last = await _read(worker, messages, text, reasoning)
            except (Exception, asyncio.CancelledError) as error:
                began = (
                    text
                    or reasoning
                    or isinstance(error, errors.WorkerTimedOut | errors.WorkerStreamCut | asyncio.CancelledError)
                )
                if began:
                    # Counted with its highest cost, as in the file already: nobody reports how far its thinking was.
                    self._cap.add(call.most, call.most_usd)
                else:
                    self._cache.drop_call(number)
                if isinstance(error, errors.WorkerRefused) and not error.of_request:
                    self.gone[spec.name] = error
                raise
            usage = last.usage or Usage(
                input_tokens=estimate_input_tokens(tuple(messages)),
                output_tokens=tokens_of(sum(map(len, (*text, *reasoning)))),
                estimated=True,
            )
            cost_usd = last.cost_usd if last.cost_usd is not None else cost_of(spec, usage)
            finished = Finished(finish_reason=last.finish_reason, usage=usage, cost_usd=cost_usd, model=last.model)
            answer = CachedAnswer(whole_characters("".join(text)), finished)
            paid_usd = call.cost_usd(usage, last.cost_usd)
            self._cache.keep_answer(*key, number, answer, usage, paid_usd)
            self._cap.add(usage, paid_usd)
            return answer


async def _read(worker: Worker, messages: Sequence[Message], text: list[str], reasoning: list[str]) -> Finished:
    """Reads one call's stream into ``text`` and ``reasoning``, within the worker's own time limit.

    Returns its last chunk. Raises: WorkerError.
    """
    spec = worker.spec
    try:
        async with asyncio.timeout(spec.timeout_s) as limit, closing(worker.answer(messages)) as stream:
            async for chunk in stream:
                if isinstance(chunk, Finished):
                    return chunk
                if isinstance(chunk, TextWasReasoning):
                    reasoning.extend(text)
                    text.clear()
                elif chunk.text:
                    (reasoning if isinstance(chunk, ReasoningDelta) else text).append(chunk.text)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise errors.WorkerTimedOut(
            f"worker {spec.name} gave no complete answer within {spec.timeout_s:g} s"
        ) from error
    raise errors.WorkerStreamCut(f"the answer of worker {spec.name} was cut: its stream ended without a finish_reason")


class _CachedWorker:
    """One worker, for one run.

    The trace of a run shows the usage and cost of its answers at the time when they were given. The cache's totals
    show what the training paid. ``taken``: the samples of each question that this run already has.
    """

    def __init__(self, calls: CachedPool, worker: Worker, taken: set[_Key]) -> None:
        self._calls, self._worker, self._taken = calls, worker, taken
        self.spec = worker.spec.model_copy(update={"timeout_s": _NO_LIMIT_S, "fallback": None})

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncIterator[Chunk]:
        identity = worker_identity(self._worker.spec, messages, self._calls.pool.seed)
        key = next((identity, n) for n in itertools.count() if (identity, n) not in self._taken)
        self._taken.add(key)
        try:
            answer = await self._calls.ask(self._worker, messages, key)
        except BaseException:
            self._taken.discard(key)
            raise
        yield TextDelta(text=answer.output)
        yield answer.finished

    async def aclose(self) -> None:
        """Does nothing, because the worker itself serves other runs."""


# The reward.

_PLANS_OWN_FAULTS = frozenset({"WorkerOutputTooLarge", "LimitReached", "PlanRejected", "NothingToReturn"})
_STORE_ERRORS = frozenset({"StoreError", *(each.__name__ for each in errors.StoreError.__subclasses__())})


class WorkerPoolFailed(errors.InspectorError):
    """The workers do not answer, even after the pauses. Finished rollouts are kept."""


@dataclass(frozen=True)
class PromptedTask:
    """One prompt: the request, and the task that it is about.

    A request with a ``parent`` is an inner round, in which three empty lists return the parent's last response.
    """

    request: PlanRequest
    task: Task

    @property
    def messages(self) -> tuple[Message, ...]:
        return full_prompt(self.request)

    @property
    def agents(self) -> tuple[str, ...]:
        """Returns the workers that the prompt offers, in the order of their ordinals."""
        return tuple(spec.name for spec in self.request.agents)


Rollout = tuple[PromptedTask, str]
"""A prompt and a completion of it."""


@dataclass(frozen=True)
class WorkerScore:
    """A rollout's reward and its reason. ``workflow`` is None if it holds no valid one."""

    reward: float
    reason: str
    workflow: Workflow | None = None

    @property
    def right(self) -> bool:
        return self.workflow is not None and self.reward > PARSED


@dataclass
class _Job:
    asked: PromptedTask
    workflow: Workflow
    digest: str
    outcome: RolloutOutcome | None = None
    failure: str = ""

    @property
    def recursive(self) -> bool:
        return any(step.agent == CONDUCTOR_AGENT for step in self.workflow.steps)


class WorkerReward:
    """Scores rollouts on an event loop of its own; ``score`` and ``close`` block.

    Args:
        config: how many runs there are at once, and how long the training waits for a failing pool before it stops.
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
        config: WorkersConfig,
        *,
        sink: EventSink | None = None,
        conductor: Conductor | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Raises: BadInput if the cap cannot be kept."""
        cap.check_workers(pool.specs)
        self.pool, self.cache, self.cap = pool, cache, cap
        self._settings = settings.model_copy(update={"max_seconds": None, "max_tokens": None, "max_usd": None})
        self._engine = Engine(sink or NoLog(), self._settings)
        self._calls = CachedPool(pool, cache, cap)
        self._config, self._conductor, self._report = config, conductor, report
        self._outages = Outages()
        self._stop: errors.InspectorError | None = None
        self._runner = asyncio.Runner()

    def score(self, rollouts: Sequence[Rollout]) -> list[WorkerScore]:
        """Returns rewards in the order of ``rollouts``.

        Raises: CostCapReached, WorkerPoolFailed, StoreError; BadInput for a task that cannot be graded.
        """
        return self._runner.run(self._score(rollouts))

    def close(self) -> None:
        """Cancels what is under way, and closes the pool and the Conductor. The caller closes the cache."""
        with self._runner as runner:
            runner.run(self._calls.aclose())
            if self._conductor is not None:
                runner.run(self._conductor.aclose())

    async def _score(self, rollouts: Sequence[Rollout]) -> list[WorkerScore]:
        jobs: dict[str, _Job] = {}
        scored = [await self._without_run(asked, completion, jobs) for asked, completion in rollouts]
        await self._run_all(list(jobs.values()))
        return [_scored(jobs[each]) if isinstance(each, str) else each for each in scored]

    async def _without_run(self, asked: PromptedTask, completion: str, jobs: dict[str, _Job]) -> WorkerScore | str:
        """Returns the score of a rollout that needs no worker, or the digest of the job that will give it."""
        request = asked.request
        checked = validate(
            parse_completion(completion),
            asked.agents,
            max_steps=request.max_steps,
            allow_recursion=request.allow_recursion and self._conductor is not None,
            allow_stop=request.parent is not None,
        )
        if checked.workflow is None:
            return WorkerScore(0.0, checked.faults[0].message)
        if not checked.workflow.steps:
            last = "" if request.parent is None else request.parent.last_response
            graded = await asyncio.to_thread(grade, asked.task, last)
            return WorkerScore(RIGHT if graded.right else PARSED, f"Stopped. {graded.reason}", checked.workflow)
        digest = self._digest(asked.task, checked.workflow)
        jobs.setdefault(digest, _Job(asked, checked.workflow, digest))
        return digest

    def _digest(self, task: Task, workflow: Workflow) -> str:
        """Returns the digest of what determines the reward: task, grading, workflow and workers."""
        used = [self.pool.workers[name].spec for name in sorted({step.agent for step in workflow.steps})
                if name != CONDUCTOR_AGENT]  # fmt: skip
        content = {
            "task": [task.task_id, task.question, task.reference, task.grader, dict(task.extra)],
            "workflow": workflow.model_dump(mode="json"),
            "workers": [
                spec.model_dump(mode="json", include={"name", "provider", "model", "base_url", "params"})
                for spec in used
            ],
            "seed": self.pool.seed if self.pool.simulated else None,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    async def _run_all(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            job.outcome = None if job.recursive else self.cache.outcome(job.digest)
        pauses = self._config.pauses
        for number in range(pauses + 1):
            left = [job for job in jobs if job.outcome is None]
            if number and left:
                wait_s = self._config.pause_s * 2 ** (number - 1)
                self._report(
                    f"{len(left)} of {len(jobs)} workflows wait for a worker ({_first_failure(left)}); again in "
                    f"{wait_s:g} s, pause {number} of {pauses}"
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

        takers = [asyncio.create_task(take()) for _ in range(min(self._config.concurrency, len(jobs)))]
        try:
            await asyncio.gather(*takers)
        except errors.InspectorError as error:
            self._stop = self._stop or error
        finally:
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)
        await self._calls.drain()
        if isinstance(self._stop, WorkerPoolFailed):
            raise self._failed(str(self._stop), sum(job.outcome is not None for job in jobs), len(jobs))
        if self._stop is not None:
            raise self._stop

    async def _run(self, job: _Job) -> None:
        """Carries out one job. Leaves ``job.outcome`` None if a worker failed. Raises: StoreError, BadInput."""
        down = next((step.agent for step in job.workflow.steps if self._outages.down(step.agent)), None)
        if down is not None:
            job.failure = job.failure or f"worker {down} is failing"
            return
        task = job.asked.task
        request = RunRequest(
            task=task.question,
            workflow=job.workflow,
            limits=Limits(
                max_steps=job.asked.request.max_steps, max_depth=self._settings.max_depth if job.recursive else 0
            ),
            seed=self.pool.seed,
            purpose="training",
            on_incomplete="allow",  # the grader gets the worker's own answer as it came
        )
        conductor = self._conductor if job.recursive else None
        trace = await self._engine.run(request, conductor, self._calls.for_run(job.asked.agents))
        reason = "" if trace.status == "completed" or trace.status in INCOMPLETE else await self._why_wrong(job, trace)
        self._outages.observe(job.digest, [trace], blamed=reason is None)
        if reason is None:
            return
        graded = Graded(0.0, reason) if reason else await asyncio.to_thread(grade, task, trace.answer or "")
        job.outcome = RolloutOutcome(
            task_id=task.task_id,
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
            raise errors.StoreError(message)
        if code in _PLANS_OWN_FAULTS:
            return message
        if code == CostCapReached.__name__ and self.cap.reached is not None:
            self._stop = self._stop or self.cap.reached
            return None
        failed = [step for step in trace.walk() if step.status == "failed" and step.round is None]
        refused = [step for step in failed if step.error_code in errors.codes_of(errors.WorkerRefused)]
        if code in errors.codes_of(errors.WorkerRefused) and refused:
            return await self._why_refused(job, refused)
        job.failure = message
        return None

    async def _why_refused(self, job: _Job, steps: Sequence[StepTrace]) -> str | None:
        """Returns why a healthy worker refused; None otherwise. Waiting does not restore a key, credit or a model."""
        why = next((str(self._calls.gone[step.agent]) for step in steps if step.agent in self._calls.gone), None)
        if why is None:
            health = await check_health(self.pool.workers[steps[0].agent])
            if health.ok:
                return steps[0].error or "refused"
            why = health.detail
        job.failure = steps[0].error or "refused"
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
    if job.outcome is None:
        raise RuntimeError(f"the workflow of task {job.asked.task.task_id} was not carried out")
    return WorkerScore(RIGHT if job.outcome.score == 1.0 else PARSED, job.outcome.reason, job.workflow)

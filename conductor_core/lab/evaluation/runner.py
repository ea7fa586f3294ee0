"""Puts every task to every orchestrator with bounded concurrency, keeps every outcome, and resumes a stopped run.

A failure of a worker (a server that is down, limits or fails, a refused key) gives no outcome, for no plan has caused
it. Runs that gave no outcome, because they were stopped, killed, or failed at a worker, still count by their cost.
"""

import asyncio
import errno
import hashlib
import itertools
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from conductor_core.chat.messages import INCOMPLETE, Conductor, ConductorInfo, Message, WorkerSpec, sum_of_costs
from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.engine.pools import Pool
from conductor_core.engine.request import ReadTrace
from conductor_core.errors import (
    BadInput,
    ConductorUnavailable,
    UnknownRun,
    WorkerError,
    WorkerOutputTooLarge,
    codes_of,
)
from conductor_core.files import expand_path
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task
from conductor_core.inference.gguf_file import file_sha256
from conductor_core.inference.source import is_gguf, own_folder
from conductor_core.lab.evaluation.orchestrators import EngineRun, GivenTask, Orchestrator, TaskAttempt
from conductor_core.lab.records import append_lines, hold, weights_sha256, write_whole
from conductor_core.lab.records import evaluation as records
from conductor_core.rehearsal import RehearsalWorker
from conductor_core.run.costs import with_calls_that_are_on
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.settings import TINY
from conductor_core.workflow.model import CONDUCTOR_AGENT

# Digests of what an evaluation is made with, so that it is not continued with anything else.

_TASKS_PROBED = 20


def _sha256(rows: Iterable[object], *, sort_keys: bool = False) -> str:
    return hashlib.sha256(b"".join(json.dumps(row, sort_keys=sort_keys).encode() for row in rows)).hexdigest()


def tasks_digest(tasks: Iterable[Task]) -> str:
    return _sha256([task.task_id, task.question, task.reference] for task in tasks)


def grading_digest(tasks: Iterable[Task]) -> str:
    """Returns the digest of the graders and of what they grade by (choices, tests, tolerances), in order."""
    return _sha256(([task.grader, dict(task.extra)] for task in tasks), sort_keys=True)


def pool_digest(specs: Sequence[WorkerSpec]) -> str:
    return _sha256([[spec.model_dump(mode="json") for spec in specs]])


def simulated_digest(pool: Pool, tasks: Sequence[Task]) -> str | None:
    """Returns the digest of simulated workers' answers to the first tasks: they change with the program.

    None for a pool without any.
    """
    answers = []
    check = Message(role="user", content="Check the answer above for mistakes.")
    for worker in pool.workers.values():
        if isinstance(worker, RehearsalWorker):
            for task in tasks[:_TASKS_PROBED]:
                asked = Message(role="user", content=task.question)
                answer = Message(role="assistant", content=worker.respond([asked]))
                answers.append([answer.content, worker.respond([asked, answer, check])])
    return _sha256(answers) if answers else None


def model_digest(ref: str, models: Path) -> str | None:
    """Returns the digest of a Conductor's weights, of a GGUF file with an adapter both; None for a server's.

    Args:
        models: the folder of models that their names find.

    Raises: OSError.
    """
    if is_gguf(ref.partition("#")[0]):
        return "+".join(file_sha256(expand_path(part)) for part in ref.split("#", 1))
    folder = TINY_FOLDER if ref == TINY else own_folder(ref, models)
    if "://" in ref or folder is None:
        return None
    return weights_sha256(folder)


_ABSENT = "unknown_agent"
"""Code of the fault of a plan that names an absent worker (``validation``)."""


_CALLED = frozenset({"completed", "failed"}) | INCOMPLETE


def outcome(name: str, asked: GivenTask, attempt: TaskAttempt, score: float, *, subset: bool) -> records.Outcome:
    """Returns the row of one attempt.

    Args:
        subset: whether only a part of the pool was present.
    """
    traces = (attempt.trace, *attempt.also)
    rounds = [round_ for trace in traces for round_ in trace.root.rounds()]
    plan_tokens = sum(round_.usage.total_tokens for round_ in rounds)
    own = [round_ for round_ in attempt.trace.root.rounds() if round_.workflow is not None]
    return records.Outcome(
        orchestrator=name,
        task_id=asked.task.task_id,
        family=asked.task.family,
        difficulty=asked.task.difficulty,
        run_id=attempt.trace.run_id,
        score=score,
        tokens=sum(trace.usage.total_tokens for trace in traces) - plan_tokens,
        conductor_tokens=plan_tokens,
        cost_usd=sum_of_costs(trace.cost_usd for trace in traces),
        known_usd=sum(trace.known_usd for trace in traces),
        duration_ms=sum(trace.duration_ms or 0.0 for trace in traces),
        steps=sum(_calls(trace) for trace in traces),
        rounds=sum(round_.status == "planned" for round_ in own),
        stops=sum(round_.status == "stopped" for round_ in own),
        topology=attempt.trace.root.topology,
        present=asked.agents if subset else (),
        rejected_plans=sum(len(round_.rejected) for round_ in rounds),
        absent_named=sum(
            any(fault.code == _ABSENT for fault in plan.faults) for round_ in rounds for plan in round_.rejected
        ),
        fault=_fault(attempt.trace),
        also=tuple(trace.run_id for trace in attempt.also),
    )


def error_code(done: records.Outcome) -> str | None:
    """Returns the code of the error that left a task without an answer, or None."""
    return None if done.fault is None else done.fault.partition(":")[0]


def _calls(trace: RunTrace) -> int:
    """Counts the calls to workers that were made and ended. A recursion itself is not such a call."""
    return sum(step.agent != CONDUCTOR_AGENT and step.status in _CALLED for step in trace.walk())


def _fault(trace: RunTrace) -> str | None:
    if trace.answer is not None:
        return None
    return f"{trace.error_code or trace.status}: {trace.error or 'no answer'}"


# Failures of workers.

FAILURES_IN_A_ROW = 3
"""A worker that fails so many different pieces of work, with no answer in between, is asked nothing more."""

_AT_A_WORKER = codes_of(WorkerError) - codes_of(WorkerOutputTooLarge) - {WorkerError.__name__}


def failed_at_a_worker(done: RunTrace | records.Outcome) -> bool:
    """Says whether a run has no answer because a worker failed. An answer that is too large is not such a failure."""
    return (done.error_code if isinstance(done, RunTrace) else error_code(done)) in _AT_A_WORKER


class Outages:
    """Tracks which workers fail one piece of work after another: a task of an evaluation, a workflow of a training."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, set[str]] = defaultdict(set)

    def down(self, agent: str) -> bool:
        return len(self._in_a_row[agent]) >= FAILURES_IN_A_ROW

    def observe(self, work: str, traces: Iterable[RunTrace], *, blamed: bool = True) -> str | None:
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


log = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
"""Errors with which a grader fails on this machine, whatever the answer is."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What the whole evaluation may spend, with all resumed parts. None means no limit."""

    max_usd: float | None = None
    max_tokens: int | None = None

    def check(self, pool: Pool, conductors: Iterable[ConductorInfo] = ()) -> None:
        """Checks prices. Raises: BadInput if USD are capped and the price of a worker or of a Conductor is unknown."""
        if self.max_usd is None:
            return
        unknown = [spec.name for spec in pool.specs if spec.price is None]
        if unknown:
            raise BadInput(
                f"--max-usd cannot be held: the pool gives no price for {', '.join(unknown)}; add usd_per_mtok, or "
                "cap tokens with --max-tokens"
            )
        unpriced = [info.name for info in conductors if info.price is None]
        if unpriced:
            raise BadInput(
                f"--max-usd cannot be held: no price is known of the Conductor {', '.join(unpriced)}; cap tokens with "
                "--max-tokens instead, which counts its plans too, or take a Conductor that runs here"
            )


class Stopped(Exception):
    """An evaluation cannot go on for now, by a cap or a failing worker. It says what to do; kept outcomes stay."""


@dataclass
class Spending:
    """Counts what has been spent, and expects of each active run the mean cost of its orchestrator so far.

    One object serves a whole evaluation: the runs for learned routers, the teams tried for them, and its own outcomes.
    """

    caps: Caps = Caps()
    usd: float = 0.0
    tokens: int = 0
    _seen: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    _running: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @contextmanager
    def running(self, orchestrator: str) -> Iterator[None]:
        self._running[orchestrator] += 1
        try:
            yield
        finally:
            self._running[orchestrator] -= 1

    def add(self, done: records.Outcome) -> None:
        self.spend(done.orchestrator, done.cost_usd, done.tokens + done.conductor_tokens)

    async def add_earlier(self, folder: Path, recorded: Iterable[records.Outcome], read_trace: ReadTrace) -> None:
        """Counts the earlier parts of what ``folder`` records, runs without an outcome included. Raises: StoreError."""
        for each in recorded:
            self.add(each)
        for usd, tokens in await asyncio.to_thread(unfinished_costs, folder, recorded, read_trace):
            self.spend_unfinished(usd, tokens)

    def spend_unfinished(self, usd: float | None, tokens: int) -> None:
        """Counts a run without an outcome. It does not change the expected cost of other runs."""
        self.usd += usd or 0.0
        self.tokens += tokens

    def spend(self, orchestrator: str, usd: float | None, tokens: int) -> None:
        """Counts one run. ``usd`` is None if a price is unknown; such a pool has no cap on USD."""
        self.spend_unfinished(usd, tokens)
        seen = self._seen[orchestrator]
        for place, value in enumerate((1.0, usd or 0.0, float(tokens))):
            seen[place] += value

    def unknown(self, orchestrator: str) -> bool:
        """Says whether there is a cap and the cost of the orchestrator's runs is still unknown."""
        return self.caps != Caps() and not self._seen[orchestrator][0]

    def reached(self, next_orchestrator: str) -> str | None:
        """Returns why the next run must not start; None if it may."""
        expected_usd, expected_tokens = self.usd, float(self.tokens)
        for name in (next_orchestrator, *itertools.chain(*([name] * n for name, n in self._running.items()))):
            count, usd, tokens = self._seen[name]
            if count:
                expected_usd += usd / count
                expected_tokens += tokens / count
        caps = self.caps
        if caps.max_usd is not None and 0 < expected_usd > caps.max_usd:
            return f"the cost cap is reached: {self.usd:.6f} of {caps.max_usd:g} USD (raise --max-usd)"
        if caps.max_tokens is not None and expected_tokens > caps.max_tokens:
            return f"the token cap is reached: {self.tokens} of {caps.max_tokens} tokens (raise --max-tokens)"
        return None


def open_record(folder: Path, plan: records.EvaluationPlan, *, resume: bool) -> tuple[records.Outcome, ...]:
    """Makes the evaluation's folder, or opens the existing one. Returns the outcomes that it already has.

    This process locks the folder until it ends: another one would carry out the same runs and record them twice.

    Raises: BadInput if there is one and ``resume`` is false, it was made with another configuration, or another process
    has it; OSError.
    """
    file = folder / records.PLAN
    folder.mkdir(parents=True, exist_ok=True)
    hold(folder)
    if not file.exists():
        write_whole(file, plan.model_dump_json(indent=2) + "\n")
        return ()
    if not resume:
        raise BadInput(f"there is an evaluation {plan.name} already ({folder}): add --resume, or give another --name")
    for lines in (records.OUTCOMES, records.BEGUN):
        records.drop_unfinished_line(folder / lines)
    recorded = records.read_record(folder)
    before, now = (each.model_dump(mode="json", exclude={"at"}) for each in (recorded.plan, plan))
    differing = [key for key in now if before[key] != now[key]]
    if differing == ["settings"]:
        keys = before["settings"].keys() | now["settings"].keys()
        differing = sorted(key for key in keys if before["settings"].get(key) != now["settings"].get(key))
        before, now = before["settings"], now["settings"]
    if differing:
        differences = ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in differing[:3])
        raise BadInput(f"the evaluation {plan.name} cannot be resumed with another configuration: {differences}")
    (folder / records.SUMMARY).unlink(missing_ok=True)
    return recorded.outcomes


def subsets(tasks: Sequence[Task], agents: Sequence[str], present: int, seed: int) -> Mapping[str, tuple[str, ...]]:
    """Draws by seed which workers are missing for each task, so that every set of ``present`` workers is equally often.

    Raises: BadInput for a number of workers that the pool does not have.
    """
    if not 1 <= present <= len(agents):
        raise BadInput(f"--present: between 1 and {len(agents)} workers of this pool can be present, not {present}")
    parts = list(itertools.combinations(agents, present))
    rng = Random(f"present/{seed}")  # noqa: S311 - a draw that can be repeated, not a secret
    # Each turn has a new order. In a fixed order a set of workers would always meet the same few kinds of tasks.
    turns = itertools.chain.from_iterable(rng.sample(parts, len(parts)) for _ in itertools.count())
    return {
        task.task_id: tuple(agent for agent in agents if agent not in part)
        for task, part in zip(tasks, turns, strict=False)
    }


@dataclass(frozen=True)
class Evaluation:
    """The runs of an evaluation, and how to carry them out.

    Attributes:
        on_outcome: called after each outcome, also for those of an earlier part.
        spending: the caps and the spending so far, with all recorded outcomes.
        missing: absent workers by task. They are absent for all orchestrators except those of a single worker.
        count_failures: whether a run that failed at a worker counts as a wrong answer, instead of being left open.
    """

    folder: Path
    tasks: Sequence[Task]
    orchestrators: Sequence[Orchestrator]
    pool: Pool
    limits: Limits
    seed: int
    concurrency: int
    on_outcome: Callable[[records.Outcome], None]
    spending: Spending = field(default_factory=Spending)
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    count_failures: bool = False

    async def run(
        self, run: EngineRun, recorded: Sequence[records.Outcome] = ()
    ) -> tuple[tuple[records.Outcome, ...], str | None]:
        """Runs what is not ``recorded`` yet, task by task, so that a part of it also compares orchestrators fairly.

        Returns all outcomes, and the reason if it stopped early. When it is cancelled, it ends the active runs and
        keeps no outcome of them. Raises: Stopped, StoreError, BadInput, ConductorUnavailable, OSError; finished
        outcomes are kept.
        """
        done, spending, outages = list(recorded), self.spending, Outages()
        for each in recorded:
            self.on_outcome(each)
        kept = {(each.orchestrator, each.task_id) for each in recorded}
        jobs = itertools.product(self.tasks, self.orchestrators)
        waiting = ((task, each) for task, each in jobs if (each.name, task.task_id) not in kept)
        stopped: list[str] = []
        unanswered: list[str | None] = []
        first: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

        async def one(task: Task, orchestrator: Orchestrator) -> None:
            why = spending.reached(orchestrator.name)
            if why is not None:
                stopped.append(why)
            if stopped:
                return
            with spending.running(orchestrator.name):
                excluded = () if orchestrator.whole_pool else self.missing.get(task.task_id, ())
                asked = GivenTask(task, self.pool, self.limits, self.seed, excluded)
                attempt = await orchestrator.attempt(asked, self._noted(run))
                ended = await self._ended(orchestrator, asked, attempt)
            down = outages.observe(task.task_id, (attempt.trace, *attempt.also))
            if failed_at_a_worker(attempt.trace) and not self.count_failures:
                spending.spend_unfinished(ended.cost_usd, ended.tokens + ended.conductor_tokens)
                unanswered.append(ended.fault)
                if down is not None:
                    stopped.append(
                        f"{down}. Fix the worker, or count its missing answers as wrong with --count-failures"
                    )
                return
            records.append(self.folder, ended)
            done.append(ended)
            spending.add(ended)
            self.on_outcome(ended)

        async def work() -> None:
            for task, orchestrator in waiting:
                async with first[orchestrator.name]:
                    # A run of unknown cost runs alone: many at once could pass a cap before the cost is known.
                    alone = spending.unknown(orchestrator.name)
                    if alone:
                        await one(task, orchestrator)
                if not alone:
                    await one(task, orchestrator)
                if stopped:
                    return

        await _together(work() for _ in range(self.concurrency))
        if unanswered and not stopped:
            stopped.append(
                f"a worker failed ({unanswered[-1]}), {len(unanswered)} answers are missing. Fix the worker, or count "
                "them as wrong with --count-failures"
            )
        return tuple(done), stopped[0] if stopped else None

    def _noted(self, run: EngineRun) -> EngineRun:
        """Wraps ``run``, so that each run's id is written to the folder before the run begins."""

        async def noted(request: RunRequest, conductor: Conductor | None, pool: Pool) -> RunTrace:
            append_lines(self.folder / records.BEGUN, records.Begun(run_id=request.run_id))
            return await run(request, conductor, pool)

        return noted

    async def _ended(self, orchestrator: Orchestrator, asked: GivenTask, attempt: TaskAttempt) -> records.Outcome:
        """Grades an attempt and returns its outcome. Raises: ConductorUnavailable, Stopped."""
        trace, score, fault = attempt.trace, 0.0, None
        if trace.error_code in codes_of(ConductorUnavailable):
            # A missing Conductor says nothing about its plans. Finished outcomes are kept for a later --resume.
            raise ConductorUnavailable(f"{orchestrator.name}: {trace.error}")
        if trace.answer is not None:
            score, fault = await graded(asked.task, trace.answer)
        ended = outcome(orchestrator.name, asked, attempt, score, subset=bool(asked.excluded))
        return ended if fault is None else ended.model_copy(update={"fault": fault})


async def graded(task: Task, answer: str) -> tuple[float, str | None]:
    """Returns the score of an answer, or 0 and the reason if its grader broke. Grades in a thread beside other runs.

    Raises: Stopped if this machine lacks what the grader needs.
    """
    try:
        return (await asyncio.to_thread(grade, task, answer)).score, None
    except Exception as error:
        # Graders raise a plain RuntimeError if their process does not start.
        if type(error) is RuntimeError or (isinstance(error, OSError) and error.errno in _NO_ROOM):
            raise Stopped(f"the answer to task {task.task_id} could not be graded: {error}") from error
        log.exception("the grader %s broke at an answer to task %s", task.grader, task.task_id)
        return 0.0, f"{type(error).__name__}: the answer could not be graded: {error}"


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all ``works`` to their end. On the first error or a cancellation, it first cancels and awaits the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Cost of runs without an outcome.


def unfinished_costs(
    folder: Path, recorded: Iterable[records.Outcome], read_trace: ReadTrace
) -> list[tuple[float | None, int]]:
    """Returns USD and tokens of each run that began in ``folder`` and belongs to no outcome in ``recorded``.

    A run is noted before it begins. A run that the database does not know has therefore cost nothing.

    Raises: BadInput naming a line that is not a run, StoreError.
    """
    named = {run_id for each in recorded for run_id in (each.run_id, *each.also)}
    costs = []
    for run_id in dict.fromkeys(
        each.run_id for each in records.read_lines(folder / records.BEGUN, records.Begun, "run")
    ):
        if run_id not in named:
            try:
                costs.append(_cost(read_trace(run_id)))
            except UnknownRun:
                continue
    return costs


def _cost(trace: RunTrace) -> tuple[float | None, int]:
    """Returns USD and tokens of a run. If its process was killed, the calls under way count by estimate."""
    usage, usd = trace.usage, trace.cost_usd
    if not trace.ended:
        usage, cost = with_calls_that_are_on(trace)
        usd = cost.usd
    return usd, usage.total_tokens

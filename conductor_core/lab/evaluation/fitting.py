"""Fits learned routers on runs of every single worker over training tasks.

Those runs are an ordinary evaluation in a folder of its own. They are made once, resumed after an interruption, and
used again by every evaluation of the same suite, pool and seed. The folder also keeps the fitted routers and each team
that MasRouter tries, because with real workers the tries are the most expensive part of a fit.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.usage import estimate_tokens
from conductor_core.engine.pools import Pool, open_worker
from conductor_core.engine.recorder import NoLog
from conductor_core.engine.request import ReadTrace
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput, UnknownRun
from conductor_core.grading.tasks import Suite, Task
from conductor_core.lab.evaluation import runner
from conductor_core.lab.evaluation.orchestrators import (
    EngineRun,
    GivenTask,
    Orchestrator,
    TaskAttempt,
    planned,
    same,
    single,
)
from conductor_core.lab.evaluation.routers.workflows import ROUTER, Router, TrainingRow
from conductor_core.lab.evaluation.suites import BENCHMARKS, load_suite
from conductor_core.lab.records import append_lines, now, release, write_whole
from conductor_core.lab.records.evaluation import (
    FIT_PREFIX,
    EvaluationPlan,
    LearnedFrom,
    Outcome,
    drop_unfinished_line,
    read_lines,
)
from conductor_core.rehearsal import recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import Frozen, Workflow

if TYPE_CHECKING:
    from conductor_core.lab.evaluation.routers.smoothie import Smoothie

T = TypeVar("T")

OnProgress = Callable[[int, int], None]
"""Called with the number of finished runs of single workers and the number of all of them."""

TRY_PLANS = ("mas-router", "kind-table")
"""Routers that learn by trying workflows, not only from the single workers' outcomes."""

LEARNED_FROM = "learned_from.json"
"""Name of the file in a fitted router's folder that says what the router was fitted on."""

FILE_SPLIT = "fit"
"""Training split of a suite that comes as one file. Other suites have a training split of their own."""


@dataclass(frozen=True)
class Fit:
    """Which routers to fit, and on what.

    Attributes:
        names: names of the wanted routers. suite: the training tasks.
        count_failures: as in ``Evaluation``. No router learns from a task at which a worker failed.
        folder: folder of all evaluations. spending: spending of the whole evaluation so far. It counts the whole cost
            of the fit, because no record says which of the evaluations that use a fit has paid for it.
    """

    names: tuple[str, ...]
    suite: Suite
    seed: int
    concurrency: int
    pool: Pool
    limits: Limits
    database: str
    folder: Path
    settings: Settings
    spending: runner.Spending = field(default_factory=runner.Spending)
    count_failures: bool = False


# The reward of a team on a training task, for routers that learn by trying teams.

TRIES = "tries.jsonl"
"""Name of the file in a fit's folder that has one line for each tried team."""

_A_TRY = "try of a team"
"""Name under which ``Spending`` counts tries, besides the orchestrators of an evaluation."""


class Try(Frozen):
    """A team carried out once on a training task.

    Attributes:
        score: between 0 and 1. tokens: tokens of all its calls. cost_usd: None if a price is unknown.
        fault: error of a worker, which makes the try useless as a measure of the team; its cost still counts.
    """

    task_id: str
    workflow: Workflow
    score: float
    tokens: int
    cost_usd: float | None = None
    fault: str | None = None


class Tries:
    """The tries of a fit. Each is kept when it is made, so that an interrupted fit does not pay for it again.

    Raises: BadInput naming the file and a line that is no try, except the last line, which may be torn; OSError.
    """

    def __init__(self, file: Path) -> None:
        drop_unfinished_line(file)
        self._file = file
        self._made = list(read_lines(file, Try, "try of a team"))
        self._known = {(each.task_id, each.workflow): each for each in self._made if each.fault is None}

    def __iter__(self) -> Iterator[Try]:
        return iter(self._made)

    def get(self, task_id: str, workflow: Workflow) -> Try | None:
        return self._known.get((task_id, workflow))

    def add(self, tried: Try) -> None:
        """Keeps a try. Raises: OSError."""
        append_lines(self._file, tried)
        self._made.append(tried)
        if tried.fault is None:
            self._known[tried.task_id, tried.workflow] = tried


class TeamReward:
    """The ``Reward`` of routers: the score of a workflow on a training task, and the tokens of all its calls.

    For rehearsal tasks with rehearsal workers, the score is the exact chance, and tokens are estimated from those that
    each worker took alone. Otherwise each workflow is carried out once and counts against the caps.

    Args:
        rows: the training rows by task id. tries: those that were paid for; ``fit.spending`` counts them already.

    Attributes:
        asked: how often it was called. exact: whether all its scores are exact chances.

    Called from a thread of its own. Raises: Stopped if a cap allows no further try or a worker is down; OSError.
    """

    def __init__(self, fit: Fit, rows: Mapping[str, TrainingRow], tries: Tries) -> None:
        self._fit, self._tries, self._rows = fit, tries, tuple(rows.values())
        self._tasks = tasks = [task for task in fit.suite.tasks if task.task_id in rows]
        self.asked = 0
        self._rehearsal = [recognise(task.question) if task.grader == "rehearsal" else None for task in tasks]
        self.exact = None not in self._rehearsal and all(map(_is_its_profile, fit.pool.specs))

    def __call__(self, index: int, workflow: Workflow) -> tuple[float, int]:
        self.asked += 1
        found = self._rehearsal[index]
        if self.exact and found is not None:
            return success_chance(found, workflow), self._reckoned(index, workflow)
        tried = self._tries.get(self._tasks[index].task_id, workflow) or self._try(self._tasks[index], workflow)
        return tried.score, tried.tokens

    def _reckoned(self, index: int, workflow: Workflow) -> int:
        """Estimates tokens: a call reads the task and its granted outputs, and writes as much as its worker alone."""
        row = self._rows[index]
        asked = estimate_tokens(row.question)
        written = [max(1, row.tokens[step.agent] - asked) for step in workflow.steps]
        read = [asked + sum(written[earlier] for earlier in workflow.reads(index)) for index in range(len(written))]
        return sum(read) + sum(written)

    def _try(self, task: Task, workflow: Workflow) -> Try:
        fault = None
        for _ in range(runner.FAILURES_IN_A_ROW):
            why = self._fit.spending.reached(_A_TRY)
            if why is not None:
                raise runner.Stopped(why)
            tried = asyncio.run(self._run(task, workflow))
            self._tries.add(tried)
            count(self._fit.spending, tried)
            if tried.fault is None:
                return tried
            fault = tried.fault
        raise runner.Stopped(
            f"a team failed {runner.FAILURES_IN_A_ROW} times in a row at a worker ({fault}). Fix the worker, or count "
            "such teams as worth nothing with --count-failures"
        )

    async def _run(self, task: Task, workflow: Workflow) -> Try:
        # Workers are opened for this loop alone, because connections belong to the loop in which they were made.
        fit = self._fit
        workers = {spec.name: open_worker(spec, fit.settings, fit.seed) for spec in fit.pool.specs}
        pool = Pool(fit.pool.name, workers, fit.seed, fit.pool.excluded)
        request = GivenTask(task, pool, fit.limits, fit.seed).request(workflow)
        try:
            trace = await Engine(NoLog(), fit.settings).run(request, None, pool)
        finally:
            await pool.aclose()
        failed = runner.failed_at_a_worker(trace) and not fit.count_failures
        return Try(
            task_id=task.task_id,
            workflow=workflow,
            score=0.0 if trace.answer is None else (await runner.graded(task, trace.answer))[0],
            tokens=trace.usage.total_tokens,
            cost_usd=trace.cost_usd,
            fault=trace.error if failed else None,
        )


def count(spending: runner.Spending, tried: Try) -> None:
    if tried.fault is None:
        spending.spend(_A_TRY, tried.cost_usd, tried.tokens)
    else:
        spending.spend_unfinished(tried.cost_usd, tried.tokens)


def _is_its_profile(spec: WorkerSpec) -> bool:
    """Says whether the exact chance holds for a worker: its computation takes the names in a team for profiles.

    A real model may be called "coder", and a simulated worker may have the name of another profile.
    """
    return spec.simulated and spec.model.removeprefix("rehearsal/") == spec.name


# The learned routers as orchestrators.


def routed(name: str, router: Router) -> Orchestrator:
    return planned(name, lambda asked: router.route(asked.task.question, asked.agents))


def smoothed(name: str, router: "Smoothie") -> Orchestrator:
    """Returns an orchestrator in which one run asks all workers, and a second one reuses the chosen answer."""

    async def attempt(asked: GivenTask, run: EngineRun) -> TaskAttempt:
        question = asked.task.question
        every = await run(asked.request(router.route(question, asked.agents)), None, asked.pool)
        outputs = {step.agent: step.output for step in every.steps if step.answered and step.output.strip()}
        if not outputs:
            return TaskAttempt(every)
        chosen = await asyncio.to_thread(router.choose, question, outputs)
        request = asked.request(single(chosen), reuse_from=every, purpose=f"evaluate: {name}")
        return TaskAttempt(await run(request, None, asked.pool), also=(every,))

    return Orchestrator(name, attempt)


def training_suite(suite: str, tasks: int, seed: int, tested: Suite) -> Suite:
    """Loads the training tasks: the suite's training split, or the part of a file that is set apart for training.

    Raises: BadInput, saying what to do, if there are none, or ``tested`` has some of them.
    """
    try:
        split = "train" if suite == "rehearsal" or suite in BENCHMARKS else FILE_SPLIT
        found = load_suite(suite, split, limit=tasks, seed=seed)
    except BadInput as error:
        raise BadInput(
            f"the learned routers need training tasks: {error}; name another suite with --fit-suite"
        ) from error
    shared = {task.question for task in found.tasks} & {task.question for task in tested.tasks}
    if shared:
        raise BadInput(
            f"{len(shared)} of the tasks that the learned routers would be fitted on are those they are tested on: "
            "use --split held-out, or name another suite with --fit-suite"
        )
    return found


def check(fit_names: Sequence[str], pool: Pool, caps: runner.Caps) -> None:
    """Checks the caps. Raises: BadInput if fitting would spend real money without a cap."""
    real = not all(spec.simulated for spec in pool.specs)
    tries_plans = [name for name in fit_names if name in TRY_PLANS]
    if tries_plans and real and caps == runner.Caps():
        raise BadInput(
            f"{tries_plans[0]} is fitted by trying many workflows for the training tasks with real calls: cap what "
            "that may cost with --max-usd or --max-tokens"
        )


async def fitted(fit: Fit, engine: Engine, read_trace: ReadTrace, on_progress: OnProgress) -> tuple[Orchestrator, ...]:
    """Returns the routers named in ``fit``, and fits those that are not kept yet.

    Raises: Stopped, which keeps finished work for the next start; StoreError, BadInput, OSError.
    """
    plan = _plan(fit)
    kept = fit.folder / plan.name
    recorded, tries = runner.open_record(kept, plan, resume=True), Tries(kept / TRIES)
    await fit.spending.add_earlier(kept, recorded, read_trace)
    if set(TRY_PLANS) & set(fit.names):
        for tried in tries:
            count(fit.spending, tried)
    rows: dict[str, TrainingRow] = {}
    # Kept routers need no runs. The runs may be gone by now, together with their database.
    if not all((kept / name / ROUTER).is_file() for name in fit.names):
        # Read before any further run is paid for: without the earlier answers, further runs would be useless.
        answers = await asyncio.to_thread(_answers, recorded, read_trace, kept)
        outcomes = await _single_workers(fit, kept, recorded, engine.run, on_progress)
        answers |= await asyncio.to_thread(_answers, outcomes[len(recorded) :], read_trace, kept)
        rows = _rows(fit.suite, outcomes, answers)
    reward = TeamReward(fit, rows, tries)
    agents = tuple(fit.pool.workers)
    made = []
    for name in fit.names:
        folder, before = kept / name, reward.asked
        is_new = not (folder / ROUTER).is_file()
        made.append(await _apart(partial(_fit_one, name, folder, tuple(rows.values()), agents, fit.seed, reward)))
        if is_new and (folder / ROUTER).is_file():
            asked = reward.asked - before
            account = LearnedFrom(
                tasks=len(rows), answers=len(rows) * len(agents), tried=asked, exact=reward.exact and asked > 0
            )
            write_whole(folder / LEARNED_FROM, account.model_dump_json() + "\n")
    release(kept)  # another evaluation may use the fit while this one goes on
    return tuple(made)


def learned_from(fit: Fit) -> dict[str, LearnedFrom]:
    """Returns what each router of ``fit`` was fitted on. Raises: BadInput."""
    folder = fit.folder / _plan(fit).name
    return {
        name: line
        for name in fit.names
        for line in read_lines(folder / name / LEARNED_FROM, LearnedFrom, "account of what a router learned from")
    }


async def _apart(work: Callable[[], T]) -> T:
    """Runs ``work`` in a daemon thread. A cancelled caller does not wait for it: a fit takes minutes without a stop."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # what comes after a cancellation is dropped

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 it is raised again where the result is awaited
            result.set_exception(error)

    threading.Thread(target=run, name="fit", daemon=True).start()
    return await asyncio.wrap_future(result)


def _plan(fit: Fit) -> EvaluationPlan:
    """Returns the plan with every worker alone on every training task. Its name is the name of the fit's folder."""
    suite = fit.suite
    made_with: dict[str, Any] = {
        "tasks_sha256": runner.tasks_digest(suite.tasks),
        "pool_sha256": runner.pool_digest(fit.pool.specs),
        "simulated_sha256": runner.simulated_digest(fit.pool, suite.tasks),
        "limits": fit.limits.model_dump(mode="json"),
        "grading_sha256": runner.grading_digest(suite.tasks),
    }
    together = hashlib.sha256(json.dumps([made_with, fit.seed, fit.database]).encode()).hexdigest()
    return EvaluationPlan(
        name=f"{FIT_PREFIX}{suite.name}-{together[:12]}",
        at=now(),
        suite=suite.name,
        split=suite.split,
        tasks=len(suite.tasks),
        seed=fit.seed,
        orchestrators=tuple(f"single:{worker}" for worker in fit.pool.workers),
        pool=fit.pool.name,
        simulated=fit.pool.simulated or suite.simulated,
        database=fit.database,
        settings=made_with,
    )


async def _single_workers(
    fit: Fit, folder: Path, recorded: Sequence[Outcome], run: EngineRun, on_progress: OnProgress
) -> tuple[Outcome, ...]:
    """Carries out the part of the fit's plan that is not ``recorded`` yet, and keeps it in ``folder``."""
    tasks, workers = fit.suite.tasks, tuple(fit.pool.workers)
    total, done = len(tasks) * len(workers), 0

    def one_more(_: Outcome) -> None:
        nonlocal done
        done += 1
        on_progress(done, total)

    evaluation = runner.Evaluation(
        folder=folder,
        tasks=tasks,
        orchestrators=[planned(f"single:{worker}", same(single(worker)), whole_pool=True) for worker in workers],
        pool=fit.pool,
        limits=fit.limits,
        seed=fit.seed,
        concurrency=fit.concurrency,
        spending=fit.spending,
        count_failures=fit.count_failures,
        on_outcome=one_more,
    )
    outcomes, stopped = await evaluation.run(run, recorded)
    if stopped is not None:
        raise runner.Stopped(stopped)
    return outcomes


def _answers(outcomes: Sequence[Outcome], read_trace: ReadTrace, folder: Path) -> dict[str, str]:
    """Returns answers by run id. Raises: BadInput naming the ``folder`` to remove if a run is gone; StoreError."""
    try:
        return {each.run_id: read_trace(each.run_id).answer or "" for each in outcomes}
    except UnknownRun as error:
        raise BadInput(
            f"a run that the learned routers are to be fitted on is gone: {error}; remove {folder} to fit again"
        ) from error


def _rows(suite: Suite, outcomes: Sequence[Outcome], given: Mapping[str, str]) -> dict[str, TrainingRow]:
    """Returns rows by task id in the suite's order, except where a worker failed. ``given``: answers by run id."""
    by_task: dict[str, dict[str, Outcome]] = {task.task_id: {} for task in suite.tasks}
    for each in outcomes:
        by_task[each.task_id][each.orchestrator.removeprefix("single:")] = each
    return {
        task.task_id: TrainingRow(
            task.question,
            scores={worker: each.score for worker, each in by_task[task.task_id].items()},
            answers={worker: given[each.run_id] for worker, each in by_task[task.task_id].items()},
            tokens={worker: each.tokens for worker, each in by_task[task.task_id].items()},
            kind=" ".join(part for part in (task.family, task.difficulty) if part),
        )
        for task in suite.tasks
        if not any(map(runner.failed_at_a_worker, by_task[task.task_id].values()))
    }


def _fit_one(
    name: str, kept: Path, rows: Sequence[TrainingRow], agents: Sequence[str], seed: int, reward: TeamReward
) -> Orchestrator:
    """Loads the router in ``kept``, or fits one and saves it. Raises: BadInput for a damaged folder; OSError."""
    # Imported here, because they load torch and scikit-learn, which no other orchestrator needs.
    from conductor_core.lab.evaluation.routers import kind_table, mas_router, router_dc, smoothie

    kinds: dict[str, tuple[Any, Callable[..., Any]]] = {
        "router-dc": (router_dc.RouterDC, router_dc.fit),
        "mas-router": (mas_router.MasRouter, partial(mas_router.fit, reward=reward)),
        "kind-table": (kind_table.KindTable, partial(kind_table.fit, reward=reward)),
        "smoothie": (smoothie.Smoothie, partial(smoothie.fit, variant="independent")),
        "smoothie-dependent": (smoothie.Smoothie, partial(smoothie.fit, variant="dependent")),
    }
    kind, fit = kinds[name]
    if (kept / ROUTER).is_file():
        router = kind.load(kept)
    else:
        router = fit(rows, agents, seed=seed)
        router.save(kept)
    return smoothed(name, router) if isinstance(router, smoothie.Smoothie) else routed(name, router)

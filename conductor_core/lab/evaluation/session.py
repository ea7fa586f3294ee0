"""Carries out one evaluation, from the user's choices to its figures.

prepare(choices) -> Prepared                            checks everything, runs nothing
run_evaluation(prepared) -> fitting.fitted              the learned routers, on runs of the single workers
                         -> runner.Evaluation.run -> report.summarise -> Ended
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool, open_pool
from conductor_core.engine.request import ReadTrace
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput, ConductorUnavailable, StoreError
from conductor_core.grading.tasks import Suite
from conductor_core.lab.evaluation import fitting, orchestrators, report, runner
from conductor_core.lab.evaluation.orchestrators import Orchestrator
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.lab.records import now
from conductor_core.lab.records.evaluation import FIT_PREFIX, PLAN, EvaluationPlan, Outcome, Summary, read_record
from conductor_core.run.events import EventSink
from conductor_core.run.values import Limits
from conductor_core.settings import Settings

EVALUATIONS = "evaluations"
"""Name of the folder below the data folder that has one folder for each evaluation."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class EvaluationChoices:
    """What to evaluate.

    Attributes:
        orchestrators: names and groups, separated by commas, as in ``orchestrators``.
        name: name of the folder; None makes one from suite, split and time.
        conductor, untrained: refs of Conductors. excluded: workers left out of the pool for the whole evaluation.
        present: number of workers that are present for each task; None means all.
        database: URL of the runs' database, without a password.
        count_failures: as in ``runner.Evaluation``. It may change on resuming, like the caps.
        fit_tasks: number of training tasks for the learned routers. fit_suite: their suite; None means the same suite.
    """

    suite: str
    orchestrators: str
    split: str = "test"
    limit: int | None = None
    seed: int = 0
    name: str | None = None
    resume: bool = False
    concurrency: int = 32
    caps: runner.Caps = field(default_factory=runner.Caps)
    count_failures: bool = False
    conductor: str = "tiny"
    untrained: str | None = None
    pool: str = "rehearsal"
    excluded: tuple[str, ...] = ()
    present: int | None = None
    limits: Limits = field(default_factory=Limits)
    database: str = ""
    fit_tasks: int = 300
    fit_suite: str | None = None


@dataclass(frozen=True)
class Prepared:
    choices: EvaluationChoices
    settings: Settings
    plan: EvaluationPlan
    folder: Path
    suite: Suite
    pool: Pool
    refs: dict[str, str]
    recorded: tuple[Outcome, ...]
    spending: runner.Spending
    fit: fitting.Fit | None

    @property
    def runs(self) -> int:
        return len(self.suite.tasks) * len(self.plan.orchestrators)


@dataclass(frozen=True)
class EvaluationResult:
    """The result of an evaluation that ended or was stopped early.

    Attributes:
        stopped: why it is not complete; None if it is. cancelled: whether it was cancelled.
    """

    plan: EvaluationPlan
    folder: Path
    outcomes: tuple[Outcome, ...]
    summary: Summary
    stopped: str | None = None
    cancelled: bool = False


def prepare(choices: EvaluationChoices, settings: Settings) -> Prepared:
    """Checks all that can be checked before anything runs, and opens the evaluation's folder. Raises: BadInput."""
    if choices.resume and choices.name is None:
        raise BadInput("--resume: which evaluation? Give its --name")
    name = choices.name or f"{_short(choices.suite)}-{choices.split}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if not _NAME.fullmatch(name):
        raise BadInput(f"--name {name!r}: letters, digits, points, hyphens and underscores only, 80 at most")
    if name.startswith(FIT_PREFIX):
        raise BadInput(f"--name {name!r}: the folders of learned routers begin with {FIT_PREFIX}; give another --name")
    folder = settings.data_folder / EVALUATIONS / name
    if choices.resume and not (folder / PLAN).is_file():
        raise BadInput(f"--resume: unknown evaluation {name} in {folder.parent}; {_those_in(folder.parent)}")
    # Simulated workers answer without delay here; their usual pace is for people who watch.
    settings = settings.model_copy(update={"rehearsal_tokens_per_s": 0.0})
    pool = open_pool(choices.pool, settings, seed=choices.seed).without(choices.excluded)
    agents = tuple(pool.workers)
    names = orchestrators.expand(choices.orchestrators, agents, untrained=choices.untrained is not None)
    orchestrators.budgets(names, pool.specs)
    refs = orchestrators.conductor_refs(names, choices.conductor, choices.untrained)
    # Opening is cheap, and reports a missing Conductor before anything runs.
    conductors = [open_conductor(ref, settings) for ref in dict.fromkeys(refs.values())]
    choices.caps.check(pool, [each.info for each in conductors])
    suite = load_suite(choices.suite, choices.split, limit=choices.limit, seed=choices.seed)
    if choices.present is not None:
        runner.subsets(suite.tasks, agents, choices.present, choices.seed)
    training: Suite | None = None
    learned = [name for name in names if name in orchestrators.ROUTERS]
    if learned:
        training = fitting.training_suite(choices.fit_suite or choices.suite, choices.fit_tasks, choices.seed, suite)
        fitting.check(learned, pool, choices.caps)
    plan = EvaluationPlan(
        name=name,
        at=now(),
        suite=suite.name,
        split=suite.split,
        tasks=len(suite.tasks),
        seed=choices.seed,
        orchestrators=names,
        pool=pool.name,
        simulated=pool.simulated or suite.simulated,
        database=choices.database,
        settings=_further(choices, suite, pool, refs, training, settings.models_folder),
    )
    try:
        recorded = runner.open_record(folder, plan, resume=choices.resume)
    except OSError as error:
        raise BadInput(
            f"the folder of the evaluation cannot be written ({error}). Make it writable, or set "
            "CONDUCTOR_DATA_FOLDER to another folder"
        ) from error
    spending, fit = runner.Spending(choices.caps), None
    if training is not None:
        fit = fitting.Fit(
            names=tuple(learned),
            suite=training,
            seed=choices.seed,
            concurrency=choices.concurrency,
            pool=pool,
            limits=choices.limits,
            database=choices.database,
            folder=folder.parent,
            settings=settings,
            spending=spending,
            count_failures=choices.count_failures,
        )
    return Prepared(choices, settings, plan, folder, suite, pool, refs, recorded, spending, fit)


def _those_in(folder: Path) -> str:
    names = sorted(path.parent.name for path in folder.glob(f"*/{PLAN}") if not path.parent.name.startswith(FIT_PREFIX))
    return f"there are {', '.join(names)}" if names else "the folder holds no evaluation"


def _short(suite: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(suite).stem).strip("-.") or "suite"


def _further(
    choices: EvaluationChoices,
    suite: Suite,
    pool: Pool,
    refs: dict[str, str],
    training: Suite | None,
    models_folder: Path,
) -> dict[str, Any]:
    models = {ref: runner.model_digest(ref, models_folder) for ref in dict.fromkeys(refs.values())}
    further: dict[str, Any] = {
        "tasks_sha256": runner.tasks_digest(suite.tasks),
        "grading_sha256": runner.grading_digest(suite.tasks),
        "simulated": _simulated(suite, pool),
        "pool_sha256": runner.pool_digest(pool.specs),
        "simulated_sha256": runner.simulated_digest(pool, suite.tasks),
        "limits": choices.limits.model_dump(mode="json"),
        "conductors": dict(refs),
        "models_sha256": {ref: digest for ref, digest in models.items() if digest is not None},
        "present": choices.present,
        "excluded": sorted(choices.excluded),
    }
    if training is not None:
        further |= {
            "fit_tasks_sha256": runner.tasks_digest(training.tasks),
            "fit_grading_sha256": runner.grading_digest(training.tasks),
            "fit_tasks": choices.fit_tasks,
            "fit_suite": choices.fit_suite,
        }
    return further


def _simulated(suite: Suite, pool: Pool) -> list[str]:
    """Names the simulated parts as the tables do: their readers must know whether any worker was real."""
    workers = "workers" if all(spec.simulated for spec in pool.specs) else "some workers"
    return [workers] * pool.simulated + ["tasks"] * suite.simulated


async def run_evaluation(
    prepared: Prepared,
    sink: EventSink,
    read_trace: ReadTrace,
    *,
    on_outcome: Callable[[Outcome], None],
    on_fitting: fitting.OnProgress,
) -> EvaluationResult:
    """Runs what is missing and computes the figures. When it is cancelled, it ends its runs and returns what there is.

    If a server, the database or the disk fails, it also returns what there is, with the reason; it can be resumed.

    Args:
        read_trace: returns a run of an earlier part by its id.

    Raises: BadInput; finished outcomes are kept.
    """
    engine = Engine(sink, prepared.settings, read_trace)
    choices, suite, pool = prepared.choices, prepared.suite, prepared.pool
    fit, spending = prepared.fit, prepared.spending
    stopped, cancelled = None, False
    try:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(pool.aclose)
            await spending.add_earlier(prepared.folder, prepared.recorded, read_trace)
            routers = () if fit is None else await _fitted(fit, engine, read_trace, on_fitting)
            opened = orchestrators.open_orchestrators(
                prepared.plan.orchestrators, prepared.refs, pool, prepared.settings, stack
            )
            by_name = {each.name: each for each in (*opened, *routers)}
            missing: Mapping[str, tuple[str, ...]] = {}
            if choices.present is not None:
                missing = runner.subsets(suite.tasks, tuple(pool.workers), choices.present, choices.seed)
            evaluation = runner.Evaluation(
                folder=prepared.folder,
                tasks=suite.tasks,
                orchestrators=[by_name[name] for name in prepared.plan.orchestrators],
                pool=pool,
                limits=choices.limits,
                seed=choices.seed,
                concurrency=choices.concurrency,
                spending=spending,
                missing=missing,
                count_failures=choices.count_failures,
                on_outcome=on_outcome,
            )
            _, stopped = await evaluation.run(engine.run, prepared.recorded)
    except (runner.Stopped, ConductorUnavailable, StoreError, OSError) as error:
        stopped = str(error)
    except asyncio.CancelledError:
        stopped, cancelled = "it was stopped", True
    outcomes = read_record(prepared.folder).outcomes
    summary = report.summarise(prepared.plan, outcomes, {} if fit is None else fitting.learned_from(fit))
    if stopped is None:
        try:
            report.write_summary(prepared.folder, summary)
        except OSError as error:
            stopped = str(error)
    return EvaluationResult(prepared.plan, prepared.folder, outcomes, summary, stopped, cancelled)


async def _fitted(
    fit: fitting.Fit, engine: Engine, read_trace: ReadTrace, on_fitting: fitting.OnProgress
) -> tuple[Orchestrator, ...]:
    try:
        return await fitting.fitted(fit, engine, read_trace, on_fitting)
    except runner.Stopped as stopped:
        raise runner.Stopped(f"the learned routers are not fitted yet: {stopped}") from stopped

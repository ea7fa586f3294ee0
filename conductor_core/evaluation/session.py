"""One evaluation from what a user chose to its figures.

prepare(choices) -> Prepared                       everything checked, nothing run
carry_out(prepared) -> fitting.fitted              the learned routers, on runs of the single workers
                    -> runner.Evaluation.carry_out -> report.summarise -> Ended
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conductor_core.conductors import open_conductor
from conductor_core.engine.pool import Pool, open_pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput
from conductor_core.evaluation import fitting, report
from conductor_core.evaluation.digests import model_digest, pool_digest, simulated_digest, tasks_digest
from conductor_core.evaluation.orchestrators import catalogue
from conductor_core.evaluation.orchestrators.protocol import Orchestrator
from conductor_core.evaluation.runner import CapReached, Caps, Evaluation, Spending, open_record, subsets
from conductor_core.evaluation.suites import load_suite
from conductor_core.evaluation.tasks import Suite
from conductor_core.events import EventSink, Limits
from conductor_core.records import now
from conductor_core.records.evaluation import FIT_PREFIX, EvaluationPlan, Outcome, Summary, read_record
from conductor_core.settings import Settings

EVALUATIONS = "evaluations"
"""Below the data folder: one folder for each evaluation."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What to evaluate.

    Attributes:
        orchestrators: names and groups with commas, as in ``catalogue``.
        name: of the folder; None: made of suite, split and time.
        conductor, untrained: refs. excluded: workers left out of the pool altogether.
        present: how many workers are there for each task; None: all.
        database: URL of the runs, without a password.
        fit_tasks: training tasks that the learned routers are fitted on. fit_suite: where they come from; None: the
            same suite.
    """

    suite: str
    orchestrators: str
    split: str = "test"
    limit: int | None = None
    seed: int = 0
    name: str | None = None
    resume: bool = False
    concurrency: int = 32
    caps: Caps = field(default_factory=Caps)
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
    """An evaluation that can begin."""

    choices: Choices
    settings: Settings
    plan: EvaluationPlan
    folder: Path
    suite: Suite
    pool: Pool
    refs: dict[str, str]
    there: tuple[Outcome, ...]
    training: Suite | None = None

    @property
    def runs(self) -> int:
        """How many outcomes there will be."""
        return len(self.suite.tasks) * len(self.plan.orchestrators)


@dataclass(frozen=True)
class Ended:
    """What there is when an evaluation has come to its end, or was stopped before.

    Attributes:
        stopped: why it is not complete; None: it is. cancelled: it was told to stop.
    """

    plan: EvaluationPlan
    folder: Path
    outcomes: tuple[Outcome, ...]
    summary: Summary
    stopped: str | None = None
    cancelled: bool = False


def prepare(choices: Choices, settings: Settings) -> Prepared:
    """Checks all that can be checked before anything runs, and opens the evaluation's folder. Raises: BadInput."""
    if choices.resume and choices.name is None:
        raise BadInput("--resume: which evaluation? Give its --name")
    name = choices.name or f"{_short(choices.suite)}-{choices.split}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if not _NAME.fullmatch(name):
        raise BadInput(f"--name {name!r}: letters, digits, points, hyphens and underscores only, 80 at most")
    if name.startswith(FIT_PREFIX):
        raise BadInput(f"--name {name!r}: the folders of learned routers begin with {FIT_PREFIX}; give another --name")
    # Simulated workers answer at once: their pace is for people who watch.
    settings = settings.model_copy(update={"rehearsal_tokens_per_s": 0.0})
    pool = open_pool(choices.pool, settings, seed=choices.seed).without(choices.excluded)
    agents = tuple(pool.workers)
    names = catalogue.expand(choices.orchestrators, agents, untrained=choices.untrained is not None)
    catalogue.budgets(names, pool.specs)
    refs = catalogue.conductor_refs(names, choices.conductor, choices.untrained)
    # Cheap, and says now if there is no such one.
    conductors = [open_conductor(ref, settings) for ref in dict.fromkeys(refs.values())]
    choices.caps.check(pool, [each.info for each in conductors])
    suite = load_suite(choices.suite, choices.split, limit=choices.limit, seed=choices.seed)
    if choices.present is not None:
        subsets(suite.tasks, agents, choices.present, choices.seed)
    training: Suite | None = None
    if learned := [name for name in names if name in catalogue.ROUTERS]:
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
        settings=_further(choices, suite, pool, refs, training),
    )
    folder = settings.data_folder / EVALUATIONS / name
    there = open_record(folder, plan, resume=choices.resume)
    return Prepared(choices, settings, plan, folder, suite, pool, refs, there, training)


def _short(suite: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(suite).stem).strip("-.") or "suite"


def _further(
    choices: Choices, suite: Suite, pool: Pool, refs: dict[str, str], training: Suite | None
) -> dict[str, Any]:
    """What else decides an outcome, by name."""
    models = {ref: model_digest(ref) for ref in dict.fromkeys(refs.values())}
    further: dict[str, Any] = {
        "tasks_sha256": tasks_digest(suite.tasks),
        "simulated": _simulated(suite, pool),
        "pool_sha256": pool_digest(pool.specs),
        "simulated_sha256": simulated_digest(pool, suite.tasks),
        "limits": choices.limits.model_dump(mode="json"),
        "conductors": dict(refs),
        "models_sha256": {ref: digest for ref, digest in models.items() if digest is not None},
    }
    if choices.present is not None:
        further["present"] = choices.present
    if choices.excluded:
        further["excluded"] = sorted(choices.excluded)
    if training is not None:
        further["fit_tasks_sha256"] = tasks_digest(training.tasks)
        # What is as usual is not said: earlier plans, which never say it, can still be gone on with.
        if choices.fit_tasks != Choices.fit_tasks:
            further["fit_tasks"] = choices.fit_tasks
        if choices.fit_suite is not None:
            further["fit_suite"] = choices.fit_suite
    return further


def _simulated(suite: Suite, pool: Pool) -> list[str]:
    """Which parts are, in the words of the tables: who reads them must know whether any worker was a real one."""
    workers = "workers" if all(spec.simulated for spec in pool.specs) else "some workers"
    return [workers] * pool.simulated + ["tasks"] * suite.simulated


async def carry_out(
    prepared: Prepared,
    sink: EventSink,
    read_trace: fitting.ReadTrace,
    *,
    heard: Callable[[Outcome], None] = lambda done: None,
    fitting_heard: fitting.Heard = lambda done, total: None,
) -> Ended:
    """Runs what is not there yet and makes the figures; cancelled, it ends its runs and gives what there is.

    Args:
        read_trace: a run of an earlier part, by its id.

    Raises: StoreError, BadInput, ConductorUnavailable, OSError; the outcomes until then are kept.
    """
    engine = Engine(sink, prepared.settings)
    opened = catalogue.open_orchestrators(prepared.plan.orchestrators, prepared.refs, prepared.pool, prepared.settings)
    stopped, cancelled = None, False
    spending = Spending(prepared.choices.caps)
    for each in prepared.there:
        spending.add(each)
    try:
        fit = _fit(prepared, spending)
        routers = () if fit is None else await fitting.fitted(fit, engine, read_trace, fitting_heard)
        evaluation = _evaluation(prepared, [*opened.orchestrators, *routers], spending, heard)
        _, stopped = await evaluation.carry_out(engine.run, prepared.there)
    except CapReached as reached:
        stopped = f"the learned routers are not fitted yet: {reached}"
    except asyncio.CancelledError:
        stopped, cancelled = "it was stopped", True
    finally:
        await opened.aclose()
        await prepared.pool.aclose()
    outcomes = read_record(prepared.folder).outcomes
    summary = report.summarise(prepared.plan, outcomes)
    if stopped is None:
        report.write_summary(prepared.folder, summary)
    return Ended(prepared.plan, prepared.folder, outcomes, summary, stopped, cancelled)


def _fit(prepared: Prepared, spending: Spending) -> fitting.Fit | None:
    choices = prepared.choices
    if prepared.training is None:
        return None
    return fitting.Fit(
        names=tuple(name for name in prepared.plan.orchestrators if name in catalogue.ROUTERS),
        suite=prepared.training,
        seed=choices.seed,
        concurrency=choices.concurrency,
        pool=prepared.pool,
        limits=choices.limits,
        database=choices.database,
        folder=prepared.settings.data_folder / EVALUATIONS,
        settings=prepared.settings,
        spending=spending,
    )


def _evaluation(
    prepared: Prepared, orchestrators: list[Orchestrator], spending: Spending, heard: Callable[[Outcome], None]
) -> Evaluation:
    choices, suite, pool = prepared.choices, prepared.suite, prepared.pool
    order = {name: place for place, name in enumerate(prepared.plan.orchestrators)}
    missing = (
        {} if choices.present is None else subsets(suite.tasks, tuple(pool.workers), choices.present, choices.seed)
    )
    return Evaluation(
        folder=prepared.folder,
        tasks=suite.tasks,
        orchestrators=sorted(orchestrators, key=lambda each: order[each.name]),
        pool=pool,
        limits=choices.limits,
        seed=choices.seed,
        concurrency=choices.concurrency,
        spending=spending,
        missing=missing,
        heard=heard,
    )

"""``evaluate``: tasks with known answers, put to the Conductor and to its baselines."""

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from sqlalchemy.engine import make_url

from conductor_core.analysis.documents import cost_document
from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import needs_extra
from conductor_core.cli.live import stopping
from conductor_core.cli.output import one_line
from conductor_core.cli.progress import Line
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.formats import seconds
from conductor_core.lab.evaluation import orchestrators, report
from conductor_core.lab.evaluation.runner import Caps
from conductor_core.lab.evaluation.session import EvaluationChoices, EvaluationResult, Prepared, prepare, run_evaluation
from conductor_core.lab.records.evaluation import Outcome
from conductor_core.run.costs import Cost
from storage import Store

_SHOWN = 4


class EvaluationProgress(Line):
    """Counts outcomes as they come, with the scores so far.

    Shows the orchestrator ``first`` first, and how many of ``total`` outcomes there are.
    """

    def __init__(self, first: str, total: int, *, quiet: bool) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn(
                "{task.fields[said]}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", min_width=12, ratio=1),
            ),
            quiet=quiet,
            expand=True,
        )
        self._first, self._total = first, total
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._done = self._before = 0

    def begin(self, recorded: int) -> None:
        """Takes the number of outcomes that an earlier part recorded: they take no time now."""
        self._before = recorded

    def fitting(self, done: int, total: int) -> None:
        """Shows how many of the runs are done on which learned routers are fitted."""
        said = f"runs to fit routers on: {done} of {total}"
        self.show(done, total, lambda: said, now=done == total, title="fitting routers")

    def on_outcome(self, outcome: Outcome) -> None:
        score = self._sums[outcome.orchestrator]
        score[0] += outcome.score
        score[1] += 1
        self._done += 1
        if self._done <= self._before:
            self.forget_pace(self._done)
        scores = self._scores()
        self.show(
            self._done,
            self._total,
            lambda: f"{self._done} of {self._total} · {self._left()} left · {scores}",
            title="evaluating",
            said=lambda: scores,
        )

    def _left(self) -> str:
        return "unknown time" if self.left_s is None else seconds(1000 * self.left_s)

    def _scores(self) -> str:
        """Names the first orchestrator, then the best so far, with their scores in percent."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        ranked = sorted(means, key=lambda name: (name != self._first, -means[name]))
        return " · ".join(f"{one_line(name, 24)} {100 * means[name]:.1f}" for name in ranked[:_SHOWN])


def evaluate(choices: EvaluationChoices, given: options.Options) -> int:
    """Evaluates, prints the figures and returns the exit code. Raises: BadInput, StoreError, ConductorUnavailable."""
    with given.store() as store:
        shown_url = make_url(given.db or given.settings.resolved_database_url).render_as_string(hide_password=True)
        prepared = prepare(replace(choices, database=shown_url), given.settings)
        if prepared.pool.simulated and not prepared.suite.simulated:
            given.say("simulated workers only know rehearsal tasks; expect wrong answers")
        ended, code = asyncio.run(_evaluated(prepared, store, quiet=given.quiet))
    text = report.markdown(ended.plan, ended.summary) if ended.outcomes else "no task was finished"
    given.print(lambda: document(ended), lambda: [text])
    if ended.stopped is not None:
        print(
            f"stopped: {ended.stopped}; {len(ended.outcomes)} of {prepared.runs} outcomes are kept; "
            f"to continue, repeat the command with --resume --name {ended.plan.name}",
            file=sys.stderr,
        )
    else:
        given.say(f"the record: {ended.folder}")
    return code


async def _evaluated(prepared: Prepared, store: Store, *, quiet: bool) -> tuple[EvaluationResult, int]:
    """Ctrl-C or SIGTERM ends the runs in progress and keeps what is done; a second one ends the program."""
    task = asyncio.current_task()
    first = prepared.plan.orchestrators[0]
    with (
        EvaluationProgress(first, prepared.runs, quiet=quiet) as progress,
        stopping(lambda: task and task.cancel()) as stopped_by,
    ):
        progress.begin(len(prepared.recorded))
        ended = await run_evaluation(
            prepared,
            store.log,
            lambda run_id: store.trace(run_id)[0],
            on_outcome=progress.on_outcome,
            on_fitting=progress.fitting,
        )
    if stopped_by:
        return ended, stopped_by[0]
    return ended, 0 if ended.stopped is None else 1


def document(ended: EvaluationResult) -> dict[str, Any]:
    """Returns what ``--json`` prints: the contract's keys first, then more."""
    summary, plan = ended.summary, ended.plan
    cost = sum((Cost(each.cost_usd, each.at_least_usd) for each in ended.outcomes), Cost())
    return {
        "suite": summary.suite,
        "split": summary.split,
        "n": summary.n,
        "results": [row.model_dump(mode="json") for row in summary.results],
        "present": None if summary.present is None else summary.present.model_dump(mode="json"),
        "spreads": [spread.model_dump(mode="json") for spread in summary.spreads],
        "learned_from": {name: each.model_dump(mode="json") for name, each in summary.learned_from.items()},
        "name": plan.name,
        "folder": str(ended.folder),
        "pool": plan.pool,
        "seed": plan.seed,
        "tasks": plan.tasks,
        "simulated": plan.simulated,
        "complete": ended.stopped is None,
        "stopped": ended.stopped,
        "tokens": sum(each.tokens + each.conductor_tokens for each in ended.outcomes),
        **cost_document(cost),
    }


Name = Annotated[str | None, typer.Option(help="Name of the evaluation's folder; needed to resume it.")]


@dataclass(frozen=True)
class EvaluationOptions(options.Options):
    untrained: Annotated[
        str | None, typer.Option(metavar="REF", help="The Conductor of the orchestrator 'untrained'.")
    ] = None
    fit_tasks: Annotated[int, typer.Option(min=1, help="Training tasks that learned routers are fitted on.")] = 300
    fit_suite: Annotated[str | None, typer.Option(metavar="S", help="Another suite for the training tasks.")] = None
    list_them: Annotated[bool, typer.Option("--list", help="List the orchestrators and stop.")] = False


_SHARED = (
    "conductor", "lora", "untrained", "pool", "exclude", "max_steps", "fit_tasks", "fit_suite", "list_them", "db",
    "as_json", "quiet",
)  # fmt: skip


def evaluate_command(
    suite: Annotated[
        str | None, typer.Option(metavar="S", help="rehearsal, a benchmark's name, or a file of tasks.")
    ] = None,
    orchestrators: Annotated[
        str | None, typer.Option(metavar="A,B", help="Names and groups, separated by commas; see --list.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Part of the suite: test or train; of a file: test, fit or held-out.")
    ] = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="How many tasks.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Chooses the tasks, their order and the present workers; also seeds simulated workers and sampling."
        ),
    ] = None,
    name: Name = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue this evaluation; repeat its other options.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=1024, help="Runs at once.")] = 32,
    max_usd: Annotated[
        float | None, typer.Option(min=0, max=1e9, help="Cost cap of the whole evaluation in USD.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=10**12, help="Token cap of the whole evaluation.")
    ] = None,
    count_failures: Annotated[
        bool,
        typer.Option(
            "--count-failures",
            help="Count a task as wrong if a worker fails on it, instead of asking again on --resume.",
        ),
    ] = False,
    present: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Make only K workers available for each task, other ones each time."),
    ] = None,
    given: Annotated[EvaluationOptions, *_SHARED] = EvaluationOptions(),
) -> int:
    settings = given.settings
    pool = given.pool or settings.pool
    if given.list_them:
        return _list(pool, given)
    if suite is None or orchestrators is None:
        again = " again, as the evaluation had them" if resume else ""
        raise BadInput(f"give --suite and --orchestrators{again}; see evaluate --list")
    needs_extra("evaluate")
    choices = EvaluationChoices(
        suite=suite,
        orchestrators=orchestrators,
        split=split,
        limit=limit,
        seed=settings.seed if seed is None else seed,
        name=name,
        resume=resume,
        concurrency=concurrency,
        caps=Caps(max_usd, max_tokens),
        count_failures=count_failures,
        conductor=inputs.with_lora(given.conductor, given.lora) or settings.conductor,
        untrained=given.untrained,
        pool=pool,
        excluded=tuple(given.exclude or ()),
        present=present,
        limits=given.limits(),
        fit_tasks=given.fit_tasks,
        fit_suite=given.fit_suite,
    )
    return evaluate(choices, given)


def _list(pool: str, given: options.Options) -> int:
    agents = [spec.name for spec in read_specs(pool)]
    groups = {name: orchestrators.group(name, agents) for name in orchestrators.GROUPS}
    names = orchestrators.group("all", agents, untrained=True)
    given.print(lambda: {"orchestrators": names, "groups": groups}, lambda: [orchestrators.described()])
    return 0

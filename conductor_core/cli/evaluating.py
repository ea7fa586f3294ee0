"""Carries out the command ``evaluate``. Loads suites, graders and the rehearsal world."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from sqlalchemy.engine import make_url

from conductor_core.analysis.documents import cost_document
from conductor_core.cli.carry_out import stopping
from conductor_core.cli.output import print_json
from conductor_core.cli.progress import EvaluationProgress
from conductor_core.cli.wiring import opened_store
from conductor_core.lab.evaluation import report
from conductor_core.lab.evaluation.session import EvaluationChoices, EvaluationResult, Prepared, prepare, run_evaluation
from conductor_core.run.costs import Cost
from conductor_core.settings import Settings
from storage import Store


def evaluate(choices: EvaluationChoices, db: str | None, settings: Settings, *, as_json: bool, quiet: bool) -> int:
    """Evaluates, prints the figures and returns the exit code. Raises: BadInput, StoreError, ConductorUnavailable."""
    with opened_store(db, settings) as store:
        shown_url = make_url(db or settings.resolved_database_url).render_as_string(hide_password=True)
        prepared = prepare(replace(choices, database=shown_url), settings)
        if prepared.pool.simulated and not prepared.suite.simulated and not quiet:
            print("simulated workers only know rehearsal tasks; expect wrong answers", file=sys.stderr)
        ended, code = asyncio.run(_evaluated(prepared, store, quiet=quiet))
    if as_json:
        print_json(document(ended))
    else:
        print(report.markdown(ended.plan, ended.summary) if ended.outcomes else "no task was finished")
    if ended.stopped is not None:
        print(
            f"stopped: {ended.stopped}; {len(ended.outcomes)} of {prepared.runs} outcomes are kept; "
            f"to continue, repeat the command with --resume --name {ended.plan.name}",
            file=sys.stderr,
        )
    elif not quiet:
        print(f"the record: {ended.folder}", file=sys.stderr)
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

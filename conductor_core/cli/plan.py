"""``plan``: the Conductor writes a workflow, and nothing is carried out."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core import documents
from conductor_core.cli import inputs, options, report
from conductor_core.cli.live import ProgressView, watch
from conductor_core.cli.output import print_json
from conductor_core.cli.plans import print_plans
from conductor_core.cli.ready import ready
from conductor_core.cli.task_file import read_tasks
from conductor_core.cli.text import one_line
from conductor_core.cli.wiring import opened_engine, opened_store
from conductor_core.engine.resampling import plans_requested
from conductor_core.errors import BadInput
from conductor_core.run_ids import new_run_id
from conductor_core.run_request import USUAL_TEMPERATURE, RunRequest
from conductor_core.trace import RunTrace


def plan(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="FILE.jsonl", help="Plan the task of each line instead.")
    ] = None,
    conductor: options.Conductor = None,
    precision: options.Precision = None,
    pool: options.Pool = None,
    db: options.Db = None,
    exclude: options.Exclude = None,
    seed: options.Seed = None,
    max_steps: options.MaxSteps = None,
    max_depth: options.MaxDepth = None,
    count: options.Plans = None,
    temperature: options.PlanTemperature = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Let the Conductor write a workflow for TASK, without running it."""
    settings = inputs.read_settings(precision)
    if (task is None) == (tasks is None):
        raise BadInput("give a TASK, or --tasks FILE.jsonl" if task is None else "give a TASK or --tasks, not both")
    if count is not None and task is None:
        raise BadInput("--n is for one TASK: leave --n or --tasks out")
    texts = [inputs.given_text(task, "task")] if task is not None else read_tasks(tasks or Path())
    budget = options.limits(settings, max_steps=max_steps, max_depth=max_depth)
    traces: list[RunTrace] = []
    code = 0
    longest = RunRequest(
        task=max(texts, key=len, default=""),
        conductor=conductor or settings.conductor,
        pool=pool or settings.pool,
        limits=budget,
        seed=settings.seed if seed is None else seed,
        plan_only=True,
        excluded=tuple(exclude or ()),
        plan_temperature=temperature,
    )
    ready(longest, settings, quiet=quiet)
    if count is not None:
        warm = USUAL_TEMPERATURE if temperature is None else temperature
        requests = plans_requested(longest, count, seed, warm)
        return print_plans(requests, settings, db=db, as_json=as_json, quiet=quiet)
    with opened_store(db, settings) as store, opened_engine(store, settings) as host:
        for number, text in enumerate(texts, start=1):
            run_id = host.start(longest.model_copy(update={"task": text, "run_id": new_run_id()}))
            trace, this_code = watch(
                store, host, run_id, ProgressView(quiet=quiet or len(texts) > 1, answer=False, db=db)
            )
            traces.append(trace)
            code = max(code, this_code)
            if len(texts) > 1 and not quiet:
                shown = trace.root.topology or f"{trace.status}: {one_line(trace.error or '')}"
                print(f"{number} of {len(texts)} · {len(trace.steps)} steps · {shown}", file=sys.stderr, flush=True)
            if this_code > 1:
                break
    if as_json:
        print_json({"plans": [documents.plan_document(trace) for trace in traces]})
    else:
        for trace in traces:
            print("\n".join(report.plan_lines(trace)))
    return code

"""The commands. Each returns its exit code: 0 done, 1 the run failed, 2 bad input."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.cli import documents, inputs, options, report
from conductor_core.cli.batch import BatchOptions, Shown, batch_file, run_batch
from conductor_core.cli.evaluate import evaluate_command
from conductor_core.cli.live import LiveView, watch
from conductor_core.cli.output import print_json, print_notes, print_outcome
from conductor_core.cli.rerun import rerun_command
from conductor_core.cli.task_file import read_tasks
from conductor_core.cli.text import one_line
from conductor_core.cli.train import train_command
from conductor_core.cli.wiring import opened_engine, opened_pool, opened_store
from conductor_core.engine.pool import read_specs
from conductor_core.engine.request import RunRequest
from conductor_core.errors import BadInput, RunUnreadable
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from storage import Store

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="See, steer and re-run what a Conductor's workflow of language models does.",
)
app.command("rerun")(rerun_command)
app.command("train")(train_command)
app.command("evaluate")(evaluate_command)


@app.command()
def plan(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="FILE.jsonl", help="Plan the task of each line instead.")
    ] = None,
    conductor: options.Conductor = None,
    pool: options.Pool = None,
    db: options.Db = None,
    exclude: options.Exclude = None,
    seed: options.Seed = None,
    max_steps: options.MaxSteps = None,
    max_depth: options.MaxDepth = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Let the Conductor write a workflow for TASK, and stop there."""
    settings = inputs.read_settings()
    if (task is None) == (tasks is None):
        raise BadInput("give a TASK, or --tasks FILE.jsonl" if task is None else "give a TASK or --tasks, not both")
    texts = [inputs.given_text(task, "task")] if task is not None else read_tasks(tasks or Path())
    budget = options.limits(settings, max_steps=max_steps, max_depth=max_depth)
    traces: list[RunTrace] = []
    code = 0
    with opened_store(db, settings) as store, opened_engine(store, settings) as host:
        for number, text in enumerate(texts, start=1):
            request = RunRequest(
                task=text,
                limits=budget,
                seed=settings.seed if seed is None else seed,
                plan_only=True,
                excluded=tuple(exclude or ()),
            )
            run_id = host.start(request, conductor or settings.conductor, pool or settings.pool)
            trace, this_code = watch(store, host, run_id, LiveView(quiet=quiet or len(texts) > 1, answer=False))
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


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow file: JSON, or the three Python lists.")],
    pool: options.Pool = None,
    exclude: options.Exclude = None,
    max_steps: options.MaxSteps = None,
    max_depth: options.MaxDepth = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _db: options.UnusedDb = None,
) -> int:
    """Say what a workflow FILE means, and every fault and warning with its place."""
    settings = inputs.read_settings()
    excluded = set(exclude or ())
    names = [spec.name for spec in read_specs(pool or settings.pool, settings)]
    if unknown := excluded - set(names):
        raise BadInput(f"--exclude: the pool has no worker {', '.join(sorted(unknown))}; it has {', '.join(names)}")
    parsed = inputs.read_workflow(file)
    budget = options.limits(settings, max_steps=max_steps, max_depth=max_depth)
    agents = [name for name in names if name not in excluded]
    checked = inputs.check(parsed, agents, budget)
    if as_json:
        print_json(documents.check_document(parsed, checked, agents))
    else:
        print("\n".join(report.check_lines(parsed, checked)))
    if not checked.faults:
        return 0
    count = checked.fault_count
    line = f"{one_line(str(file))} has {count:,} fault{'s' if count > 1 else ''} and cannot be run"
    print(f"error: {line}", file=sys.stderr)
    return 2


@app.command()
def run(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    workflow: options.WorkflowFile = None,
    tasks: options.Tasks = None,
    concurrency: options.Concurrency = 8,
    resume: options.Resume = False,
    conductor: options.Conductor = None,
    pool: options.Pool = None,
    db: options.Db = None,
    exclude: options.Exclude = None,
    seed: options.Seed = None,
    max_steps: options.MaxSteps = None,
    max_tokens: options.MaxTokens = None,
    max_usd: options.MaxUsd = None,
    max_seconds: options.MaxSeconds = None,
    max_depth: options.MaxDepth = None,
    on_incomplete: options.Incomplete = None,
    give_question: options.GiveQuestion = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Carry out TASK: the Conductor plans, workers answer. The answer goes to stdout, progress to stderr."""
    settings = inputs.read_settings()
    budget = options.limits(
        settings,
        max_steps=max_steps,
        max_tokens=max_tokens,
        max_usd=max_usd,
        max_seconds=max_seconds,
        max_depth=max_depth,
    )
    pool_ref, excluded = pool or settings.pool, tuple(exclude or ())
    request = RunRequest(
        task=task or "",
        limits=budget,
        seed=settings.seed if seed is None else seed,
        excluded=excluded,
        on_incomplete=on_incomplete,
        give_question=give_question,
    )
    conductor_ref = conductor or settings.conductor
    if tasks is not None or resume:
        file, shown = batch_file(tasks, alone=task is None and workflow is None), Shown(as_json, quiet)
        given_batch = BatchOptions(file, conductor_ref, pool_ref, request, db, concurrency, shown, resume=resume)
        return run_batch(given_batch, settings)
    given: Workflow | None = None
    if workflow is not None:
        parsed = inputs.read_workflow(workflow)
        task = parsed.task if task is None else task
        with opened_pool(pool_ref, settings, settings.seed, excluded) as there:
            agents = list(there.workers)
        given = inputs.valid_workflow(parsed, agents, budget, f"workflow file {one_line(str(workflow))}: ")
    if task is None:
        raise BadInput("give a TASK" + (": the workflow file holds none" if workflow is not None else ""))
    request = replace(request, task=inputs.given_text(task, "task"), workflow=given)
    needed = given is None or any(step.agent == CONDUCTOR_AGENT for step in given.steps)
    with opened_store(db, settings) as store, opened_engine(store, settings) as host:
        run_id = host.start(request, conductor_ref if needed else None, pool_ref)
        view = LiveView(quiet=quiet, answer=not as_json)
        trace, code = watch(store, host, run_id, view)
    print_outcome(trace, view, as_json=as_json)
    return code


@app.command()
def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    event: Annotated[
        int | None,
        typer.Option("--event", metavar="N", help="Only the record of event N, as it lies there, damaged or not."),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    """Print the whole record of a run: plan, steps, what each saw and was not shown, spending, answer."""
    settings = inputs.read_settings()
    fault: RunUnreadable | None = None
    with opened_store(db, settings, read=True) as store:
        run_id = store.resolve(run_id)
        if event is not None:
            return _show_event(store, run_id, event, as_json=as_json)
        try:
            trace, _ = store.trace(run_id)
        except RunUnreadable as error:
            if error.trace is None:
                raise
            trace, fault = error.trace, error
        if fault is None:
            print_notes(store)
    if as_json:
        print_json(documents.run_document(trace, whole=True, fault=fault))
    else:
        for line in report.run_lines(trace, fault):
            print(line)
    if fault is None:
        return 0
    record = "" if fault.sequence is None else f"; --event {fault.sequence} prints that event as it lies there"
    print(f"error: {one_line(f'{fault}{record}', 2000)}", file=sys.stderr)
    return 2


def _show_event(store: Store, run_id: str, sequence: int, *, as_json: bool) -> int:
    found = store.raw_events(run_id, after=sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        raise BadInput(f"run {run_id} has no event {sequence}")
    if as_json:
        print_json(documents.raw_event_document(found[0]))
    else:
        print(report.raw_event_line(found[0]))
    return 0


@app.command()
def runs(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    search: Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Only tasks that hold TEXT.")] = None,
    status: Annotated[
        report.Status | None, typer.Option("--status", help="Only runs of this status.", show_choices=True)
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    """List runs, newest first."""
    settings = inputs.read_settings()
    with opened_store(db, settings, read=True) as store:
        found = store.runs(limit=limit, search=search, status=None if status is None else status.value)
        print_notes(store, found)
    if as_json:
        print_json({"runs": [run.model_dump(mode="json", exclude={"sequence"}) for run in found]})
    else:
        for line in report.runs_lines(found):
            print(line)
    return 0

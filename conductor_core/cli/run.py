"""``run``: one task, or a file of them. ``--resume`` takes from the batch what its arguments leave out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.chat.messages import ImagePart, LoadedImage
from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import opened_store
from conductor_core.cli.live import ProgressView, opened_engine, print_outcome, ready, watch
from conductor_core.cli.output import one_line
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import asks_conductor
from conductor_core.errors import BadInput
from conductor_core.run.request import MOST_IMAGES, RunRequest, read_gate
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow

_CONCURRENCY = 8


def last_run_of_batch(tasks: Path | None, db: str | None, settings: Settings) -> RunTrace | None:
    """Returns the newest run of the file's last batch that asked a Conductor, else the newest; None: there is none.

    Raises: StoreError.
    """
    if tasks is None:
        return None
    with opened_store(db, settings) as store:
        last = next(iter(store.batches(limit=1, name=tasks.name)), None)
        runs = [] if last is None else store.runs(limit=max(1, last.runs), batch=last.batch_id)
        if not runs:
            return None
        chosen = next((run for run in runs if run.conductor is not None), runs[0])
        return store.trace(chosen.run_id)[0]


def limits_of_batch(before: RunTrace, settings: Settings) -> Limits:
    """Returns the budgets with which the batch of ``before`` began. The one in USD is for all its runs together."""
    kept = None if before.batch is None else before.batch.max_usd
    return before.limits.model_copy(update={"max_usd": settings.max_usd if kept is None else kept})


def as_before(
    before: RunTrace,
    request: RunRequest,
    settings: Settings,
    *,
    conductor: str | None,
    pool: str | None,
    seed: int | None,
) -> RunRequest:
    """Returns ``request``. What ``before`` had fills in all that was not given (None)."""
    name = settings.conductor if before.conductor is None else before.conductor.name
    kept = {
        "conductor": conductor or name,
        "pool": pool or before.pool,
        "excluded": _excluded(before, request.excluded, pool),
        "seed": before.seed if seed is None else seed,
        "on_incomplete": request.on_incomplete or before.on_incomplete,
        "give_question": before.give_question if request.give_question is None else request.give_question,
    }
    return request.model_copy(update=kept)


def _excluded(before: RunTrace, given: tuple[str, ...], pool: str | None) -> tuple[str, ...]:
    """Returns what is left out of the pool: of the recorded one, what is not out of it already."""
    if pool is None:
        return tuple(name for name in given if name not in before.pool.excluded)
    return given or (before.pool.excluded if Path(pool).stem == before.pool.name else ())


def run(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    workflow: options.WorkflowFile = None,
    tasks: options.Tasks = None,
    concurrency: options.Concurrency = None,
    resume: options.Resume = False,
    conductor: options.Conductor = None,
    lora: options.Lora = None,
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
    only_what_answers: options.OnlyWhatAnswers = False,
    gate: options.Gates = None,
    no_wait: options.NoWait = False,
    image: options.Images = None,
    conversation: options.Conversation = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    settings, conductor = inputs.read_settings(), inputs.with_lora(conductor, lora)
    if tasks is not None or resume:
        if gate:
            raise BadInput("--gate is for one TASK: the runs of a file would all wait; leave --gate or --tasks out")
        if image or conversation:
            raise BadInput("--image and --conversation come with one TASK: leave them or --tasks out")
    before = last_run_of_batch(tasks, db, settings) if resume else None
    row = None if before is None else before.batch
    budget = options.limits(
        settings if before is None else limits_of_batch(before, settings),
        max_steps=max_steps,
        max_tokens=max_tokens,
        max_usd=max_usd,
        max_seconds=max_seconds,
        max_depth=max_depth,
    )
    request = RunRequest(
        task=task or "",
        conductor=conductor or settings.conductor,
        pool=pool or settings.pool,
        limits=budget,
        seed=settings.seed if seed is None else seed,
        excluded=tuple(exclude or ()),
        on_incomplete=on_incomplete,
        give_question=give_question,
        gates=tuple(dict.fromkeys(map(read_gate, gate or ()))),
    )
    if tasks is not None or resume:
        from conductor_core.cli.batch import BatchOptions, batch_file, run_batch  # only a file of tasks needs it

        file = batch_file(tasks, alone=task is None and workflow is None)
        if before is not None:
            request = as_before(before, request, settings, conductor=conductor, pool=pool, seed=seed)
        request = ready(request, settings, only_answering=only_what_answers, quiet=quiet)
        at_once = concurrency or (None if row is None else row.concurrency) or _CONCURRENCY
        return run_batch(BatchOptions(file, request, db, at_once, as_json, quiet, resume), settings)
    turns_before, task = inputs.read_conversation(conversation, task)
    images = _read_images(image or [])
    more = {"images": tuple(map(ImagePart.of, images)), "turns_before": turns_before}
    request = _of_one_task(request, task, workflow, settings).model_copy(update=more)
    request = ready(request, settings, only_answering=only_what_answers, quiet=quiet)
    with opened_store(db, settings) as store, opened_engine(store, settings) as host:
        store.keep_images(images)
        view = ProgressView(quiet=quiet, answer=not as_json, db=db)
        trace, code = watch(store, host, host.start(request), view, until_it_waits=no_wait)
    print_outcome(trace, view, as_json=as_json)
    return code


def _read_images(files: Sequence[Path]) -> list[LoadedImage]:
    """Reads the images that come with the task. Raises: BadInput."""
    if not files:
        return []
    from conductor_core.chat.images import read_image  # only a task with images needs the library that decodes them

    if len(files) > MOST_IMAGES:
        raise BadInput(f"{len(files)} images are given; at most {MOST_IMAGES} can come with one task")
    return [read_image(file) for file in files]


def _of_one_task(request: RunRequest, task: str | None, file: Path | None, settings: Settings) -> RunRequest:
    """Returns ``request`` with its task and its workflow, as given or as in ``file``. Raises: BadInput."""
    given: Workflow | None = None
    if file is not None:
        parsed = inputs.read_workflow(file)
        task = parsed.task if task is None else task
        agents = [spec.name for spec in pool_info(request.pool or settings.pool, settings, request.excluded).workers]
        given = inputs.valid_workflow(parsed, agents, request.limits, f"workflow file {one_line(str(file))}: ")
    if task is None:
        raise BadInput("give a TASK" + (": the workflow file holds none" if file is not None else ""))
    asked = request.conductor if asks_conductor(given) else None
    update = {"task": inputs.task_text(task), "workflow": given, "conductor": asked}
    return request.model_copy(update=update)

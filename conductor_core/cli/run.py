"""``run``: one task, or a file of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.chat.messages import ImagePart, LoadedImage
from conductor_core.cli import inputs, options
from conductor_core.cli.live import ProgressView, print_outcome, ready, watch
from conductor_core.cli.output import one_line
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import asks_conductor
from conductor_core.errors import BadInput
from conductor_core.run.request import MOST_IMAGES, read_gate
from conductor_core.workflow.model import Workflow


@dataclass(frozen=True)
class RunOptions(options.Options):
    only_what_answers: Annotated[
        bool,
        typer.Option("--only-what-answers", help="Check the workers first and leave out those that would not answer."),
    ] = False
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE",
            help="Wait for an approval: plan (before any worker is called), steps (before every step), step:N, usd:X "
            "(if the highest possible cost exceeds X USD), provider:NAME (before anything goes there) or tools "
            "(before each call of a tool that has effects). May be repeated.",
        ),
    ] = None
    no_wait: Annotated[bool, typer.Option("--no-wait", help="End with exit code 3 as soon as the run waits.")] = False
    image: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A PNG, JPEG, WebP or GIF image that comes with TASK. The steps that receive the task see it. May be "
            "repeated.",
        ),
    ] = None
    conversation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='The conversation before TASK: a JSON list of {"role": "user" or "assistant", "content": TEXT}. '
            "Without TASK, its last turn is the task.",
        ),
    ] = None


_SHARED = (
    *options.OF_A_RUN, "only_what_answers", "gate", "no_wait", "image", "conversation", "as_json", "quiet",
)  # fmt: skip


def run(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    workflow: options.WorkflowFile = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Run each row {id, task, workflow?} of this file; --max-usd covers all rows together.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="How many tasks of a file run at once. Default: 8, or with --resume as many as before.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the last batch of this file with the options it had. No finished step is paid again.",
        ),
    ] = False,
    given: Annotated[RunOptions, *_SHARED] = RunOptions(),
) -> int:
    if tasks is not None or resume:
        from conductor_core.cli.batch import run_tasks  # only a file of tasks needs it

        if given.gate:
            raise BadInput("--gate is for one TASK: the runs of a file would all wait; leave --gate or --tasks out")
        if given.image or given.conversation:
            raise BadInput("--image and --conversation come with one TASK: leave them or --tasks out")
        if tasks is None:
            raise BadInput("--resume needs --tasks: `rerun RUN_ID` resumes a single run")
        if task is not None or workflow is not None:
            raise BadInput("give --tasks, or a TASK or --workflow, not both: a row may bring its own workflow")
        return run_tasks(tasks, given, concurrency, resume=resume, only_answering=given.only_what_answers)
    turns_before, task = inputs.read_conversation(given.conversation, task)
    images = _read_images(given.image or [])
    plan: Workflow | None = None
    if workflow is not None:
        parsed = inputs.read_workflow(workflow)
        task = parsed.task if task is None else task
        workers = pool_info(given.pool or given.settings.pool, given.settings, tuple(given.exclude or ())).workers
        what = f"workflow file {one_line(str(workflow))}: "
        plan = inputs.valid_workflow(parsed, [spec.name for spec in workers], given.limits(), what)
    if task is None:
        raise BadInput("give a TASK" + (": the workflow file holds none" if workflow is not None else ""))
    request = given.request(
        task=inputs.task_text(task),
        workflow=plan,
        gates=tuple(dict.fromkeys(map(read_gate, given.gate or ()))),
        images=tuple(map(ImagePart.of, images)),
        turns_before=turns_before,
        **({} if asks_conductor(plan) else {"conductor": None}),
    )
    request = ready(request, given, only_answering=given.only_what_answers)
    with given.store() as store, given.engine(store) as host:
        store.keep_images(images)
        view = ProgressView(quiet=given.quiet, answer=not given.as_json, db=given.db)
        trace, code = watch(store, host, host.start(request), view, until_it_waits=given.no_wait)
    print_outcome(trace, view, as_json=given.as_json)
    return code


def _read_images(files: Sequence[Path]) -> list[LoadedImage]:
    """Reads the images that come with the task. Raises: BadInput."""
    if not files:
        return []
    from conductor_core.chat.images import read_image  # only a task with images needs the library that decodes them

    if len(files) > MOST_IMAGES:
        raise BadInput(f"{len(files)} images are given; at most {MOST_IMAGES} can come with one task")
    return [read_image(file) for file in files]

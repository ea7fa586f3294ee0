"""``rerun``: one step changed, or a whole workflow; what is unchanged is reused. Without a change: resume, or again."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.cli import inputs, options, repeats, step_options
from conductor_core.cli.live import ProgressView, watch
from conductor_core.cli.output import print_json, print_outcome
from conductor_core.cli.ready import ready
from conductor_core.cli.rerun_target import RerunTarget
from conductor_core.cli.text import one_line
from conductor_core.cli.wiring import opened_engine, opened_store
from conductor_core.engine.estimates import RerunPreview, StepForecast, edit_step, preview
from conductor_core.engine.pools import images_given, pool_info
from conductor_core.engine.request import asks_conductor, overrides_from, rerun_of, resume_of
from conductor_core.errors import BadInput
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow

if TYPE_CHECKING:
    from storage import Store


Step = Annotated[int | None, typer.Option("--step", metavar="N", help="The step to change; the first is 0.")]
Instruction = Annotated[str | None, typer.Option("--instruction", metavar="TEXT", help="Its new instruction.")]
Agents = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="NAME", help="Its new agent. With --only or --from: one or more to ask instead."),
]
Access = Annotated[
    str | None, typer.Option("--access", metavar="LIST", help="What it may see: all, none, or steps as in 0,2.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run and what be reused; do nothing.")]


def rerun_command(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    step: Step = None,
    instruction: Instruction = None,
    agent: Agents = None,
    access: Access = None,
    workflow: options.WorkflowFile = None,
    only: step_options.Only = None,
    from_step: step_options.From = None,
    times: step_options.Times = None,
    output: step_options.Outputs = None,
    pin: step_options.Pins = None,
    release: step_options.Releases = None,
    dry_run: DryRun = False,
    conductor: options.Conductor = None,
    precision: options.Precision = None,
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
    """Run RUN_ID again as a new run, with one step or the workflow changed; unchanged steps are reused.

    An interrupted run is resumed where it stopped. By default with the Conductor, pool, seed and budgets of RUN_ID.

    With --only or --from, a step is asked afresh although its answer is recorded; then --seed is the step's.
    """
    settings = inputs.read_settings(precision)
    asked = step_options.read(only, from_step, times, agent, seed)
    edit = Edit(step, instruction, None if asked else _one(agent), access, workflow)
    if asked is not None and edit.any:
        raise BadInput("--only and --from ask steps of the plan as it is: give them without --step and --workflow")
    if workflow is not None and (output or pin or release):
        raise BadInput("--output, --pin and --release name steps of the recorded plan: give them without --workflow")
    own_seed = None if asked else seed
    changes = {"seed": own_seed, "on_incomplete": on_incomplete, "give_question": give_question}
    budgets = {"max_steps": max_steps, "max_tokens": max_tokens, "max_usd": max_usd}
    budgets |= {"max_seconds": max_seconds, "max_depth": max_depth}
    target = RerunTarget(conductor, pool, tuple(exclude or ()))
    with opened_store(db, settings, read=True) as store:
        source = _source(store, run_id, changes, budgets)
        by_hand = step_options.by_hand(source, output or (), pin or (), release or ())
        if asked is None:
            rerun = prepare(source, edit, settings, target, store.resumed_from(source), by_hand)
        else:
            many = repeats.prepare(source, asked, by_hand, settings, target)
            if asked.runs > 1:
                return repeats.run(store, many, settings, dry_run=dry_run, as_json=as_json, quiet=quiet)
            rerun = Rerun(many.requests[0], many.forecast.each[0])
        if dry_run:
            return print_preview(rerun.forecast, as_json=as_json, max_usd=source.limits.max_usd)
        return _carry_out(store, rerun, settings, db, as_json=as_json, quiet=quiet)


def _source(
    store: "Store", run_id: str, changes: Mapping[str, object], budgets: Mapping[str, float | None]
) -> RunTrace:
    """Returns the run, with the settings and the budgets that were given (not None). Raises: BadInput, UnknownRun."""
    source, _ = store.trace(store.resolve(run_id))
    if source.status == "waiting":
        raise BadInput(f"run {source.run_id} waits for an approval: approve, deny or cancel it first")
    if not source.ended:
        raise BadInput(f"run {source.run_id} is still going on: wait for its end, or cancel it")
    given = {name: value for name, value in changes.items() if value is not None}
    return source.model_copy(update={**given, "limits": options.limits(source.limits, **budgets)})


def _carry_out(
    store: "Store", rerun: "Rerun", settings: Settings, db: str | None, *, as_json: bool, quiet: bool
) -> int:
    """Starts the run, shows it until its end, and prints what came of it. Returns the exit code."""
    called = None if rerun.forecast is None else {step.agent for step in rerun.forecast.will_run}
    ready(rerun.request, settings, quiet=quiet, agents=called)
    if rerun.forecast is not None and not quiet:
        print("\n".join(preview_lines(rerun.forecast)), file=sys.stderr, flush=True)
    with opened_engine(store, settings) as host:
        new_id = host.start(rerun.request)
        view = ProgressView(quiet=quiet, answer=not as_json, db=db)
        trace, code = watch(store, host, new_id, view)
    print_outcome(trace, view, as_json=as_json)
    return code


def _note_conductor(own: str, source: RunTrace) -> None:
    """Says that a step asks the user's own Conductor, because ``source``, perhaps a file from elsewhere, names none."""
    why = f"run {source.run_id} names no Conductor, and a step asks one"
    print(f"note: {why}: yours is used, {one_line(own)}; --conductor chooses another", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Edit:
    """Holds what to change, as the arguments say it, unread. All None: nothing."""

    step: int | None
    instruction: str | None
    agent: str | None
    access: str | None
    file: Path | None

    @property
    def any(self) -> bool:
        return self != Edit(None, None, None, None, None)


@dataclass(frozen=True)
class Rerun:
    """Is a re-run that is ready to start. ``forecast`` is None if the source stopped before it had a plan."""

    request: RunRequest
    forecast: RerunPreview | None


def prepare(
    source: RunTrace,
    edit: Edit,
    settings: Settings,
    target: RerunTarget,
    before: tuple[RunTrace, ...],
    by_hand: Overrides | None = None,
) -> Rerun:
    """Works out what is run, by which workers, and what that will take.

    ``source`` already has the budgets, the seed and the settings of the re-run. ``before``: the runs that it took up,
    latest first. ``by_hand``: of its steps; None: what it has. Raises: BadInput.
    """
    pool_ref = target.pool_of(source)
    specs = pool_info(pool_ref, settings, target.excluded).workers
    agents = [spec.name for spec in specs]
    changed = changed_workflow(source, agents, edit)
    resume = source.status == "interrupted" and changed is None
    workflow = changed or source.root.workflow or source.workflow
    if workflow is None and not resume:
        raise BadInput(f"run {source.run_id} has no workflow to run again: give one with --workflow, or use run")
    needed = asks_conductor(workflow)
    forecast, origins = None, None
    if workflow is not None:
        workers = {spec.name: spec for spec in specs}
        images = images_given(source.conversation, workers, every_step=source.give_question)
        what = f"run {source.run_id} cannot be run again: "
        workflow = inputs.valid_workflow(workflow, agents, source.limits, what, images)
        info = target.info(settings) if needed else None
        # With --step, each step stays what it was. Steps of a file are matched by content.
        origins = None if edit.step is None else tuple(range(len(workflow.steps)))
        kept = overrides_from(source) if resume and by_hand is None else by_hand
        forecast = preview(source, workflow, specs, conductor=info, origins=origins, overrides=kept)
    if resume:
        request = resume_of(source, *before, door="cli")
        request = request if by_hand is None else request.model_copy(update={"overrides": by_hand})
    else:
        request = rerun_of(source, workflow, door="cli", origins=origins, overrides=by_hand)
    asked = target.asked(source, settings, needed=needed)
    if needed and target.conductor is None and source.conductor is None:
        _note_conductor(asked["conductor"], source)
    return Rerun(request.model_copy(update=asked), forecast)


def _one(agents: Sequence[str] | None) -> str | None:
    """Returns the agent that a step gets. Raises: BadInput for several."""
    if agents is not None and len(agents) > 1:
        raise BadInput("a step has one agent: several --agent go with --only or --from")
    return agents[0] if agents else None


def changed_workflow(source: RunTrace, agents: list[str], edit: Edit) -> Workflow | None:
    """Returns the workflow that ``edit`` asks for, None for that of ``source``, unchanged. Raises: BadInput."""
    step = edit.step
    edits = edit.instruction is not None or edit.agent is not None or edit.access is not None
    if edit.file is not None:
        if edits or step is not None:
            raise BadInput("give --workflow, or --step with what to change, not both")
        what = f"workflow file {one_line(str(edit.file))}: "
        return inputs.valid_workflow(inputs.read_workflow(edit.file), agents, source.limits, what)
    if step is None and not edits:
        return None
    if step is None:
        raise BadInput("which step? Give --step N with --instruction, --agent or --access")
    if not edits:
        raise BadInput(f"what of step {step}? Give --instruction, --agent or --access")
    workflow = source.root.workflow
    if workflow is None:
        raise BadInput(f"run {source.run_id} has no workflow, so no step {step}")
    if not 0 <= step < len(workflow.steps):
        raise BadInput(f"--step {step}: the steps of run {source.run_id} are 0 to {len(workflow.steps) - 1}")
    edited = edit_step(
        workflow,
        step,
        instruction=None if edit.instruction is None else inputs.given_text(edit.instruction, "instruction"),
        agent=edit.agent,
        access=None if edit.access is None else inputs.parse_access(edit.access),
    )
    return inputs.valid_workflow(edited, agents, source.limits, "")


def print_preview(forecast: RerunPreview | None, *, as_json: bool, max_usd: float | None = None) -> int:
    """Prints what ``--dry-run`` shows. None: the run stopped before it had a plan, so all of it would run."""
    if forecast is None:
        forecast = RerunPreview(will_run=(), will_reuse=(), estimated_tokens=0, estimated_usd=None)
        print("the run stopped before it had a plan: the Conductor will write one", file=sys.stderr)
    if as_json:
        print_json(forecast.model_dump(mode="json"))
    else:
        print("\n".join(preview_lines(forecast)))
        if max_usd is not None:
            over = f"{forecast.most_usd:.6f} USD" if forecast.most_usd else "nothing that is known"
            print(f"--max-usd {max_usd:g} may be exceeded by one call at most: {over}")
    return 0


def preview_lines(forecast: RerunPreview) -> list[str]:
    """Says which steps will run and which are reused, each with its reason."""
    steps = [(step, "run") for step in forecast.will_run] + [(step, "reuse") for step in forecast.will_reuse]
    width = max((len(one_line(step.agent, 40)) for step, _ in steps), default=0)
    last = max((len(str(step.index)) for step, _ in steps), default=0)
    lines = [
        f"  {step.index:>{last}}  {what:<5}  {one_line(step.agent, 40):<{width}}  "
        f"{one_line(step.reason, 300)}{_reused(step)}"
        for step, what in sorted(steps, key=lambda pair: pair[0].index)
    ]
    total = f"about {forecast.estimated_tokens} tokens, {forecast.cost.in_line}"
    on_top = f"; {forecast.on_top}" if forecast.on_top else ""
    return [*lines, f"{len(forecast.will_run)} to run, {len(forecast.will_reuse)} reused: {total}{on_top}"]


def _reused(step: StepForecast) -> str:
    if step.reused_run_id is None or step.reused_path is None:
        return ""
    imported = "imported " if step.reused_imported else ""
    return f": reuses the answer of step {label(step.reused_path)} of {imported}run {step.reused_run_id}"

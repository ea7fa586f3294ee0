"""``rerun``: one step changed, or a whole workflow; what is unchanged is reused. Without a change: resume, or again."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_core.analysis import documents
from conductor_core.chat.messages import ConductorInfo
from conductor_core.cli import inputs, options
from conductor_core.cli.live import ProgressView, all_ended, print_outcome, ready, watch
from conductor_core.cli.options import Options
from conductor_core.cli.output import one_line
from conductor_core.engine import repeats
from conductor_core.engine import request as engine_request
from conductor_core.engine.batch import BatchSpent
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.estimates import RerunPreview, StepForecast, edit_step, preview
from conductor_core.engine.pools import images_given, pool_info, who_may_be_called
from conductor_core.errors import BadInput
from conductor_core.formats import seconds
from conductor_core.run.actor import local_caller
from conductor_core.run.costs import cost_so_far
from conductor_core.run.request import MOST_CHARACTERS, Overrides, RunRequest, written_by
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from conductor_core.workflow.model import Workflow

if TYPE_CHECKING:
    from storage import Store


@dataclass(frozen=True)
class RerunOptions(Options):
    step: Annotated[int | None, typer.Option(metavar="N", help="The step to change; the first is 0.")] = None
    instruction: Annotated[str | None, typer.Option(metavar="TEXT", help="Its new instruction.")] = None
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Its new agent. With --only or --from: one or more to ask instead."),
    ] = None
    access: Annotated[
        str | None, typer.Option(metavar="LIST", help="What it may see: all, none, or steps as in 0,2.")
    ] = None
    workflow: options.WorkflowFile = None
    only: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ask step N afresh, and end with its answer. What it reads is reused."),
    ] = None
    from_step: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="Ask step N and all that its answer reaches afresh; reuse the rest."),
    ] = None
    times: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=repeats.MOST_TIMES,
            help="With --only or --from: make so many runs with fresh seeds, and say how far their answers agree. "
            "--max-usd and --max-tokens then cover all of them together.",
        ),
    ] = None
    output: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N=TEXT|@FILE",
            help="Write the output of step N by hand: its worker is not asked. The record says that a person wrote it. "
            "May be repeated.",
        ),
    ] = None
    pin: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Keep the recorded output of step N, whatever it would see. May be repeated."),
    ] = None
    release: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Let the worker of step N answer again, whose output RUN_ID wrote or pinned."),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run and what be reused; do nothing.")] = (
        False
    )

    @property
    def again(self) -> repeats.Again | None:
        """What is asked afresh; None: nothing. Raises: BadInput."""
        if self.only is not None and self.from_step is not None:
            raise BadInput("give --only or --from, not both")
        step, extent = (self.from_step, "from") if self.only is None else (self.only, "only")
        if step is not None:
            asked = {"step": step, "extent": extent, "times": self.times or 1, "agents": self.agent or ()}
            return repeats.Again.model_validate(asked | {"seed": self.seed})
        if self.times is not None:
            raise BadInput("--times what? Give --only N or --from N with it")
        return None


_SHARED = (
    "step", "instruction", "agent", "access", "workflow", "only", "from_step", "times", "output", "pin", "release",
    "dry_run", *options.OF_A_RUN, "as_json", "quiet",
)  # fmt: skip


class RerunTarget:
    """A run that is run again, and who does it: its own Conductor and pool where the options name no others."""

    def __init__(self, source: RunTrace, given: RerunOptions) -> None:
        """``source`` already has the budgets, the seed and the settings of the re-run. Raises: BadInput."""
        self.source, self.given, self._settings = source, given, given.settings
        self._conductor = inputs.with_lora(given.conductor, given.lora)
        self._pool, self._excluded = given.pool or source.pool, tuple(given.exclude or ())
        self.specs = pool_info(self._pool, self._settings, self._excluded).workers
        self.agents = [spec.name for spec in self.specs]

    def valid(self, workflow: Workflow) -> Workflow:
        """Raises: BadInput if ``workflow`` cannot be run by these workers."""
        source, workers = self.source, {spec.name: spec for spec in self.specs}
        images = images_given(source.conversation, workers, every_step=source.give_question)
        what = f"run {source.run_id} cannot be run again: "
        return inputs.valid_workflow(workflow, self.agents, source.limits, what, images)

    def info(self, workflow: Workflow | None) -> ConductorInfo | None:
        """Describes the Conductor that was named in place of the source's; its answers are not the source's.

        None: none was named, or ``workflow`` asks none.
        """
        if self._conductor is None or not engine_request.asks_conductor(workflow):
            return None
        # Imported when used: naming one is rare here.
        from conductor_core.conductors.catalogue import open_conductor

        return open_conductor(self._conductor, self._settings).info

    def asked(self, workflow: Workflow | None) -> dict[str, Any]:
        """Returns the fields of the request."""
        conductor, before = None, self.source.conductor
        if engine_request.asks_conductor(workflow):
            conductor = self._conductor or (self._settings.conductor if before is None else before.name)
        return {"conductor": conductor, "pool": self._pool, "excluded": self._excluded}

    def prepare(
        self, taken_up: tuple[RunTrace, ...], by_hand: Overrides | None = None
    ) -> tuple[RunRequest, RerunPreview | None]:
        """Works out what is run and what that will take; None if the source stopped without a plan.

        ``taken_up``: the runs that it took up, latest first. ``by_hand``: of its steps; None: what it has. Raises:
        BadInput.
        """
        source = self.source
        changed = self._changed()
        resume = source.status == "interrupted" and changed is None
        workflow = changed or source.root.workflow or source.workflow
        if workflow is None and not resume:
            raise BadInput(f"run {source.run_id} has no workflow to run again: give one with --workflow, or use run")
        forecast, origins = None, None
        resumed = engine_request.resume_of(source, *taken_up, door="cli") if resume else None
        if resumed is not None:
            # Whatever is given by hand, unfinished steps go on from their recorded turns: their calls had effects.
            turns = resumed.overrides.turns
            by_hand = resumed.overrides if by_hand is None else engine_request.with_turns(by_hand, turns)
        if workflow is not None:
            workflow = self.valid(workflow)
            # With --step, each step stays what it was. Steps of a file are matched by content.
            origins = None if self.given.step is None else tuple(range(len(workflow.steps)))
            forecast = preview(
                source, workflow, self.specs, conductor=self.info(workflow), origins=origins, overrides=by_hand
            )
        if resumed is not None:
            request = resumed.model_copy(update={"overrides": by_hand})
        else:
            request = engine_request.rerun_of(source, workflow, door="cli", origins=origins, overrides=by_hand)
        asked = self.asked(workflow)
        if asked["conductor"] is not None and self._conductor is None and source.conductor is None:
            # Its steps ask the user's own, because ``source``, perhaps a file from elsewhere, names none.
            why = f"run {source.run_id} names no Conductor, and a step asks one"
            own = one_line(asked["conductor"])
            print(f"note: {why}: yours is used, {own}; --conductor chooses another", file=sys.stderr, flush=True)
        return request.model_copy(update=asked), forecast

    def _changed(self) -> Workflow | None:
        """Returns the workflow that the options ask for, None for that of the source. Raises: BadInput."""
        given, source, step = self.given, self.source, self.given.step
        edits = (given.instruction, given.agent or None, given.access) != (None, None, None)
        if given.workflow is not None:
            if edits or step is not None:
                raise BadInput("give --workflow, or --step with what to change, not both")
            what = f"workflow file {one_line(str(given.workflow))}: "
            return inputs.valid_workflow(inputs.read_workflow(given.workflow), self.agents, source.limits, what)
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
            instruction=None if given.instruction is None else inputs.given_text(given.instruction, "instruction"),
            agent=given.agent[0] if given.agent else None,
            access=None if given.access is None else inputs.parse_access(given.access),
        )
        return inputs.valid_workflow(edited, self.agents, source.limits, "")

    def prepare_many(
        self, again: repeats.Again, by_hand: Overrides | None
    ) -> tuple[list[RunRequest], repeats.RepeatsForecast]:
        """Works out what is run and what that will take. Raises: BadInput."""
        source, plan = self.source, self.source.root.workflow
        for variant in repeats.variants(source, again, self.agents):
            self.valid(variant)
        requests = repeats.repeat_requests(source, again, self.agents, door="cli", base=by_hand)
        forecast = repeats.forecast_repeats(source, again, self.specs, by_hand, self.info(plan))
        return [each.model_copy(update=self.asked(plan)) for each in requests], forecast


def rerun(run_id: options.RunId, given: Annotated[RerunOptions, *_SHARED] = RerunOptions()) -> int:
    """An interrupted run is resumed where it stopped. By default with the Conductor, pool, seed and budgets of RUN_ID.

    With --only or --from, a step is asked afresh although its answer is recorded; then --seed is the step's.
    """
    asked = given.again
    if asked is None and len(given.agent or ()) > 1:
        raise BadInput("a step has one agent: several --agent go with --only or --from")
    if asked is not None and (given.step, given.instruction, given.access, given.workflow) != (None,) * 4:
        raise BadInput("--only and --from ask steps of the plan as it is: give them without --step and --workflow")
    if given.workflow is not None and (given.output or given.pin or given.release):
        raise BadInput("--output, --pin and --release name steps of the recorded plan: give them without --workflow")
    with given.store(read=True) as store:
        source = _source(store, run_id, given)
        target = RerunTarget(source, given)
        by_hand = overrides_by_hand(source, given.output or (), given.pin or (), given.release or ())
        if asked is None:
            request, forecast = target.prepare(store.resumed_from(source), by_hand)
        else:
            requests, whole = target.prepare_many(asked, by_hand)
            if asked.runs > 1:
                return run_many(store, source, asked, requests, whole, given)
            request, forecast = requests[0], whole.each[0]
        if given.dry_run:
            return print_preview(forecast, given, max_usd=source.limits.max_usd)
        called = None if forecast is None else {step.agent for step in forecast.will_run}
        ready(request, given, agents=called)
        if forecast is not None:
            given.say(*preview_lines(forecast))
        view = ProgressView(quiet=given.quiet, answer=not given.as_json, db=given.db)
        with given.engine(store) as host:
            trace, code = watch(store, host, host.start(request), view)
    print_outcome(trace, view, as_json=given.as_json)
    return code


def _source(store: "Store", run_id: str, given: RerunOptions) -> RunTrace:
    """Returns the run, with the settings and the budgets that were given. Raises: BadInput, UnknownRun."""
    source, _ = store.trace(store.resolve(run_id))
    if source.status == "waiting":
        if source.waits_for == "tool_results":
            raise BadInput(f"run {source.run_id} waits for its client's tools: cancel it first, or wait for its end")
        raise BadInput(f"run {source.run_id} waits for an approval: approve, deny or cancel it first")
    if not source.ended:
        raise BadInput(f"run {source.run_id} is still going on: wait for its end, or cancel it")
    names = ("on_incomplete", "give_question", *(() if given.again else ("seed",)))
    update = {name: value for name in names if (value := getattr(given, name)) is not None}
    return source.model_copy(update={**update, "limits": given.limits(source.limits)})


def print_preview(forecast: RerunPreview | None, given: Options, *, max_usd: float | None) -> int:
    """Prints what ``--dry-run`` shows. None: the run stopped before it had a plan, so all of it would run."""
    if forecast is None:
        forecast = RerunPreview(will_run=(), will_reuse=(), estimated_tokens=0, estimated_usd=None)
        print("the run stopped before it had a plan: the Conductor will write one", file=sys.stderr)
    given.print(lambda: forecast.model_dump(mode="json"), lambda: preview_lines(forecast))
    if max_usd is not None and not given.as_json:
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
    again = [one_line(forecast.effects_again, 400)] if forecast.effects_again else []
    return [*lines, *again, f"{len(forecast.will_run)} to run, {len(forecast.will_reuse)} reused: {total}{on_top}"]


def _reused(step: StepForecast) -> str:
    if step.reused_run_id is None or step.reused_path is None:
        return ""
    imported = "imported " if step.reused_imported else ""
    return f": reuses the answer of step {label(step.reused_path)} of {imported}run {step.reused_run_id}"


def overrides_by_hand(
    source: RunTrace, outputs: Sequence[str], pins: Sequence[int], releases: Sequence[int]
) -> Overrides | None:
    """Returns the overrides of a re-run of ``source``'s plan; None: those that it has. Raises: BadInput."""
    if not outputs and not pins and not releases:
        return None
    overrides = engine_request.carried(source)
    for step in releases:
        if overrides.output_at((step,)) is None:
            raise BadInput(f"--release {step}: no output was written or pinned there in run {source.run_id}")
        overrides = overrides.without_output(step)
    for each in outputs:
        step, text = _read_output(each)
        _require_step(source, step, "--output")
        caller = local_caller("cli")
        given = engine_request.pinned_if_recorded(source, step, text, caller) or written_by(caller)
        overrides = overrides.with_output(step, text, given)
    for step in pins:
        _require_step(source, step, "--pin")
        overrides = overrides.with_output(step, *engine_request.pinned_output(source, step, local_caller("cli")))
    if len({*pins, *(_read_output(each)[0] for each in outputs)}) < len(pins) + len(outputs):
        raise BadInput("give each step one output: with --output or with --pin, and once")
    return overrides


def _read_output(given: str) -> tuple[int, str]:
    """Reads ``N=TEXT`` or ``N=@FILE``. Raises: BadInput."""
    number, equals, text = given.partition("=")
    if not equals or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise BadInput(f"--output {one_line(given, 60)!r}: write N=TEXT, or N=@FILE for the text of a file")
    if text.startswith("@"):
        text = inputs.read_file(Path(text[1:]), "output file")
    text = inputs.given_text(text, f"output of step {number}")
    if len(text) > MOST_CHARACTERS:
        raise BadInput(
            f"--output {number}: a written output has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
        )
    return int(number), text


def _require_step(source: RunTrace, step: int, option: str) -> None:
    """Raises: BadInput."""
    count = len(source.steps)
    if not count:
        raise BadInput(f"{option} {step}: run {source.run_id} has no plan, so no such step")
    if not 0 <= step < count:
        raise BadInput(f"{option} {step}: the steps of run {source.run_id} are 0 to {count - 1}")


# A step asked afresh, several times or by several workers, and how far they agree.


def run_many(
    store: "Store",
    source: RunTrace,
    again: repeats.Again,
    requests: Sequence[RunRequest],
    forecast: repeats.RepeatsForecast,
    given: RerunOptions,
) -> int:
    """Carries out all runs at once and prints their answers in groups.

    Returns 0 if a run answered, 1 if none did, 130 or 143 after a signal; what has ended by then is kept and counted.
    Raises: BadInput, StoreError.
    """
    lines = forecast_lines(again, forecast)
    if given.dry_run:
        given.print(lambda: forecast.model_dump(mode="json"), lambda: lines)
        return 0
    called = {step.agent for each in forecast.each for step in each.will_run}
    limits, cap = source.limits, None
    if limits.max_usd is not None or limits.max_tokens is not None:
        cap = CostCap(BatchSpent(), max_usd=limits.max_usd, max_tokens=limits.max_tokens, then="run the command again")
        specs = pool_info(requests[0].pool or given.settings.pool, given.settings).workers
        cap.check_workers(who_may_be_called(called, specs))
    for request in requests[:: again.times]:
        ready(request, given, agents=called)
    given.say(*lines)
    with given.engine(store) as host:
        for request in requests:
            host.start(request, cap)
        traces, stopped_by = asyncio.run(all_ended(host, [request.run_id for request in requests], "runs", given))
    found = repeats.tally(source, traces)
    given.print(lambda: repeats_document(found, traces), lambda: repeats_lines(found, source.task))
    return stopped_by or (0 if any(each.answered for each in found.tallies) else 1)


def forecast_lines(again: repeats.Again, forecast: repeats.RepeatsForecast) -> list[str]:
    said = []
    for each, agent in zip(forecast.each, again.agents or ("",), strict=True):
        run_ = ", ".join(str(step.index) for step in each.will_run) or "none"
        reused = ", ".join(str(step.index) for step in each.will_reuse) or "none"
        left = f", left out: {', '.join(map(str, each.will_skip))}" if each.will_skip else ""
        said.append(f"  {f'{one_line(agent, 40)}: ' if agent else ''}steps to run: {run_}, reused: {reused}{left}")
        said += [f"  {one_line(each.effects_again, 400)}"] if each.effects_again else []
    runs = f"{forecast.runs} runs, {again.in_words}"
    return [*said, f"{runs}: about {forecast.estimated_tokens} tokens, {forecast.cost.in_line}"]


def repeats_lines(found: repeats.Repeats, task: str) -> Iterator[str]:
    """Says what each worker answered, in groups, how far that agrees, and what it took."""
    what = f"step {found.step} alone" if found.extent == "only" else f"from step {found.step} on"
    simulated = ", simulated workers" if found.simulated else ""
    runs = sum(len(each.run_ids) for each in found.tallies)
    yield f"{what}, {runs} runs{simulated}: {one_line(task)}"
    for each in found.tallies:
        yield from _tally_lines(each)
    yield "an interval is Wilson's at 95 %; `show RUN` opens a run, `compare RUN RUN` two"


def _tally_lines(found: repeats.Tally) -> Iterator[str]:
    answers = f"{found.answered} of {len(found.run_ids)} answered"
    agree = ""
    if found.groups:
        share = found.groups[0].share
        agree = f" · {share.share:.0%} agree by {found.compared_by} ({share.low:.0%} to {share.high:.0%})"
    took = "" if found.mean_ms is None else f" · {seconds(found.mean_ms)} on average"
    spent = f"{found.usage.total_tokens} tokens · {found.cost.in_line}{took}"
    yield f"{one_line(found.agent, 40)} · {answers}{agree} · {spent}"
    for group in found.groups:
        notes = ["as before"] if group.as_before else []
        notes += ["differs in wording"] if found.differs_in_wording(group) else []
        before = f"  ({', '.join(notes)})" if notes else ""
        yield f"  {len(group.run_ids):>3} ×  {one_line(group.conclusion, 100)}{before}"
        yield f"         run {', '.join(group.run_ids)}"
    alike: dict[tuple[str, str], list[str]] = {}
    for each in found.unanswered:
        alike.setdefault((each.status, each.error or ""), []).append(each.run_id)
    for (status, error), run_ids in alike.items():
        yield f"  {len(run_ids):>3} ×  no answer, {status}{f': {one_line(error, 300)}' if error else ''}"
        yield f"         run {', '.join(run_ids)}"


def repeats_document(found: repeats.Repeats, traces: list[RunTrace]) -> documents.Document:
    """Returns the groups with the runs that they come from."""
    batch = traces[0].batch
    agents = {run_id: each.agent for each in found.tallies for run_id in each.run_ids}
    runs = [
        {
            "run_id": trace.run_id,
            "status": trace.status,
            "agent": agents[trace.run_id],
            "seed": trace.overrides.seed_at((found.step,)),
            "answer": trace.answer,
            "usage": trace.usage.model_dump(mode="json"),
            **documents.cost_document(cost_so_far(trace)),
            "duration_ms": trace.duration_ms,
        }
        for trace in traces
    ]
    tallies = [each.model_dump(mode="json") | documents.cost_document(each.cost) for each in found.tallies]
    whole = found.model_dump(mode="json") | {"tallies": tallies}
    return whole | {"batch": None if batch is None else batch.id, "runs": runs}

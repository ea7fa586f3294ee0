"""``show`` and ``runs`` print what the store has: whole runs, and lists of them."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.chat.messages import images_in
from conductor_core.cli import inputs, live, options
from conductor_core.cli.live import call_retried, how_ended, plan_retried, summary, workflow_lines
from conductor_core.cli.output import indented, labels, one_line, print_json, print_not_on_record, print_notes
from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
from conductor_core.formats import run_word, seconds, step_word
from conductor_core.privacy.detectors import in_words
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.costs import IN_WORDS, Cost, Spent, basis, cost_of_part, spent_on, waits_for_a_slot
from conductor_core.run.request import REPLAY_PURPOSE, Overrides
from conductor_core.run.trace import ReusedFrom, RoundTrace, RunTrace, RunUnreadable, StepTrace, unreadable_status
from conductor_core.run.values import SharedOutput, label, round_name
from conductor_core.text import plain
from conductor_core.workflow.model import AccessList
from storage import RawEvent, RunSummary, Store

if TYPE_CHECKING:
    from storage import RawEvent, RunSummary


def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    event: Annotated[
        int | None,
        typer.Option("--event", metavar="N", help="Only the record of event N, as it lies there, damaged or not."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="FOLDER", help="Also write the images of the conversation there."),
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="Only who saw what: outputs against steps, and what that cost.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
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
        store.access_log.viewed([run_id], "show --context" if context else "show", local_caller("cli"))
        print_not_on_record(store)
        if fault is None:
            print_notes(store)
        if images is not None:
            _write_images(store, trace, images)
    if context:
        from conductor_core.cli import context_report  # when used: it needs the engine

        if as_json:
            print_json(context_report.document(trace))
        else:
            print("\n".join(context_report.lines(trace)))
    elif as_json:
        print_json(documents.run_document(trace, whole=True, fault=fault))
    else:
        for line in run_lines(trace, fault):
            print(line)
    if fault is None:
        return 0
    record = "" if fault.sequence is None else f"; --event {fault.sequence} prints that event as it lies there"
    print(f"error: {one_line(f'{fault}{record}', 2000)}", file=sys.stderr)
    return 2


def _write_images(store: Store, trace: RunTrace, folder: Path) -> None:
    """Writes each image under its digest, checked against it. Raises: ContentMissing; BadInput."""
    found = {image.sha256: image for turn in trace.conversation for image in images_in(turn.content)}
    for image in found.values():
        _, data = store.content(image.sha256)
        file = folder / f"{image.sha256}.{image.media_type.partition('/')[2]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise BadInput(f"{one_line(str(file))} cannot be written: {error.strerror or error}") from error
        print(f"wrote {file}", file=sys.stderr)
    if not found:
        print("this run has no images", file=sys.stderr)


def _show_event(store: Store, run_id: str, sequence: int, *, as_json: bool) -> int:
    found = store.raw_events(run_id, after=sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        raise BadInput(f"run {run_id} has no event {sequence}")
    store.access_log.viewed([run_id], "show --event", local_caller("cli"))
    print_not_on_record(store)
    if as_json:
        print_json(raw_event_document(found[0]))
    else:
        print(raw_event_line(found[0]))
    return 0


def raw_event_document(event: RawEvent) -> documents.Document:
    """Returns an event as it is stored. ``payload`` shows bytes that are not UTF-8 as escapes."""
    payload = event.payload.decode("utf-8", "backslashreplace")
    return {"sequence": event.sequence, "kind": event.kind, "at_utc": event.at_utc, "payload": payload}


def runs(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    search: Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Only tasks that hold TEXT.")] = None,
    status: Annotated[
        options.Status | None, typer.Option("--status", help="Only runs of this status.", show_choices=True)
    ] = None,
    replays: Annotated[bool, typer.Option("--replays", help="List the replays of `blame`, too.")] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    settings = inputs.read_settings()
    with opened_store(db, settings, read=True) as store:
        found = store.runs(limit=limit, search=search, status=status, without=None if replays else REPLAY_PURPOSE)
        print_notes(store, found)
    if as_json:
        print_json({"runs": [summary_document(run) for run in found]})
    else:
        print("\n".join(runs_lines(found)))
    return 0


def summary_document(run: RunSummary) -> documents.Document:
    """Returns a run for a list."""
    return run.model_dump(
        mode="json", exclude={"sequence", "named", "conclusion", "answer_key"}
    ) | documents.cost_document(run.cost)


def alternative_lines(round_: RoundTrace) -> list[str]:
    """Returns what else was likely, as ``considered for step 1, agent: reasoner 0.50, calculator 0.49``."""
    lines = []
    for choice in round_.considered:
        options = ", ".join(f"{one_line(option.value, 80)} {option.probability:.2f}" for option in choice.options)
        rest = (
            "" if choice.rest is None else f" (shares of what the server named; {choice.rest:.2f} was something else)"
        )
        lines.append(f"considered for step {choice.step}, {choice.field.replace('_', ' ')}: {options}{rest}")
    return lines


def _origin(run: "RunSummary") -> str:
    if run.recorded:
        return " (recorded)"
    return " (imported)" if run.imported else " (imported answers)" if run.imported_answers else ""


def runs_lines(runs: "Sequence[RunSummary]") -> list[str]:
    """Returns a table, newest run first. The task column takes the width that the terminal has left."""
    if not runs:
        return ["no runs"]
    rows = [("RUN", "CREATED (UTC)", "STATUS", "TOPOLOGY", "STEPS", "COST", "TIME", "POOL")]
    rows += [
        (
            one_line(run.run_id, 60),
            "-" if run.created_at_utc is None else f"{run.created_at_utc:%Y-%m-%d %H:%M}",
            one_line(run_word(run.status), 20) + _origin(run),
            one_line(run.topology or "-", 40),
            run.steps_in_words,
            f"≈ {run.cost}" if run.cost_estimated else str(run.cost),
            seconds(run.duration_ms),
            one_line(run.pool, 20) + (" (simulated)" if run.simulated else ""),
        )
        for run in runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = max(30, shutil.get_terminal_size((160, 24)).columns - sum(widths) - 2 * len(widths))
    tasks = ["TASK", *(one_line(run.task, left) for run in runs)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), task])
        for row, task in zip(rows, tasks, strict=True)
    ]


def run_lines(trace: RunTrace, fault: RunUnreadable | None = None) -> Iterator[str]:
    """Yields the whole record of a run; with a ``fault``, all of it that can be read."""
    if fault is None:
        yield summary(trace)
    else:
        yield f"run {one_line(trace.run_id, 60)} · {run_word(unreadable_status(fault))}, as far as it can be read:"
    purpose = f", for {one_line(trace.purpose, 40)}" if trace.purpose else ""
    who = f"{live.who(trace, trace.caller)}{purpose}"
    warm = "" if trace.plan_temperature is None else f", plan temperature {trace.plan_temperature:g}"
    yield f"created {trace.created_at_utc:%Y-%m-%d %H:%M:%S} UTC by {who}, seed {trace.seed}{warm}"
    if (imported := trace.imported) is not None:
        when, by = f"{imported.imported_at_utc:%Y-%m-%d %H:%M}", one_line(imported.caller.in_words, 60)
        if imported.recorded:
            yield f"recorded: it came with {one_line(imported.written_by, 60)}, and this database did not carry it out"
        else:
            there = one_line(imported.run_id, 60)
            yield f"imported {when} UTC by {by} from an unsigned file: there it was run {there}"
    if answers := trace.imported_answers:
        named = labels(tuple(step.path for step in answers))
        yield f"reuses answers of an imported run, which this database did not carry out: steps {named}"
    if trace.parent_run_id is not None:
        yield f"{'resumes' if trace.resumed else 're-run of'} run {one_line(trace.parent_run_id, 60)}"
    yield from _override_lines(trace.overrides)
    if trace.conductor is not None:
        info = trace.conductor
        where = f" {info.runs_in}" if info.device else ""
        held = "grammar-constrained" if info.kind == "local" else "its server is asked to hold plans to a form"
        constrained = f", {held}" if info.constrained else ""
        own = f", a prompt of its own ({info.prompt_sha256[:12]})" if info.prompt_sha256 else ""
        yield f"Conductor {one_line(info.name)}: {info.kind}{where}{constrained}{own}"
    workers = ", ".join(one_line(spec.name, 40) for spec in trace.pool.workers)
    simulated = " (simulated)" if trace.simulated else ""
    out = ", ".join(one_line(name, 40) for name in trace.pool.excluded)
    yield f"pool {one_line(trace.pool.name)}{simulated}: {workers}{f'; left out: {out}' if out else ''}"
    yield from _price_lines(trace)
    yield f"limits: {_limits(trace)}"
    yield f"incomplete answers: {trace.on_incomplete.replace('_', ' ')}"
    if trace.give_question:
        yield "every step receives the task"
    if trace.traces_fault:
        yield f"OpenTelemetry: spans were not sent: {one_line(trace.traces_fault, 300)}"
    if trace.redacted:
        yield f"hidden before it was stored: {in_words(trace.redacted)}"
    if trace.gates:
        yield f"gates: {', '.join(one_line(str(gate), 80) for gate in trace.gates)}"
    for turn in trace.turns_before:
        yield from ("", f"before the task, {turn.role}", indented(turn.text))
    yield from ("", "task", indented(trace.task))
    yield from (f"  {image.described}" for image in trace.images)
    yield ""
    yield from _round_lines(trace, trace.root)
    if trace.approvals or trace.refused:
        yield from ("approvals", *(f"  {line}" for line in live.record_lines(trace)), "")
    if trace.answer is not None:
        yield from ("answer" + simulated, indented(trace.answer))


def _price_lines(trace: RunTrace) -> Iterator[str]:
    """Yields each price that a file gave, with the models that have it."""
    who = [] if trace.conductor is None else [("the Conductor", trace.conductor.usd_per_mtok)]
    who += [(one_line(spec.name, 40), spec.usd_per_mtok) for spec in trace.pool.workers]
    for price in dict.fromkeys(price for _, price in who if price is not None):
        yield f"price of {', '.join(name for name, its in who if its == price)}: {price.in_words}"


def _override_lines(overrides: Overrides) -> Iterator[str]:
    if overrides.seeds:
        each = ", ".join(f"step {one.step} with seed {one.seed}" for one in overrides.seeds)
        yield f"asked with seeds of their own: {each}"
    if overrides.last_step is not None:
        yield f"ends with step {overrides.last_step}, as it was asked to"


def raw_event_line(event: "RawEvent") -> str:
    """Returns an event as the database has it, damaged or not. Bytes that are not text are written as escapes."""
    payload = plain(event.payload.decode("utf-8", "backslashreplace"))
    return f"event {event.sequence}, {one_line(event.kind, 80)}, {one_line(event.at_utc, 80)}: {payload}"


def _limits(trace: RunTrace) -> str:
    named = (("steps", "max_steps"), ("tokens", "max_tokens"), ("USD", "max_usd"), ("s", "max_seconds"))
    set_ones = [f"{value:g} {unit}" for unit, name in named if (value := getattr(trace.limits, name)) is not None]
    return ", ".join([*set_ones, f"recursion to depth {trace.limits.max_depth}"])


def _round_lines(trace: RunTrace, round_: RoundTrace) -> Iterator[str]:
    of_step = f" of step {label(round_.path)} ({round_name(round_.path)})" if round_.path else ""
    yield from (f"plan{of_step}: {plan_retried(retry)}" for retry in round_.retries)
    for plan in round_.rejected:
        yield f"plan{of_step}, attempt {plan.attempt}, rejected"
        yield from (f"    {one_line(fault.message, 400)}" for fault in plan.faults)
        yield indented(plan.raw, "    | ")
    took = f", {seconds(round_.duration_ms)}, {_spent(trace, round_)}" if round_.duration_ms else ""
    asked = "conductor" if round_.messages else "nobody" if trace.ended else "nobody yet"
    source = round_.source or asked
    yield f"plan{of_step}: {round_.status}, {round_.topology or 'no topology'}, by {source}{took}"
    yield from (f"    repaired: {one_line(repair, 400)}" for repair in round_.repairs)
    yield from (f"    warning: {one_line(warning.message, 400)}" for warning in round_.warnings)
    yield from (f"    note: {one_line(departure.in_words, 400)}" for departure in round_.departures)
    yield from (f"    {line}" for line in alternative_lines(round_))
    if round_.reasoning:
        yield from ("    reasoning", indented(round_.reasoning, "    | "))
    if round_.raw:
        yield indented(round_.raw, "    | ")
    if round_.before_edit is not None:
        yield f"    edited by {live.who(trace, round_.edited_by or Caller())}:"
        yield from (f"    {one_line(said, 300)}" for said in round_.edits)
        yield "    before:"
        yield from (f"    {line}" for line in workflow_lines(round_.before_edit))
    yield ""
    for step in round_.steps:
        yield from _step_lines(trace, step)


def _source(trace: RunTrace, source: ReusedFrom) -> str:
    if trace.imported is not None:
        return f"run {one_line(source.run_id, 60)} (says the file)"
    return f"{'imported ' if source.imported else ''}run {one_line(source.run_id, 60)}"


def _step_lines(trace: RunTrace, step: StepTrace) -> Iterator[str]:
    simulated = " (simulated)" if step.simulated else ""
    status = f"waiting for a slot{_slots(trace, step)}" if waits_for_a_slot(trace, step) else step_word(step.status)
    yield f"step {label(step.path)} · {one_line(step.agent, 80)}{simulated} · {status}{_timing(trace, step)}"
    reads = labels(tuple((*step.path[:-1], index) for index in step.reads))
    yield f"  access list {access_words(step.access_list)}: reads {reads}"
    yield from ("  instruction", indented(step.instruction))
    yield from _instead_lines(trace, step)
    if step.identity is not None:
        yield f"  saw: {_shared(step.granted)}"
        yield from (f"    {said}" for said in _not_whole(trace, step))
        withheld = [output for output in step.withheld if output.there]
        absent = [_output_name(output) for output in step.withheld if not output.there]
        if withheld or not absent:
            yield f"  was not shown: {_shared(withheld)}"
        if absent:
            yield f"  was not there yet when it started: {', '.join(absent)}"
    for message in step.messages:
        yield from (f"  message, {message.role}", indented(message.text, "    > "))
    for attempt in step.attempts:
        yield f"  {call_retried(step, attempt)}"
        if attempt.partial:
            yield indented(attempt.partial, "    | ")
    if step.round is not None:
        yield from (indent(line, "    ") for line in _round_lines(trace, step.round))
    if step.reasoning:
        yield from ("  reasoning", indented(step.reasoning, "    | "))
    if step.error is not None:
        yield f"  failed: {one_line(step.error, 1000)}"
    if ended := how_ended(step):
        yield f"  {ended}"
    yield from (f"  note: {one_line(departure.in_words, 400)}" for departure in step.departures)
    if step.output:
        cut = f" (incomplete: {step.finish_reason or step_word(step.status)})" if step.incomplete else ""
        yield from (f"  output{cut}", indented(step.output, "    | "))
    yield ""


def _instead_lines(trace: RunTrace, step: StepTrace) -> Iterator[str]:
    """Says why the step's worker was not asked."""
    if step.given is not None:
        yield f"  no model was asked: {one_line(step.given.in_words, 200)}"
    elif step.reused_from is not None:
        yield f"  reused from step {label(step.reused_from.path)} of {_source(trace, step.reused_from)}"
    if step.because:
        yield f"  skipped because of step {labels(step.because)}"


def access_words(access_list: AccessList | None) -> str:
    return str(list(access_list)) if isinstance(access_list, tuple) else str(access_list)


def _timing(trace: RunTrace, step: StepTrace) -> str:
    if step.duration_ms is None:
        return ""
    spent = spent_on(trace, step)
    with_round = f" with {round_name(step.path)}" if step.round is not None else ""
    return (
        f" · {seconds(step.duration_ms)} from {seconds(step.started_ms)} · {_in_words(spent, spent.cost)}{with_round}"
    )


def _slots(trace: RunTrace, step: StepTrace) -> str:
    most = next(spec.max_concurrency for spec in trace.pool.workers if spec.name == step.agent)
    return f": {one_line(step.agent, 40)} answers {most} at once"


def _spent(trace: RunTrace, round_: RoundTrace) -> str:
    return _in_words(round_, cost_of_part(trace, round_))


def _in_words(spent: RoundTrace | Spent, cost: Cost) -> str:
    """Says the tokens and the cost, and whether they are estimates."""
    return " ".join(filter(None, (f"{spent.usage.in_words} · {cost.in_line}", IN_WORDS[basis(spent)])))


def _shared(outputs: Sequence[SharedOutput]) -> str:
    each = (f"{_output_name(output)} ({output.characters} characters)" for output in outputs)
    return ", ".join(each) or "no earlier output"


def _not_whole(trace: RunTrace, step: StepTrace) -> Iterator[str]:
    """Yields which outputs that the step saw are not whole. The messages themselves do not say so."""
    for shared in step.granted:
        read = trace.step_at(shared.path)
        if read.incomplete or read.ending != "completed":
            sent = "was sent as it is, without a mark" if read.output.strip() else "a note that there is none was sent"
            yield f"the output of step {label(shared.path)} is not whole ({step_word(read.status)}): {sent}"


def _output_name(output: SharedOutput) -> str:
    by = f", {output.given} by a person" if output.given else ""
    return f"step {label(output.path)} of {one_line(output.agent, 40)}{by}"

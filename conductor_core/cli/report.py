"""Runs as text for a person."""

import shutil
from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from conductor_core.cli import failed_calls, live
from conductor_core.cli.inputs import fault_line
from conductor_core.cli.live import summary, workflow_lines
from conductor_core.cli.text import indented, labels, one_line
from conductor_core.formats import run_word, seconds, step_word
from conductor_core.privacy.detectors import in_words
from conductor_core.run.actor import Caller
from conductor_core.run.costs import IN_WORDS, Cost, Spent, basis, cost_of_part, spent_on, waits_for_a_slot
from conductor_core.run.request import Overrides
from conductor_core.run.trace import ReusedFrom, RoundTrace, RunTrace, RunUnreadable, StepTrace, unreadable_status
from conductor_core.run.values import SharedOutput, label, round_name
from conductor_core.text import plain
from conductor_core.workflow.model import AccessList
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked

if TYPE_CHECKING:
    from storage import RawEvent, RunSummary


def plan_lines(trace: RunTrace) -> list[str]:
    """Returns what ``plan`` prints on stdout."""
    root = trace.root
    head = one_line(trace.task)
    if root.workflow is None:
        return [head, f"  no plan: {one_line(trace.error or trace.status, 1000)}"]
    warnings = [f"  warning: {one_line(warning.message, 400)}" for warning in root.warnings]
    alternatives = [f"  {line}" for line in _alternative_lines(root)]
    return [f"{head} · {root.topology}", *workflow_lines(root.workflow), *alternatives, *warnings]


def _alternative_lines(round_: RoundTrace) -> list[str]:
    """Returns what else was likely, as ``considered for step 1, agent: reasoner 0.50, calculator 0.49``."""
    lines = []
    for choice in round_.considered:
        options = ", ".join(f"{one_line(option.value, 80)} {option.probability:.2f}" for option in choice.options)
        rest = (
            "" if choice.rest is None else f" (shares of what the server named; {choice.rest:.2f} was something else)"
        )
        lines.append(f"considered for step {choice.step}, {choice.field.replace('_', ' ')}: {options}{rest}")
    return lines


def check_lines(parsed: Parsed, checked: Checked) -> list[str]:
    """Returns what ``check`` prints on stdout: what the file says, how it was read, what is wrong."""
    steps = parsed.steps or ()
    if checked.workflow is not None:
        lines = [f"{len(steps)} steps · {topology(checked.workflow)}", *workflow_lines(checked.workflow)]
    else:
        lines = [
            f"  {index}  agent {one_line(str(step.agent), 40)}, access list {_access(step.access_list)}: "
            f"{one_line(step.instruction or '')}"
            for index, step in enumerate(steps)
        ]
    lines += [f"repaired: {one_line(repair, 400)}" for repair in parsed.repairs]
    lines += [f"warning: {fault_line(warning)}" for warning in checked.warnings]
    return lines + [f"fault: {fault_line(fault)}" for fault in checked.faults]


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
    yield from (f"plan{of_step}: {failed_calls.plan_retried(retry)}" for retry in round_.retries)
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
    yield from (f"    {line}" for line in _alternative_lines(round_))
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
    yield f"  access list {_access(step.access_list)}: reads {reads}"
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
        yield f"  {failed_calls.retried(step, attempt)}"
        if attempt.partial:
            yield indented(attempt.partial, "    | ")
    if step.round is not None:
        yield from (indent(line, "    ") for line in _round_lines(trace, step.round))
    if step.reasoning:
        yield from ("  reasoning", indented(step.reasoning, "    | "))
    if step.error is not None:
        yield f"  failed: {one_line(step.error, 1000)}"
    if ended := failed_calls.ended(step):
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


def _access(access_list: AccessList | None) -> str:
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

"""``show`` and ``runs`` print what the store has: whole runs, and lists of them."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from conductor_core.analysis import documents
from conductor_core.chat.messages import ToolCall, ToolResultPart, images_in
from conductor_core.chat.tools import called_name, dotted
from conductor_core.cli import live, options
from conductor_core.cli.live import call_retried, how_ended, plan_retried, summary, workflow_lines
from conductor_core.cli.output import access_words, indented, labels, one_line, print_notes, table
from conductor_core.errors import BadInput
from conductor_core.formats import APIS, effects_word, plural, run_word, seconds, size_in_bytes, step_word, tool_outcome
from conductor_core.privacy.detectors import in_words
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.context_flow import (
    Cell,
    Received,
    RoundContext,
    ServerContext,
    StepContext,
    context_flow,
    source_name,
)
from conductor_core.run.costs import IN_WORDS, Cost, Spent, basis, cost_of_part, spent_on, waits_for_a_slot
from conductor_core.run.request import BESIDE_PURPOSES, UNLISTED_PURPOSES
from conductor_core.run.trace import RoundTrace, RunTrace, RunUnreadable, StepTrace, unreadable_status
from conductor_core.run.values import SharedOutput, ToolTurn, label, round_name
from conductor_core.text import plain
from storage import RunSummary, Store

if TYPE_CHECKING:
    from jinja2 import Template

    from conductor_core.engine.estimates import WhatIf


# Where the context of a run went: ``show --context``.


SIGNS = {"granted": "●", "passed_on": "◐", "withheld": "✕", "absent": "◌", "planned": "◇", "unplanned": "–"}
_LEGEND = (
    "● granted, ◐ in an earlier instruction that it reads, ✕ withheld, ◌ not there yet, ◇ would be granted, "
    "– would not be granted; figures are tokens"
)
_PARTS = {
    "system": "the system text",
    "conversation": "turns before the task",
    "task": "the task",
    "images": "its images",
    "own": "its instruction",
    "conductor": "the Conductor's own prompt and the plan",
}
_LISTS = {"none": "no access at all", "planned": "as planned", "all": 'all lists "all"'}


def context_document(trace: RunTrace) -> dict[str, Any]:
    found = _what_if(trace)
    return context_flow(trace).model_dump(mode="json") | {"what_if": found and found.model_dump(mode="json")}


def context_lines(trace: RunTrace) -> Iterator[str]:
    flow = context_flow(trace)
    yield f"run {flow.run_id} · {run_word(flow.status)}{' · simulated' if flow.simulated else ''}"
    if not flow.rounds:
        yield "This run has no plan, so no step saw anything."
        return
    for round_ in flow.rounds:
        of_step = f" of step {label(round_.path)}" if round_.path else ""
        yield from ("", f"who saw what, plan{of_step} ({round_.topology})", *_matrix(round_))
    yield from ("", _LEGEND, "", "what each prompt consisted of (tokens by estimate)")
    for round_ in flow.rounds:
        for step in round_.steps:
            yield from _prompt(step)
    if flow.servers:
        by = ", says the imported file" if flow.of_file else ""
        yield from ("", f"what each server got (✎ it wrote this itself){by}", *_server_table(flow.servers))
    for tools in flow.tool_servers:
        where = f"{tools.provider}{f' at {one_line(tools.host, 80)}' if tools.host else ', on this machine'}"
        names = one_line(", ".join(tools.tools), 200)
        yield f"  tool server {where}: it got the arguments of {plural(tools.calls, 'call')} of {names}"
    yield ""
    yield from _costs(_what_if(trace), simulated=flow.simulated)


def _matrix(round_: RoundContext) -> list[str]:
    heads = [f"{label(step.path)} {one_line(step.agent, 20)}" for step in round_.steps]
    rows: list[Sequence[str]] = [("", *heads)]
    for source in (None, *(step.path for step in round_.steps[:-1])):
        cells = (round_.cell(source, step.path) for step in round_.steps)
        rows.append((source_name(source), *(_cell(cell) for cell in cells)))
    return table(rows, "  ")


def _cell(cell: Cell | None) -> str:
    return "" if cell is None else SIGNS[cell.state] + ("" if cell.tokens is None else f" {cell.tokens:,}")


def _prompt(step: StepContext) -> Iterator[str]:
    counted = "" if step.counted_tokens is None else f", {step.counted_tokens:,} by the provider's count"
    head = f"  step {label(step.path)} · {one_line(step.agent, 40)} · {step_word(step.status)}"
    if not step.parts:
        yield f"{head} · nothing was sent"
        return
    yield f"{head} · {step.tokens:,} tokens{counted}"
    for part in step.parts:
        name = _PARTS[part.kind] if part.source is None else f"{part.kind} of step {label(part.source)}"
        yield f"    {part.share:>4.0%}  {part.tokens:>7,}  {name}"


def _server_table(servers: Sequence[ServerContext]) -> list[str]:
    rows: list[Sequence[str]] = [("", *map(_server_head, servers))]
    for number, received in enumerate(servers[0].received):
        cells = (_received(server.received[number]) for server in servers)
        rows.append((source_name(received.source), *cells))
    return table(rows, "  ")


def _server_head(server: ServerContext) -> str:
    at = f" at {one_line(server.host, 60)}" if server.host else ""
    simulated = " (simulated)" if server.simulated else ""
    return f"{server.provider}{at}{simulated}: {one_line(', '.join(server.agents), 40)}"


def _received(received: Received) -> str:
    wrote = "✎ " if received.wrote else ""
    if not received.times:
        return f"{wrote}✕" if not wrote else "✎"
    again = f", {received.reused} by an earlier run" if received.reused else ""
    return f"{wrote}● {received.tokens:,} in {received.times} prompt{'s' if received.times > 1 else ''}{again}"


def _what_if(trace: RunTrace) -> "WhatIf | None":
    from conductor_core.engine.estimates import what_if  # when used: it needs the engine

    return what_if(trace)


def _costs(found: "WhatIf | None", *, simulated: bool) -> Iterator[str]:
    if found is None:
        yield "No step has an answer yet, so nothing can be said about other access lists."
        return
    at = " at the prices of simulated workers" if simulated else ""
    yield f"the workers' calls of this plan with other access lists (estimated{at}; outputs taken as they are)"
    for variant in found.variants:
        tokens = f"{variant.usage.input_tokens:>9,} tokens in, {variant.usage.output_tokens:,} out"
        yield f"  {_LISTS[variant.lists]:<18}{tokens} · {variant.cost.in_line}"
    if found.assumed:
        names = ", ".join(map(label, found.assumed))
        yield f"  steps without an answer count as the average of the others: {names}"


def show(
    run_id: options.RunId,
    event: Annotated[
        int | None, typer.Option(metavar="N", help="Only the record of event N, as it lies there, damaged or not.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write the images of the conversation there.")
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="Only who saw what: outputs against steps, and what that cost.")
    ] = False,
    given: options.DbJson = options.NONE,
) -> int:
    fault: RunUnreadable | None = None
    with given.reading() as store:
        run_id = store.resolve(run_id)
        if event is not None:
            return _show_event(store, run_id, event, given)
        try:
            trace, _ = store.trace(run_id)
        except RunUnreadable as error:
            if error.trace is None:
                raise
            trace, fault = error.trace, error
        store.access_log.viewed([run_id], "show --context" if context else "show", local_caller("cli"))
        if images is not None:
            _write_images(store, trace, images)
    if context:
        given.print(lambda: context_document(trace), lambda: context_lines(trace))
    else:
        given.print(lambda: documents.run_document(trace, whole=True, fault=fault), lambda: run_lines(trace, fault))
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


def _show_event(store: Store, run_id: str, sequence: int, given: options.Options) -> int:
    found = store.raw_events(run_id, after=sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        raise BadInput(f"run {run_id} has no event {sequence}")
    store.access_log.viewed([run_id], "show --event", local_caller("cli"))
    stored = found[0]
    # Damaged or not. Bytes that are not text are written as escapes.
    payload = stored.payload.decode("utf-8", "backslashreplace")
    head = f"event {stored.sequence}, {one_line(stored.kind, 80)}, {one_line(stored.at_utc, 80)}"
    given.print(
        lambda: {"sequence": stored.sequence, "kind": stored.kind, "at_utc": stored.at_utc, "payload": payload},
        lambda: [f"{head}: {plain(payload)}"],
    )
    return 0


Purpose = Literal["pass-through", "shadow", "judge"]


def runs(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 20,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks that hold TEXT.")] = None,
    status: Annotated[options.Status | None, typer.Option(help="Only runs of this status.", show_choices=True)] = None,
    replays: Annotated[bool, typer.Option("--replays", help="List the replays of `blame`, too.")] = False,
    purpose: Annotated[
        Purpose | None, typer.Option(help="Only runs of a client's traffic, which are else not listed.")
    ] = None,
    given: options.DbJson = options.NONE,
) -> int:
    without = () if purpose else BESIDE_PURPOSES if replays else UNLISTED_PURPOSES
    with given.store(read=True) as store:
        found = store.runs(limit=limit, search=search, status=status, without=without, purpose=purpose)
        print_notes(store, found)
    given.print(lambda: {"runs": [summary_document(run) for run in found]}, lambda: runs_lines(found))
    return 0


def summary_document(run: RunSummary) -> documents.Document:
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


def _origin(run: RunSummary) -> str:
    if run.recorded:
        return " (recorded)"
    return " (imported)" if run.imported else " (imported answers)" if run.imported_answers else ""


def runs_lines(runs: Sequence[RunSummary]) -> list[str]:
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


def run_lines(trace: RunTrace, fault: RunUnreadable | None = None) -> list[str]:
    """Returns the whole record of a run; with a ``fault``, all of it that can be read."""
    limits = (("steps", "max_steps"), ("tokens", "max_tokens"), ("USD", "max_usd"), ("s", "max_seconds"))
    set_ones = [f"{value:g} {unit}" for unit, name in limits if (value := getattr(trace.limits, name)) is not None]
    priced = [] if trace.conductor is None else [("the Conductor", trace.conductor.usd_per_mtok)]
    priced += [(one_line(spec.name, 40), spec.usd_per_mtok) for spec in trace.pool.workers]
    prices = dict.fromkeys(price for _, price in priced if price is not None)
    text = _template().render(
        t=trace,
        fault=fault,
        unreadable="" if fault is None else run_word(unreadable_status(fault)),
        simulated=" (simulated)" if trace.simulated else "",
        slots={spec.name: spec.max_concurrency for spec in trace.pool.workers},
        limits=", ".join([*set_ones, f"recursion to depth {trace.limits.max_depth}"]),
        prices=[(price, [name for name, its in priced if its == price]) for price in prices],
    )
    return text.removesuffix("\n").split("\n")


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701  it writes plain text, in which no text of a model is more than text
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "one": one_line,
        "indented": indented,
        "seconds": seconds,
        "step_word": step_word,
        "access": access_words,
        "inner": lambda text: indent(text, "    "),
        "reads": lambda step: labels(tuple((*step.path[:-1], index) for index in step.reads)),
        "shared": _shared,
        "output_name": _output_name,
    }
    used = (
        label, labels, round_name, plan_retried, call_retried, how_ended, summary, workflow_lines, alternative_lines,
        cost_of_part, waits_for_a_slot, live.who, live.record_lines,
    )  # fmt: skip
    environment.globals |= {function.__name__: function for function in used}
    environment.globals |= {"in_words": _in_words, "timing": _timing, "hidden": in_words, "nobody": Caller()}
    environment.globals |= {"api_word": APIS.__getitem__, "open_call": _open_call, "results_of": _results_of}
    environment.globals |= {"tool_called": _tool_called, "how_it_ended": _how_it_ended}
    environment.globals["turn_cost"] = lambda turn: Cost(turn.cost_usd, turn.cost_usd or 0.0).in_line
    return environment.get_template("show.txt")


def _results_of(turn: ToolTurn) -> dict[str, ToolResultPart | None]:
    results = {result.call_id: result for result in (turn.partial if turn.results is None else turn.results)}
    return {call.call_id: results.get(call.call_id) for call in turn.calls}


def _tool_called(trace: RunTrace, turn: ToolTurn, call: ToolCall) -> str:
    """Names the tool of a call; one of a tool server of the pool with whether it has effects."""
    if call.call_id not in turn.ours:
        return call.name
    tool = turn.ran_of(call.call_id) or trace.offered(call.name)
    return called_name(call.name) if tool is None else f"{dotted(tool.server, tool.tool)}, {effects_word(tool.effects)}"


def _how_it_ended(turn: ToolTurn, result: ToolResultPart) -> str:
    ran = turn.ran_of(result.call_id)
    if ran is None or ran.outcome is None:
        took = "" if turn.waited_ms is None else f" after {seconds(turn.waited_ms)}"
        return f"{'error' if result.is_error else 'result'}{took}"
    took = f" after {seconds(ran.duration_ms)}" if ran.duration_ms else ""
    size = f", of {size_in_bytes(ran.size_bytes)}" if ran.size_bytes else ""
    cut = ", of which this is the beginning" if ran.size_bytes > len(result.text.encode()) else ""
    return f"{tool_outcome(ran.outcome)}{took}{size}{cut}"


def _open_call(trace: RunTrace, turn: ToolTurn, call: ToolCall) -> str:
    """Says of a call without a result whether it is waited for."""
    ran = turn.ran_of(call.call_id)
    at_utc = turn.called_at_utc if ran is None else ran.sent_at_utc
    since = "" if at_utc is None else f" since {at_utc:%Y-%m-%d %H:%M:%S} UTC"
    if call.call_id not in turn.ours:
        return "the run ended before its result came" if trace.ended else f"waits for the client{since}"
    if ran is not None:
        return "the run ended before its result came" if trace.ended else f"being called{since}"
    if any(approval.of == "tool" and approval.identity == call.call_id for approval in trace.asked_for):
        return "waits for an approval"
    return "it was not called" if trace.ended else "not called yet"


def _timing(trace: RunTrace, step: StepTrace) -> str:
    if step.duration_ms is None:
        return ""
    spent = spent_on(trace, step)
    with_round = f" with {round_name(step.path)}" if step.round is not None else ""
    return (
        f" · {seconds(step.duration_ms)} from {seconds(step.started_ms)} · {_in_words(spent, spent.cost)}{with_round}"
    )


def _in_words(spent: RoundTrace | Spent, cost: Cost) -> str:
    """Says the tokens and the cost, and whether they are estimates."""
    return " ".join(filter(None, (f"{spent.usage.in_words} · {cost.in_line}", IN_WORDS[basis(spent)])))


def _shared(outputs: Sequence[SharedOutput]) -> str:
    each = (f"{_output_name(output)} ({output.characters} characters)" for output in outputs)
    return ", ".join(each) or "no earlier output"


def _output_name(output: SharedOutput) -> str:
    by = f", {output.given} by a person" if output.given else ""
    return f"step {label(output.path)} of {one_line(output.agent, 40)}{by}"

"""Where the context of a run went, as text and as JSON: ``show --context``."""

from collections.abc import Iterator, Sequence
from typing import Any

from conductor_core.cli.output import one_line, table
from conductor_core.engine.estimates import Variant, WhatIf, what_if
from conductor_core.formats import run_word, step_word
from conductor_core.run.context_flow import (
    Cell,
    Part,
    Received,
    RoundContext,
    ServerContext,
    StepContext,
    context_flow,
    source_name,
)
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label

SIGNS = {"granted": "●", "passed_on": "◐", "withheld": "✕", "absent": "◌", "planned": "◇", "unplanned": "–"}
_LEGEND = (
    "● granted, ◐ in an earlier instruction that it reads, ✕ withheld, ◌ not there yet, ◇ would be granted, "
    "– would not be granted; figures are tokens"
)
_PARTS = {
    "conversation": "turns before the task",
    "task": "the task",
    "images": "its images",
    "own": "its instruction",
    "conductor": "the Conductor's own prompt and the plan",
}
_LISTS = {"none": "no access at all", "planned": "as planned", "all": 'all lists "all"'}


def document(trace: RunTrace) -> dict[str, Any]:
    """Returns what ``show --context --json`` prints."""
    found = what_if(trace)
    return {
        **context_flow(trace).model_dump(mode="json"),
        "what_if": None if found is None else found.model_dump(mode="json"),
    }


def lines(trace: RunTrace) -> Iterator[str]:
    """Yields what ``show --context`` prints."""
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
    yield ""
    yield from _costs(what_if(trace), simulated=flow.simulated)


def _matrix(round_: RoundContext) -> list[str]:
    heads = [f"{label(step.path)} {one_line(step.agent, 20)}" for step in round_.steps]
    rows: list[Sequence[str]] = [("", *heads)]
    for source in (None, *(step.path for step in round_.steps[:-1])):
        cells = (round_.cell(source, step.path) for step in round_.steps)
        rows.append((source_name(source), *("" if cell is None else _cell(cell) for cell in cells)))
    return table(rows, "  ")


def _cell(cell: Cell) -> str:
    return SIGNS[cell.state] if cell.tokens is None else f"{SIGNS[cell.state]} {cell.tokens:,}"


def _prompt(step: StepContext) -> Iterator[str]:
    counted = "" if step.counted_tokens is None else f", {step.counted_tokens:,} by the provider's count"
    head = f"  step {label(step.path)} · {one_line(step.agent, 40)} · {step_word(step.status)}"
    if not step.parts:
        yield f"{head} · nothing was sent"
        return
    yield f"{head} · {step.tokens:,} tokens{counted}"
    yield from (f"    {part.share:>4.0%}  {part.tokens:>7,}  {part_name(part)}" for part in step.parts)


def part_name(part: Part) -> str:
    """Returns ``output of step 0`` or ``the task``."""
    if part.source is None:
        return _PARTS[part.kind]
    return f"{part.kind} of step {label(part.source)}"


def _server_table(servers: Sequence[ServerContext]) -> list[str]:
    heads = [f"{server_name(server)}: {one_line(', '.join(server.agents), 40)}" for server in servers]
    rows: list[Sequence[str]] = [("", *heads)]
    for number, received in enumerate(servers[0].received):
        cells = (_received(server.received[number]) for server in servers)
        rows.append((source_name(received.source), *cells))
    return table(rows, "  ")


def server_name(server: ServerContext) -> str:
    """Returns ``openai at api.example.com``, ``local`` or ``rehearsal (simulated)``."""
    at = f" at {one_line(server.host, 60)}" if server.host else ""
    return f"{server.provider}{at}{' (simulated)' if server.simulated else ''}"


def _received(received: Received) -> str:
    wrote = "✎ " if received.wrote else ""
    if not received.times:
        return f"{wrote}✕" if not wrote else "✎"
    again = f", {received.reused} by an earlier run" if received.reused else ""
    return f"{wrote}● {received.tokens:,} in {received.times} prompt{'s' if received.times > 1 else ''}{again}"


def _costs(found: WhatIf | None, *, simulated: bool) -> Iterator[str]:
    if found is None:
        yield "No step has an answer yet, so nothing can be said about other access lists."
        return
    at = " at the prices of simulated workers" if simulated else ""
    yield f"the workers' calls of this plan with other access lists (estimated{at}; outputs taken as they are)"
    yield from (f"  {_LISTS[variant.lists]:<18}{_variant(variant)}" for variant in found.variants)
    if found.assumed:
        names = ", ".join(map(label, found.assumed))
        yield f"  steps without an answer count as the average of the others: {names}"


def _variant(variant: Variant) -> str:
    usage = variant.usage
    return f"{usage.input_tokens:>9,} tokens in, {usage.output_tokens:,} out · {variant.cost.in_line}"

"""Runs that were begun and brought no outcome: stopped, killed, or failed at a worker. What they cost counts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from conductor_core.engine.limits import LiveCall, estimate_input_tokens, estimate_tokens
from conductor_core.errors import UnknownRun
from conductor_core.records.evaluation import BEGUN, Begun, Outcome, read_lines
from conductor_core.trace import RunTrace

ReadTrace = Callable[[str], RunTrace]
"""Gives a run by its id."""


def lost(folder: Path, there: Iterable[Outcome], read_trace: ReadTrace) -> list[tuple[float | None, int]]:
    """What each run cost that was begun in ``folder`` and is part of no outcome ``there``: USD and tokens.

    A run is noted before it is begun, so that one which the database does not know has cost nothing.

    Raises: BadInput naming a line that is no run, StoreError.
    """
    told = {run_id for each in there for run_id in (each.run_id, *each.also)}
    costs = []
    for run_id in dict.fromkeys(each.run_id for each in read_lines(folder / BEGUN, Begun, "run")):
        if run_id not in told:
            try:
                costs.append(_cost(read_trace(run_id)))
            except UnknownRun:
                continue
    return costs


def _cost(trace: RunTrace) -> tuple[float | None, int]:
    """USD and tokens. Of a run whose process was killed, the calls that were on count by estimate."""
    usd, tokens = trace.cost_usd, trace.usage.total_tokens
    if trace.status not in ("running", "interrupted"):
        return usd, tokens
    prices = {spec.name: spec.price for spec in trace.pool.workers}
    if trace.root.status == "planning":
        price = None if trace.conductor is None else trace.conductor.price
        call = LiveCall(price, estimate_input_tokens(trace.root.messages), estimate_tokens(trace.root.raw))
        usd = None if usd is None or call.cost_usd is None else usd + call.cost_usd
        tokens += call.usage.total_tokens
    for step in trace.walk():
        if step.round is None and step.status in ("running", "cancelled"):
            written = estimate_tokens(step.output) + estimate_tokens(step.reasoning)
            call = LiveCall(prices.get(step.agent), estimate_input_tokens(step.messages), written)
            usd = None if usd is None or call.cost_usd is None else usd + call.cost_usd
            tokens += call.usage.total_tokens
    return usd, tokens

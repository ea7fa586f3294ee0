"""Runs that were begun and brought no outcome: stopped, killed, or failed at a worker. What they cost counts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from conductor_core.errors import UnknownRun
from conductor_core.records.evaluation import BEGUN, Begun, Outcome, read_lines
from conductor_core.spending import with_calls_that_are_on
from conductor_core.trace import RunTrace

ReadTrace = Callable[[str], RunTrace]
"""Gives a run by its id."""


def unfinished_costs(
    folder: Path, recorded: Iterable[Outcome], read_trace: ReadTrace
) -> list[tuple[float | None, int]]:
    """What each run cost that was begun in ``folder`` and is part of no outcome ``recorded``: USD and tokens.

    A run is noted before it is begun, so that one which the database does not know has cost nothing.

    Raises: BadInput naming a line that is no run, StoreError.
    """
    told = {run_id for each in recorded for run_id in (each.run_id, *each.also)}
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
    usage, usd = trace.usage, trace.cost_usd
    # Older records of an interrupted run do not tell of them.
    if trace.status == "running" or (trace.status == "interrupted" and not trace.broken_off.total_tokens):
        usage, cost = with_calls_that_are_on(trace)
        usd = cost.usd
    return usd, usage.total_tokens

"""Counts the cost of runs that began and gave no outcome, because they were stopped, killed, or failed at a worker."""

from collections.abc import Iterable
from pathlib import Path

from conductor_core.engine.request import ReadTrace as ReadTrace
from conductor_core.errors import UnknownRun
from conductor_core.records.evaluation import BEGUN, Begun, Outcome, read_lines
from conductor_core.spending import with_calls_that_are_on
from conductor_core.trace import RunTrace


def unfinished_costs(
    folder: Path, recorded: Iterable[Outcome], read_trace: ReadTrace
) -> list[tuple[float | None, int]]:
    """Returns USD and tokens of each run that began in ``folder`` and belongs to no outcome in ``recorded``.

    A run is noted before it begins. A run that the database does not know has therefore cost nothing.

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
    """Returns USD and tokens of a run. If its process was killed, the calls under way count by estimate."""
    usage, usd = trace.usage, trace.cost_usd
    # Older records of an interrupted run do not mention the calls that were under way.
    if not trace.ended or (trace.status == "interrupted" and not trace.broken_off.total_tokens):
        usage, cost = with_calls_that_are_on(trace)
        usd = cost.usd
    return usd, usage.total_tokens

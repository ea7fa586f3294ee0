"""Pairs of runs to compare: re-runs with the run that they came from, and runs of one task by different plans. Pure."""

from collections.abc import Mapping, Sequence

from pages.components.run_list.rows import Group, Row
from storage import RunSummary

MOST = 12
"""Pairs of a kind."""


def pairs(runs: Sequence[RunSummary], known: Mapping[str, RunSummary]) -> list[Group]:
    """Returns the pairs by what came of them, the newest first. ``known``: runs by id, parents among them."""
    changed: list[Row] = []
    kept: list[Row] = []
    others: list[Row] = []
    latest: dict[str, RunSummary] = {}
    for run in sorted(runs, key=lambda run: run.sequence):
        before, task = known.get(run.parent_run_id or ""), " ".join(run.task.split())
        if before is not None and run.steps and not before.plan_only:
            row = Row(run, before=before)
            if row.same is None and (run.conclusion is not None or before.conclusion is not None):
                changed.append(row)
            elif row.same is not None:
                (kept if row.same else changed).append(row)
        elif run.parent_run_id is None and run.conclusion is not None:
            if task in latest:
                others.append(Row(run, before=latest[task]))
            latest[task] = run
    named = {
        "Re-runs that changed the answer": changed,
        "Re-runs that kept it": kept,
        "The same task by another plan": others,
    }
    return [Group(title, tuple(reversed(rows))[:MOST], lone=True, of="pair") for title, rows in named.items() if rows]

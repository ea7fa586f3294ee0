"""Writes the page that hands over a comparison of runs: a file that opens without a server, with all runs inside.

Imports no Streamlit: the command line writes such files, too.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from conductor_core.analysis.compare import compare_runs, letter
from conductor_core.errors import BadInput
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import MOST_RUNS, packed
from conductor_core.run.trace import RunTrace
from pages.components.compare.view import HEADS, compared_view, run_rows
from pages.components.live_workflow import shared_page
from pages.components.style.formats import listed
from storage import Store

STYLES = ("style.css", "graph.css", "timeline.css", "prose.css", "compare.css")
Images = Mapping[str, tuple[str, bytes]]
"""Media type and bytes of images, by digest."""


def page_of_runs(store: Store, run_ids: Sequence[str], redactor: Redactor) -> str:
    """Raises: UnknownRun, RunUnreadable, StoreError; BadInput as ``shared_comparison`` does."""
    return shared_comparison([shared_page.run_of(store, run_id) for run_id in run_ids], redactor)


def shared_comparison(
    runs: Sequence[tuple[Sequence[Event], Images]], redactor: Redactor, now_utc: datetime | None = None
) -> str:
    """Returns the page that compares runs that have ended.

    Args:
        runs: two or more: the events of each, and the images that it names.
        redactor: what is hidden first, keys in any case.
        now_utc: when the page is written; default: now.

    Raises: BadInput for a run that goes on, too many runs, and a pattern that hides what a record needs.
    """
    if len(runs) > MOST_RUNS:
        raise BadInput(f"a page compares at most {MOST_RUNS} runs, and these are {len(runs)}")
    hidden: list[list[Event]] = []
    passages: list[int] = []
    for events, _ in runs:
        before = redactor.count
        hidden.append(redactor.events(events))
        passages.append(redactor.count - before)
    traces = [shared_page.ended_run(events) for events in hidden]
    compared = [compare_runs(traces[0], trace) for trace in traces[1:]]
    at, tasks = now_utc or datetime.now(UTC), list(dict.fromkeys(trace.task for trace in traces))
    comparison = {
        "written_by": shared_page.WRITTEN_BY,
        "written_at_utc": at.isoformat(),
        "redactions": redactor.count,
        "title": tasks[0] if len(tasks) == 1 else f"{len(traces)} runs with {len(tasks)} tasks",
        "facts": _facts(traces),
        "view": packed(
            {
                "heads": HEADS,
                "rows": run_rows(traces, compared) if len(traces) > 2 else [],
                "pairs": [compared_view(each) for each in compared],
            }
        ),
    }
    data: dict[str, Any] = {
        "shared-comparison": comparison,
        "shared-parts": {"style": shared_page.styles_of(*STYLES), "images": {}},
    }
    there: set[str] = set()
    for place, (trace, events) in enumerate(zip(traces, hidden, strict=True)):
        images = {sha256: image for sha256, image in runs[place][1].items() if sha256 not in there}
        there.update(images)
        data[f"shared-run-{place}"] = shared_page.shared_run(trace, events, images, passages[place], at)
    return shared_page.sealed_page("A comparison", data, shared_page.bundle_of("shared_comparison.js"))


def _facts(traces: Sequence[RunTrace]) -> list[str]:
    names = [letter(place) for place in range(len(traces))]
    are = [f"{name} is {trace.run_id}" for name, trace in zip(names, traces, strict=True)]
    found = [f"A comparison of {len(traces)} runs: {listed(are, len(traces))}."]
    for told, said in (
        ([trace.simulated for trace in traces], "The workers of {} are simulated."),
        ([trace.imported is not None for trace in traces], "Imported before: {}."),
    ):
        if chosen := [name for name, true in zip(names, told, strict=True) if true]:
            found.append(said.format("all" if len(chosen) == len(traces) else listed(chosen, len(traces))))
    return found

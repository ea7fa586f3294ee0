"""A run as the page saw it, to be played again: the messages of its live view, each with its moment. Pure."""

from collections.abc import Sequence
from typing import Any

from conductor_core.trace import begin
from pages.components.live_workflow.messages import LiveView
from storage import StoredEvent


def recording(stored: Sequence[StoredEvent]) -> dict[str, Any]:
    """Returns what a page plays of a run's events, the first of which is its ``run.created``.

    Returns ``{"messages": [...], "moments": [[run_ms, wall_ms], ...]}``, one moment for each message: the milliseconds
    that the run had run, by a clock that stands while the run waits, and those of the wall clock since the run was
    created. The first message is a snapshot of the run as it began; the others say what changed, as the live route
    does.

    Raises: ValueError if the first event is another one, or if there is none.
    """
    if not stored:
        raise ValueError("no events: a recording begins with run.created")
    first = stored[0].event
    trace = begin(first)
    view = LiveView(trace, stored[0].sequence)
    messages, moments = [view.snapshot(trace.created_at_utc)], [[first.at_ms, 0.0]]
    for each in stored[1:]:
        event = each.event
        wall_ms = (event.at_utc - first.at_utc).total_seconds() * 1000
        for message in view.messages([each]):
            messages.append(message)
            moments.append([round(event.at_ms, 3), round(wall_ms, 3)])
    return {"messages": messages, "moments": moments}

"""The conversation that a run belongs to, for the strip above it."""

from contextlib import suppress
from typing import Any

from conductor_core.errors import StoreError
from conductor_core.run.trace import RunTrace
from pages.components.app.session import current, viewed
from pages.components.app.widgets import fault_box, rerun_when
from pages.components.run_list.table import task_of
from storage import RunSummary

_FOLLOWED_S = 3.0  # between two looks whether a turn has begun or ended
_SHORT = 160


def turns(trace: RunTrace) -> list[dict[str, Any]] | None:
    """Returns the turns of the conversation of ``trace``, oldest first; None: it is the only one, or no client's.

    {"run": its id, "number": from 1, "task", "said": its answer in short, or "", "status", "tokens",
     "current": whether it is this run}
    """
    if not _may_have_others(trace):
        return None
    try:
        found, places = _runs(trace), current().store.turn_numbers([trace.run_id])
    except StoreError as error:
        fault_box(error)
        return None
    if len(found) < 2:
        return None
    viewed([run.run_id for run in found if run.conclusion is not None], "list of runs")
    first = places.get(trace.run_id, (1, len(found)))[1] - len(found) + 1
    return [_turn(run, first + at, trace.run_id) for at, run in enumerate(found)]


def follow(trace: RunTrace) -> None:
    """Draws the page anew when a turn of the conversation has begun or ended."""
    if not _may_have_others(trace):
        return
    with suppress(StoreError):  # the strip says what is wrong
        before = _state(_runs(trace))
        rerun_when(lambda: _state(_runs(trace)) != before, _FOLLOWED_S)


def _may_have_others(trace: RunTrace) -> bool:
    return trace.client is not None or trace.conversation_id is not None


def _runs(trace: RunTrace) -> list[RunSummary]:
    return current().store.conversation(trace.run_id)


def _state(runs: list[RunSummary]) -> list[tuple[str, str]]:
    return [(run.run_id, run.status) for run in runs]


def _turn(run: RunSummary, number: int, shown: str) -> dict[str, Any]:
    said = "" if run.conclusion is None else " ".join(run.conclusion.text[: 2 * _SHORT].split())
    return {
        "run": run.run_id,
        "number": number,
        "task": task_of(run)[:_SHORT],
        "said": said[:_SHORT],
        "status": run.status,
        "tokens": run.usage.total_tokens,
        "current": run.run_id == shown,
    }

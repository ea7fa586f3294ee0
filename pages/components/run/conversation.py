"""The conversation that a run belongs to, for the strip above it."""

from contextlib import suppress
from typing import Any

from conductor_core.errors import StoreError
from conductor_core.run.trace import RunTrace
from pages.components.app.session import current, viewed
from pages.components.app.widgets import fault_box, rerun_when
from pages.components.run_list.table import task_of

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
        store = current().store
        found, places = store.conversation(trace.run_id), store.turn_numbers([trace.run_id])
    except StoreError as error:
        fault_box(error)
        return None
    if len(found) < 2:
        return None
    viewed([run.run_id for run in found if run.conclusion is not None], "list of runs")
    first = places.get(trace.run_id, (1, len(found)))[1] - len(found) + 1
    return [
        {
            "run": run.run_id,
            "number": number,
            "task": task_of(run)[:_SHORT],
            "said": "" if run.conclusion is None else " ".join(run.conclusion.text[: 2 * _SHORT].split())[:_SHORT],
            "status": run.status,
            "tokens": run.usage.total_tokens,
            "current": run.run_id == trace.run_id,
        }
        for number, run in enumerate(found, first)
    ]


def follow(trace: RunTrace) -> None:
    """Draws the page anew when a turn of the conversation has begun or ended."""

    def state() -> list[tuple[str, str]]:
        return [(run.run_id, run.status) for run in current().store.conversation(trace.run_id)]

    if _may_have_others(trace):
        with suppress(StoreError):  # the strip says what is wrong
            before = state()
            rerun_when(lambda: state() != before, _FOLLOWED_S)


def _may_have_others(trace: RunTrace) -> bool:
    return trace.client is not None or trace.conversation_id is not None

"""Where a run comes from, which run was made of it, and the conversation that it belongs to."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from conductor_core.analysis.conclusion import changes_of
from conductor_core.blame.experiments import PURPOSE as OF_A_BLAME
from conductor_core.engine.repeats import PURPOSE as OF_A_STEP
from conductor_core.engine.request import asks_conductor, may_run_here, rerun_of, resume_of
from conductor_core.errors import StoreError
from conductor_core.privacy.detectors import in_words
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import fault_box, kept_fault, rerun_when
from pages.components.run import settings
from pages.components.run.preflight import SIMULATED
from pages.components.run.settings import BUILT_IN_POOLS
from pages.components.run.task_box import open_run, start
from pages.components.run_list.table import task_of
from pages.components.style.formats import ago, inert, plural, run_status

_MOST_RUNS_READ = 150
_FOLLOWED_S = 3.0  # between two looks whether a turn has begun or ended
_SHORT = 160


def origin_notes(trace: RunTrace) -> None:
    """Draws lines, where there are some: an imported run's origin, the tier, what was hidden, commands nobody sent."""
    if (imported := trace.imported) is not None and not imported.recorded:
        hidden = f", {plural(imported.redactions, 'passage')} hidden" if imported.redactions else ""
        rerun = "" if may_run_here(trace) else " Its workers are the file's, so it cannot be re-run here."
        by, purpose = inert(imported.caller.in_words), f", for {trace.purpose}" if trace.purpose else ""
        written = f"{imported.written_at_utc:%Y-%m-%d %H:%M} UTC, started by {trace.caller.in_words}{purpose}"
        st.caption(
            f":material/upload_file: **Imported** {ago(imported.imported_at_utc)} by {by} from an unsigned file of "
            f"{inert(imported.written_by)}{hidden}: this database did not carry it out.{rerun}",
            help=inert(
                f"There it was run {imported.run_id}, says the file, written at {written}. Who approved or edited it, "
                "and which other runs it names, is the file's word, too."
            ),
        )
    if trace.tier is not None:
        st.caption(f":material/alt_route: **Tier**: {inert(trace.tier.in_words)}.")
    if trace.redacted:
        st.caption(f":material/visibility_off: **Hidden before it was stored**: {inert(in_words(trace.redacted))}.")
    for refused in trace.refused:
        if refused.unproven:
            st.caption(
                f":material/gpp_bad: **Refused** {ago(refused.at_utc)}: a command to {inert(refused.asked)} this run, "
                "written into the database by hand. No machine that may act has sent it.",
                help=inert(refused.reason),
            )


def kin(trace: RunTrace, tree_words: Callable[[str], str]) -> dict[str, str] | None:
    """Returns the run that ``trace`` came from, or else the newest that was made of it; None: there is neither.

    {"run": its id, "label": what it is to this one, "said": what was changed, "title": all of that,
     "compare": the address of both runs beside each other, "tree": ``Tree of 3 runs`` or "", as ``tree_words`` says}
    """
    found = _parent(trace, trace.parent_run_id) if trace.parent_run_id else _newest(trace) if trace.ended else None
    if found is None:
        return None
    before, after = (found["run"], trace.run_id) if trace.parent_run_id else (trace.run_id, found["run"])
    compare = f"{places.COMPARE.stem}?{urlencode({'a': before, 'b': after})}"
    return {**found, "compare": compare, "tree": tree_words(trace.run_id)}


def _parent(trace: RunTrace, parent: str) -> dict[str, str]:
    replay = "Replay by Blame" if trace.purpose == OF_A_BLAME else "Re-run"
    edits = changes_of(trace)
    given = trace.workflow is not None or trace.root.source in ("file", "parent")
    if not given and not trace.resumed:
        said = "planned again"
    elif trace.root.before_edit is None and not edits:
        said = "the plan as it was"
    elif not edits:
        said = "the plan's text changed, but no step"
    else:
        said = " · ".join(edits)
    return {"run": parent, "label": "Resumed" if trace.resumed else replay, "said": said, "title": "\n".join(edits)}


def _newest(trace: RunTrace) -> dict[str, str] | None:
    try:
        made = current().store.runs(limit=_MOST_RUNS_READ, parent=trace.run_id, without=(OF_A_BLAME,))
    except StoreError as error:
        fault_box(error)
        return None
    # The runs of a step that was asked many times have a panel of their own.
    found = [run for run in made if run.purpose != OF_A_STEP or run.batch_id is None]
    if not found:
        return None
    newest = found[0]
    when = "" if newest.created_at_utc is None else f" {ago(newest.created_at_utc)}"
    ended = "" if newest.status == "completed" else f" {run_status(newest.status)}"
    changed = next((run.named or "" for run in current().store.runs(among=[newest.run_id], answers=True)), "")
    return {"run": newest.run_id, "label": f"Re-run{ended}{when}", "said": changed, "title": changed}


# The conversation, for the strip above the run.


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


# What a failed run offers, in one press each.

FAULT = "way-out-fault"


def _ways(trace: RunTrace) -> dict[str, tuple[str, str | None, str | None]]:
    """Returns what a run that failed offers beside another try: in words, and which Conductor and pool it then takes.

    By the kind of the intent.
    """
    if trace.status != "failed" or not may_run_here(trace):
        return {}
    found: dict[str, tuple[str, str | None, str | None]] = {}
    own = trace.conductor is not None and trace.conductor.name == settings.SHIPPED
    if asks_conductor(trace.root.workflow) and not own:
        found["way-conductor"] = "Plan with tiny", settings.SHIPPED, None
    files = (ref for ref in settings.offered_pools() if ref not in BUILT_IN_POOLS)
    if pool := next((ref for ref in files if Path(ref).stem != Path(trace.pool.name).stem), None):
        found["way-other-pool"] = f"Use pool {Path(pool).stem}", None, pool
    if trace.pool.name != SIMULATED and trace.root.workflow is not None:
        found["way-pool"] = "Use the simulated pool", None, SIMULATED
    elif trace.pool.name != SIMULATED:
        found["way-pool"] = "Simulate it, planned by tiny", settings.SHIPPED, SIMULATED
    return {**found, "way-settings": ("Settings", None, None)}


def ways_out(trace: RunTrace) -> dict[str, str]:
    return {way: words for way, (words, _, _) in _ways(trace).items()}


def take_way_out(trace: RunTrace, way: str) -> None:
    """Does what ``ways_out`` offered. What is recorded of finished steps is reused. Call it before a drawing."""
    found = _ways(trace).get(way)
    if found is None:
        return
    if way == "way-settings":
        settings.close(opened=True)
        return
    _, conductor, pool = found
    with kept_fault(FAULT):  # the task again, with another Conductor or pool, which are then chosen
        run_id = start(request_again(trace, conductor, pool))
        settings.use_pool(pool, conductor)
        open_run(run_id, trace.task)


def request_again(trace: RunTrace, conductor: str | None = None, pool: str | None = None) -> RunRequest:
    if pool is None:
        request = resume_of(trace, *current().store.resumed_from(trace), door="page")
        asked = conductor or request.conductor or settings.conductor()
        needed = asks_conductor(request.workflow)
        return request.model_copy(update={"conductor": asked if needed else None})
    # The workers of another pool have other names: the Conductor plans anew.
    asked = conductor or (trace.conductor.name if trace.conductor is not None else settings.SHIPPED)
    more = {"workflow": None, "overrides": RunRequest(task=trace.task).overrides, "conductor": asked, "pool": pool}
    return rerun_of(trace, door="page").model_copy(update=more)

"""Actions on several runs of the History page: export, hold, delete."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import streamlit as st

from conductor_core.analysis.documents import run_document
from conductor_core.errors import StoreError, UnknownRun
from conductor_core.run.actor import local_caller
from conductor_core.run.trace import RunUnreadable
from pages.components.app import places
from pages.components.app.session import current, exported, this_browser
from pages.components.app.widgets import across, button, download, fault_box, remember
from pages.components.run_list.table import Entry, pick_key
from pages.components.style.formats import inert, moment, plural
from storage import BatchSummary

_ASKED = "history-delete-asked"
_NOTICE = "history-told"
MOST_COMPARED = 26
_MOST_OF_A_BATCH = 100_000
_MOST_REASONS = 3


def picked(rows: Sequence[Entry]) -> list[str]:
    found: list[str] = []
    for row in rows:
        if not st.session_state.get(pick_key(row)):
            continue
        if isinstance(row, BatchSummary):
            found += [run.run_id for run in current().store.runs(limit=_MOST_OF_A_BATCH, batch=row.batch_id)]
        else:
            found.append(row.run_id)
    return found


def bar(rows: Sequence[Entry]) -> None:
    ids = picked(rows)
    with across("picked"):
        st.markdown(f"**{plural(len(ids), 'run')} selected**", width="content")
        everything = all(st.session_state.get(pick_key(row)) for row in rows)
        every = {pick_key(row): not everything for row in rows}
        button("None" if everything else "All of this page", "pick-all", st.session_state.update, every)
        says = f"Two runs in detail, up to {MOST_COMPARED} as a table against the first."
        off = not 2 <= len(ids) <= MOST_COMPARED
        if button("Compare", "compare-picked", icon="compare_arrows", help=says, disabled=off):
            # The oldest run first: the list has the newest first, and a change has a direction.
            first, second, *more = reversed(ids)
            query = {"a": first, "b": second} | ({"more": ",".join(more)} if more else {})
            st.switch_page(places.COMPARE, query_params=query)
        says = "Which run was made from which, and what was edited between them. Select one run."
        of_first = ("tree-picked", places.write, "tree", ids[0] if ids else None)
        button("Tree", *of_first, icon="account_tree", help=says, disabled=len(ids) != 1)
        says = "One JSON document a line, as `show RUN_ID --json` prints it."
        file = (partial(documents_of, ids, this_browser()), "runs.jsonl", "application/x-ndjson", "export-picked")
        download("Export", *file, help=says, disabled=not ids)
        off = not ids or current().store.refusal is not None
        help_text = "A held run (⚑) cannot be deleted. Who placed or released a hold, and when, is on record."
        button("Hold", "hold-picked", _hold, ids, True, help=help_text, disabled=off)
        button("Release", "release-picked", _hold, ids, False, disabled=off)
        button("Delete…", "delete-picked", remember, _ASKED, ids, icon="delete", disabled=off)
    _confirm(ids)


def show_outcome() -> None:
    if (said := st.session_state.pop(_NOTICE, None)) is not None:
        good, text = said
        (st.success if good else st.warning)(inert(text), icon=":material/check:" if good else ":material/warning:")


def documents_of(run_ids: Sequence[str], browser: str) -> bytes:
    """Writes a document per line, as ``show --json`` prints it. ``browser``: who asked for it."""
    documents = [_document(run_id) for run_id in run_ids]
    exported([document["run_id"] for document in documents if "task" in document], "json", browser)
    return "".join(f"{json.dumps(document)}\n" for document in documents).encode()


def _document(run_id: str) -> dict[str, Any]:
    try:
        return run_document(current().store.trace(run_id)[0], whole=True)
    except (UnknownRun, RunUnreadable) as error:  # erased, or damaged
        if isinstance(error, RunUnreadable) and error.trace is not None:
            return run_document(error.trace, whole=True, fault=error)
        return {"run_id": run_id, "damage": {"sequence": getattr(error, "sequence", None), "message": str(error)}}


def _hold(run_ids: Sequence[str], held: bool) -> None:
    what = "held: none of them can be deleted" if held else "released"
    st.session_state[_NOTICE] = (True, f"{plural(len(run_ids), 'run')} {what}.")
    try:
        current().store.hold(run_ids, local_caller("page"), held=held)
    except StoreError as error:
        st.session_state[_NOTICE] = (False, str(error))


def _confirm(ids: Sequence[str]) -> None:
    asked: list[str] | None = st.session_state.get(_ASKED)
    # Only the runs ticked on this page are deleted, so a question about other runs lapses.
    if not asked or set(asked) != set(ids):
        st.session_state.pop(_ASKED, None)
        return
    try:
        held = len(current().store.held(asked))
    except StoreError as error:
        fault_box(error)
        return
    stays = f"Held runs stay until they are released: {held} of these. "
    with st.container(border=True, key="delete-confirm"):
        st.markdown(
            f"**Delete {plural(len(asked), 'run')} for good?** {stays if held else ''}Tasks, plans, what each step saw "
            "and answered, and costs go. That they were deleted, when and from where, stays on record. Export them "
            "first if in doubt."
        )
        with st.container(horizontal=True):
            button(f"Delete {plural(len(asked), 'run')}", "delete-yes", _delete, asked, type="primary")
            button("Keep them", "delete-no", remember, _ASKED, ())


def _delete(run_ids: Sequence[str]) -> None:
    st.session_state[_ASKED] = None
    try:
        outcome = current().store.delete(run_ids, local_caller("page"))
    except StoreError as error:
        st.session_state[_NOTICE] = (False, f"Nothing was deleted: {error}")
        return
    said = f"{plural(len(outcome.run_ids), 'run')} deleted."
    if outcome.refused:
        shown = [f"{run_id}: {why}" for run_id, why in islice(outcome.refused.items(), _MOST_REASONS)]
        more = len(outcome.refused) - len(shown)
        said += f" {plural(len(outcome.refused), 'run')} kept: " + "; ".join(shown)
        said += f"; and {more} more." if more else "."
    st.session_state[_NOTICE] = (not outcome.refused, said)


def name_of_record(count: int) -> str:
    return f"{plural(count, 'run')} deleted or erased"


def record() -> None:
    found, count = current().store.deletions()
    if not count:
        return
    lines = []
    for each in found:
        how = f"{'erased' if each.erased else 'deleted'} by {each.caller.in_words}"
        lines.append(f"{moment(each.deleted_at_utc)} · {how} · run {each.run_id}")
    lines += [f"and {count - len(found):,} before"] if count > len(found) else []
    with st.expander(name_of_record(count), icon=":material/delete:"):
        st.markdown("  \n".join(map(inert, lines)))

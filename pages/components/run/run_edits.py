"""This page's edit of a run's plan, kept for the browser: after a reload it is there again, and two pages keep two.

The address names the edit (``?run=ID&edit=ID``) from its first change on. Without it the run's page offers what the
browser keeps.
"""

from pathlib import Path

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.edits import compare
from pages.components.app.security import browser_id
from pages.components.app.session import current
from pages.components.run import kept_edits
from pages.components.run.draft import Draft
from pages.components.run.kept_edits import KeptEdit
from pages.components.run.kept_files import Place
from pages.components.style.formats import ago, inert, plural

PARAMETER = "edit"
MOST_OFFERED = 3
APART = (
    "Another page of this browser writes the same edit. Yours is kept apart from it from now on: the run's page offers "
    "both."
)
_NOTE = "edit-note-of-page"


def draft_key(run_id: str) -> str:
    return f"draft:{run_id}"


def restore(run_id: str) -> bool:
    """Takes up the edit that the address names, if this page has none yet. Returns whether it did."""
    named, browser = st.query_params.get(PARAMETER), browser_id()
    if named is None or draft_key(run_id) in st.session_state:
        return False
    try:
        found = None if browser is None else kept_edits.read(_folder(), browser, run_id, named)
    except InspectorError as error:
        st.session_state[_NOTE] = str(error)
        return False
    if found is None:
        # It was run or thrown away, or another browser has it.
        st.query_params.pop(PARAMETER, None)
        return False
    _restore(run_id, found)
    return True


def keep(run_id: str, draft: Draft) -> None:
    """Keeps the draft for the browser. One without cookies has it until the page is loaded again."""
    browser = browser_id()
    if browser is None:
        return
    before = _place(run_id)
    try:
        place = kept_edits.write(_folder(), browser, run_id, draft, before)
    except InspectorError as error:
        st.session_state[_NOTE] = str(error)
        return
    if before is not None and place.edit_id != before.edit_id:
        st.session_state[_NOTE] = APART
    st.session_state[_place_key(run_id)] = place
    if st.query_params.get(PARAMETER) != place.edit_id:
        st.query_params[PARAMETER] = place.edit_id


def forget(run_id: str, edit_id: str | None = None) -> None:
    """Keeps an edit no longer, because it was run or thrown away. None: this page's own."""
    browser, own = browser_id(), _place(run_id)
    edit_id = edit_id or (own.edit_id if own is not None else None)
    if browser is None or edit_id is None:
        return
    try:
        kept_edits.remove(_folder(), browser, run_id, edit_id)
    except InspectorError as error:
        st.session_state[_NOTE] = str(error)
    if own is not None and own.edit_id == edit_id:
        st.session_state.pop(_place_key(run_id))
    if st.query_params.get(PARAMETER) == edit_id:
        st.query_params.pop(PARAMETER)


def note() -> None:
    """Says what happened to what is kept, once."""
    if message := st.session_state.pop(_NOTE, None):
        st.warning(inert(message), icon=":material/warning:")


def offered(trace: RunTrace) -> list[dict[str, str]]:
    """Returns the edits of this run that were not run: {"id", "words", "title": all that is changed}."""
    browser = browser_id()
    if browser is None:
        return []
    kept, faults = kept_edits.of_run(_folder(), browser, trace.run_id, MOST_OFFERED)
    for fault in faults:
        st.warning(
            inert(f"{fault}. Mend or remove the file; your other edits are not touched."), icon=":material/warning:"
        )
    return [_offer(edit) for edit in kept if edit.draft.changed]


def _offer(edit: KeptEdit) -> dict[str, str]:
    draft = edit.draft
    compared = compare(draft.original, draft.workflow, draft.origins)
    sentences = compared.sentences(draft.original, draft.workflow)
    said = sentences[0] if len(sentences) == 1 else plural(compared.count, "change")
    said = said if sentences else "an output given by a person, or the text of the plan"
    words = f"{said}, {ago(edit.place.written_at_utc)}"
    return {"id": edit.place.edit_id, "words": words, "title": "\n".join(sentences)}


def go_on(run_id: str, edit_id: str) -> bool:
    """Takes up a kept edit. Returns whether it is still there."""
    browser = browser_id()
    try:
        found = None if browser is None else kept_edits.read(_folder(), browser, run_id, edit_id)
    except InspectorError as error:
        st.session_state[_NOTE] = str(error)
        return False
    if found is not None:
        _restore(run_id, found)
    return found is not None


def throw_away(run_id: str, edit_id: str) -> None:
    own = _place(run_id)
    if own is not None and own.edit_id == edit_id:
        st.session_state.pop(draft_key(run_id), None)
    forget(run_id, edit_id)


def _restore(run_id: str, edit: KeptEdit) -> None:
    st.session_state[draft_key(run_id)] = edit.draft
    st.session_state[_place_key(run_id)] = edit.place
    if st.query_params.get(PARAMETER) != edit.place.edit_id:
        st.query_params[PARAMETER] = edit.place.edit_id


def _place(run_id: str) -> Place | None:
    found: Place | None = st.session_state.get(_place_key(run_id))
    return found


def _place_key(run_id: str) -> str:
    return f"{draft_key(run_id)}:kept"


def _folder() -> Path:
    return current().settings.data_folder

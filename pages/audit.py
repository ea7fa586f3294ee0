"""Audit: search all texts of all runs, read a run as a decision record, and see who received what, and what it cost."""

import streamlit as st

from conductor_core.errors import InspectorError, StoreError
from pages.components.app.search_index import catch_up, lag_note
from pages.components.app.session import current, readable
from pages.components.app.widgets import start_link
from pages.components.audit import query
from pages.components.audit.integrity import integrity, integrity_line
from pages.components.audit.record_view import record_page, show_access_log
from pages.components.audit.results import failures, found, ledger, spending
from pages.components.style.formats import inert
from pages.components.tour.drive import TOUR, arrive, tour_strip
from storage.search.filters import ANY

QUESTIONS = (
    ("edited", "✎ Who changed a plan or an output, and what?", {"edited": ANY}),
    ("received", "⇢ Which provider received a text?", {"view": query.LEDGER}),
    ("approved", "‖ Who approved or denied what?", {"approval": ANY}),
    ("failed", "✕ What failed, how often, in which tasks?", {"view": query.FAILURES}),
    ("spent", "$ What was spent, by which agent and person?", {"view": query.COST}),
    ("real", "● Which runs asked real workers?", {"workers": "real"}),
)
DRAWN = {
    query.FOUND: found,
    query.LEDGER: ledger,
    query.COST: spending,
    query.FAILURES: failures,
    query.ACCESS: show_access_log,
    query.INTEGRITY: integrity,
}


def show() -> None:
    asked = query.read()
    try:
        if asked.run_id is not None:  # the record is read from the events, whatever the index is like
            _record(asked, asked.run_id)
            return
        catch_up()
        query.head(asked)
        integrity_line(asked)
        lag_note()
        if asked.fault:
            st.warning(inert(asked.fault), icon=":material/link_off:")
        if asked.blank and asked.view == query.FOUND and asked.before is None:
            _questions()
        if asked.view in (query.ACCESS, query.INTEGRITY) or not _empty(asked):
            DRAWN[asked.view](asked)
    except InspectorError as error:
        st.error(inert(str(error)), icon=":material/error:")


def _record(asked: query.AuditQuery, run_id: str) -> None:
    trace = readable(run_id) if TOUR in st.query_params else None
    stop = arrive(trace, "record")
    # The head is at the same place as above a search: otherwise its field is made anew, and loses what is typed.
    try:
        query.head(asked)
    except StoreError as error:
        st.warning(inert(str(error)), icon=":material/warning:")
    if stop is not None and trace is not None:
        tour_strip(stop, trace)
    integrity_line(asked)
    record_page(run_id)


def _questions() -> None:
    with st.container(border=True, key="audit-empty", gap="xsmall"):
        st.markdown("**What do you want to know?** Type words above, or begin with a question.")
        columns = st.columns(2, gap="small")
        for number, (key, words, changes) in enumerate(QUESTIONS):
            columns[number % 2].button(
                inert(words), key=f"audit-ask-{key}", type="tertiary", on_click=query.change_address, kwargs=changes
            )


def _empty(asked: query.AuditQuery) -> bool:
    if not asked.blank or current().store.search.count("").runs:
        return False
    st.info("No run has ended yet. Every run can be searched here once it has.", icon=":material/manage_search:")
    start_link()
    return True


show()

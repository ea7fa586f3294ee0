"""Notes on runs that cannot be read to their end, and on a database that cannot be written."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.run.trace import RunUnreadable
from pages.components.app.session import current
from pages.components.style.formats import inert
from storage import RunSummary
from storage.records import ERASED

_MOST_CHARACTERS = 20_000


def notes(runs: Sequence[RunSummary] = ()) -> None:
    """Says what is wrong with the database, or with some of the listed ``runs``. That a run was erased is no fault."""
    store = current().store
    if store.refusal is not None:
        st.info(inert(str(store.refusal)), icon=":material/lock:")
    if store.fault is not None:
        st.error(inert(f"{store.fault}; what could be read is listed"), icon=":material/error:")
    unreadable = [run.damage for run in runs if run.damage is not None and run.status != ERASED]
    if len(unreadable) == 1:
        st.warning(inert(unreadable[0]), icon=":material/warning:")
    elif unreadable:
        said = f"{len(unreadable)} of these runs cannot be read completely. Open one to see where and what to do."
        st.warning(said, icon=":material/warning:")


def damage(fault: RunUnreadable) -> None:
    """Shows, on request, the record at which reading stops. The live component says what is wrong with it."""
    if fault.trace is None:
        st.error(inert(str(fault)), icon=":material/error:")
    if fault.sequence is None:
        return
    with st.expander(f"Event {fault.sequence} as it lies in the database", icon=":material/data_object:"):
        try:
            [record] = current().store.raw_events(fault.run_id, after=fault.sequence - 1, limit=1)
        except (StoreError, ValueError) as error:
            st.caption(inert(f"It cannot be read either: {error}"))
            return
        payload = record.payload.decode("utf-8", "backslashreplace")
        st.caption(inert(f"{record.kind}, {record.at_utc}, {len(record.payload):,} bytes"))
        st.code(payload[:_MOST_CHARACTERS], language=None, wrap_lines=True)
        if len(payload) > _MOST_CHARACTERS:
            st.caption(f"The first {_MOST_CHARACTERS:,} characters of {len(payload):,}.")

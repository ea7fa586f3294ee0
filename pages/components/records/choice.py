"""The choice of the record that a page shows, what it says without one, and what is wrong with the record."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.lab.records.evaluation import EvaluationRecord
from conductor_core.lab.records.training import TrainingRecord
from pages.components.app.session import current
from pages.components.records.folders import Kind, RecordFolder, State, record_folders, refreshed
from pages.components.style.formats import inert

LIVE_S = 3.0
WAITING_S = 10.0  # between two looks whether a record has begun, or one that stopped goes on
R = TypeVar("R", EvaluationRecord, TrainingRecord)


def choose_record(kind: Kind, title: str) -> RecordFolder | None:
    """Draws the page's title with the choice beside it. Returns the chosen record, at first the one begun last."""
    found = record_folders(kind, current().settings.data_folder)
    with st.container(horizontal=True, vertical_alignment="center", key="record-choice"):
        st.title(title, anchor=False)
        if not found:
            return None
        by_path = {str(each.folder): each for each in found}
        path = st.selectbox(
            "Record",
            list(by_path),
            format_func=lambda each: by_path[each].label,
            # A record that begins changes the key, so that the page shows it without being asked.
            key=f"{kind}:{found[0].folder}",
            label_visibility="collapsed",
            width=340,
            persist_state="session",
        )
    return by_path.get(path or "", found[0])


def no_record(kind: Kind, what: str, command: str) -> None:
    """Draws the empty state, which ends by itself when a record begins."""

    @st.fragment(run_every=WAITING_S)
    def wait() -> None:
        root = current().settings.data_folder
        if record_folders(kind, root):
            st.rerun()
        with st.container(border=True, horizontal_alignment="center", key=f"{kind}-empty"):
            st.markdown(what)
            st.code(command, language="bash")
            st.caption(f"Looked for in {inert(str(root / kind))}, a folder for each; this page shows it as it runs.")

    wait()


def follow(
    chosen: RecordFolder,
    read: Callable[[Path], R],
    state_of: Callable[[R, RecordFolder], State],
    draw: Callable[[R, RecordFolder, State], None],
) -> None:
    """Draws a record again and again while its command runs, and the whole page once its state changes."""
    try:
        state = state_of(read(chosen.folder), chosen)
    except InspectorError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return

    def body() -> None:
        try:
            record, folder = read(chosen.folder), refreshed(chosen)
        except (InspectorError, OSError) as error:
            st.error(inert(str(error)), icon=":material/error:")
            return
        now = state_of(record, folder)
        if now != state:
            st.rerun()
        if broken := record.broken:
            more = f" ({len(broken) - 1} more after it)" if len(broken) > 1 else ""
            st.error(inert(f"{broken[0]}{more}. It is left out below."), icon=":material/error:")
        draw(record, folder, now)

    # Only a run of the whole page can set this: a fragment cannot change its own interval.
    every_s = {"running": LIVE_S, "stopped": WAITING_S, "ended": None}[state]
    st.fragment(body, run_every=every_s)()

"""Which record a page shows, what a page without any says, and what is wrong with the one that is shown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import streamlit as st

from conductor_core.errors import InspectorError
from pages.components.look.words import inert
from pages.components.records.folders import Kind, RecordFolder, State, record_folders, refreshed
from pages.components.shell.runtime import current

LIVE_S = 3.0
WAITING_S = 10.0
"""How often a page looks whether a record has begun, or one that stopped goes on."""


def choose_record(kind: Kind, title: str) -> RecordFolder | None:
    """Draws the page's title with the choice beside it. The record begun last, unless another is chosen."""
    found = record_folders(kind, current().settings.data_folder)
    with st.container(horizontal=True, vertical_alignment="center", key="record-choice"):
        st.title(title, anchor=False)
        return _choice(kind, found) if found else None


def _choice(kind: Kind, found: Sequence[RecordFolder]) -> RecordFolder:
    by_path = {str(each.folder): each for each in found}
    path = st.selectbox(
        "Record",
        list(by_path),
        format_func=lambda each: by_path[each].label,
        # Another key once another has begun: it is then shown without being asked for.
        key=f"{kind}:{found[0].folder}",
        label_visibility="collapsed",
        width=340,
        persist_state="session",
    )
    return by_path.get(path or "", found[0])


def no_record(kind: Kind, what: str, command: str) -> None:
    """The empty state, which ends by itself when a record begins."""
    st.fragment(_no_record, run_every=WAITING_S)(kind, what, command)


def _no_record(kind: Kind, what: str, command: str) -> None:
    root = current().settings.data_folder
    if record_folders(kind, root):
        st.rerun()
    with st.container(border=True, horizontal_alignment="center", key=f"{kind}-empty"):
        st.markdown(what)
        st.code(command, language="bash")
        st.caption(f"Looked for in {inert(str(root / kind))}, a folder for each; this page shows it as it runs.")


class Record(Protocol):
    @property
    def broken(self) -> Sequence[str]:
        """What is wrong with each line that could not be read."""
        ...


R = TypeVar("R", bound=Record)


def follow(
    chosen: RecordFolder,
    read: Callable[[Path], R],
    state_of: Callable[[R, RecordFolder], State],
    draw: Callable[[R, RecordFolder, State], None],
) -> None:
    """Draws a record, again and again while its command runs, and the whole page once that changes."""
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
        _say_broken(record.broken)
        draw(record, folder, now)

    # How often is for the whole page to say: a fragment cannot change it.
    every_s = {"running": LIVE_S, "stopped": WAITING_S, "ended": None}[state]
    st.fragment(body, run_every=every_s)()


def _say_broken(broken: Sequence[str]) -> None:
    """One error for all lines of a record that could not be read."""
    if broken:
        more = f" ({len(broken) - 1} more after it)" if len(broken) > 1 else ""
        st.error(inert(f"{broken[0]}{more}. It is left out below."), icon=":material/error:")

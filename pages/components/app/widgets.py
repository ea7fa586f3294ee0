"""Widgets of several pages: buttons, choices, select boxes whose words change while they are shown, faults.

The words are a count, or how long ago a run began. The browser names an option by the words that it last drew. When the
script has run again meanwhile, for the first of two quick clicks, those words may be none of the options'. Streamlit
then takes the words themselves for the choice: a page would look for a run called "2 min ago". So the words of the last
drawings are kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from conductor_core.errors import InspectorError, RunGone, StoreError
from conductor_core.run.trace import RunUnreadable
from pages.components.app import places
from pages.components.app.session import current
from pages.components.style.formats import html, inert
from storage import RunSummary
from storage.records import ERASED

_KEPT, _LONGEST = 1_000, 500  # texts, and characters of one: a browser may send anything, and the session keeps it


T = TypeVar("T")


def button(label: str, key: str, do: Callable[..., None] | None = None, *args: Any, icon: str = "", **how: Any) -> bool:
    """Draws a button that calls ``do`` with ``args``. ``icon``: the name of one of Material's symbols."""
    return st.button(label, key=key, on_click=do, args=args, icon=_icon(icon), **how)


def text_button(label: str, key: str, do: Callable[..., None], *args: Any, icon: str = "", **how: Any) -> bool:
    return button(label, key, do, *args, icon=icon, type="tertiary", **how)


def download(label: str, data: Any, file_name: str, mime: str, key: str, *, icon: str = "download", **how: Any) -> None:
    """Draws a button that saves ``data``, or what it returns when it is pressed; the page stays as it is."""
    st.download_button(label, data, file_name=file_name, mime=mime, key=key, icon=_icon(icon), on_click="ignore", **how)


def _icon(name: str) -> str | None:
    return f":material/{name}:" if name else None


def remember(key: str, value: object) -> None:
    st.session_state[key] = value


def across(key: str | None = None, **how: Any) -> DeltaGenerator:
    return st.container(key=key, horizontal=True, vertical_alignment="center", **how)


def select(label: str, options: Iterable[T], key: str, **how: Any) -> T | None:
    found: T | None = st.selectbox(label, list(options), key=key, label_visibility="collapsed", **how)
    return found


def segments(label: str, options: Iterable[T], key: str, **how: Any) -> Any:
    return st.segmented_control(label, list(options), key=key, label_visibility="collapsed", **how)


def open_link(run_id: str, label: str = "Open the run") -> None:
    st.page_link(places.RUN, label=label, icon=":material/play_circle:", query_params={"run": run_id})


def start_link(label: str = "Start one") -> None:
    st.page_link(places.RUN, label=label, icon=":material/play_circle:")


def worded(key: str, words: Mapping[str, str]) -> Callable[[str], str]:
    """Returns the ``format_func`` of a select box, and mends its value. Call it before the box is drawn.

    Args:
        key: the box's key in the session. words: what each option is called now. No other option may ever be called
            so: Streamlit could not tell them apart.
    """
    before: dict[str, str] = st.session_state.get(f"{key}-words", {})
    drawn = {text: option for text, option in before.items() if text not in words.values()}
    drawn |= {text: option for option, text in words.items() if len(text) <= _LONGEST}
    st.session_state[f"{key}-words"] = dict(list(drawn.items())[-_KEPT:])
    if key in st.session_state and st.session_state[key] != (option := chosen(key)):
        st.session_state[key] = option
    return lambda option: words.get(option, option)


def chosen(key: str) -> str | None:
    """Returns the option that the box holds, None for none. For its callback, which runs before it is drawn again."""
    value: str | None = st.session_state.get(key)
    drawn: dict[str, str] = st.session_state.get(f"{key}-words", {})
    return drawn.get(value, value) if value is not None and value not in drawn.values() else value


def search_field(key: str, label: str = "Search runs", **how: Any) -> str:
    how = {"placeholder": "Words in tasks and answers, or a run's id", "icon": ":material/search:"} | how
    found = st.text_input(label, key=key, label_visibility="collapsed", **how)
    return str(found or "").strip()


def choose_run(
    label: str, words: Mapping[str, str], key: str, parameter: str, shown: str | None, placeholder: str, **how: Any
) -> None:
    """Draws a choice of runs, by id, that goes into the address: that is the truth, so it says also what is chosen."""
    st.session_state[key] = shown

    def go() -> None:
        places.write(parameter, chosen(key))

    box = worded(key, words)
    select(label, words, key, format_func=box, placeholder=placeholder, on_change=go, **how)


@contextmanager
def kept_fault(key: str) -> Iterator[None]:
    """Keeps an error of what a button does for ``show_fault``, which draws it with the page."""
    try:
        yield
    except InspectorError as error:
        st.session_state[key] = str(error)


def show_fault(key: str) -> None:
    if message := st.session_state.pop(key, None):
        fault_box(message)


@contextmanager
def fault_shown() -> Iterator[None]:
    """Draws an error of what is inside in the place of the rest of it."""
    try:
        yield
    except InspectorError as error:
        fault_box(error)


def fault_box(error: InspectorError | str) -> None:
    """Draws an error; a run that somebody deleted or erased is none, and is told as a fact."""
    if isinstance(error, RunGone):
        st.info(inert(str(error)), icon=":material/ink_eraser:")
    else:
        st.error(inert(str(error)), icon=":material/error:")


_MOST_CHARACTERS = 20_000


def notes(runs: Sequence[RunSummary] = ()) -> None:
    """Says what is wrong with the database, or with some of the listed ``runs``. That a run was erased is no fault."""
    store = current().store
    if store.refusal is not None:
        st.info(inert(str(store.refusal)), icon=":material/lock:")
    if store.fault is not None:
        fault_box(f"{store.fault}; what could be read is listed")
    if unreadable := [run.damage for run in runs if run.damage is not None and run.status != ERASED]:
        several = f"{len(unreadable)} of these runs cannot be read completely. Open one to see where and what to do."
        st.warning(several if unreadable[1:] else inert(unreadable[0]), icon=":material/warning:")


def damage(fault: RunUnreadable) -> None:
    """Shows, on request, the record at which reading stops. The live component says what is wrong with it."""
    if fault.trace is None:
        fault_box(fault)
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


def rerun_when(changed: Callable[[], bool], every_s: float) -> None:
    """Draws the page anew once ``changed``. If the store fails meanwhile, the page's next drawing says so."""

    @st.fragment(run_every=every_s)
    def look() -> None:
        with suppress(StoreError):
            if changed():
                st.rerun()

    look()


def dialog_scheme() -> None:
    """Gives dialogs the page's colours: they lie outside the element that says which of the two schemes it has."""
    st.html(html("app/frame", "dialog_scheme", scheme="dark" if st.context.theme.type == "dark" else "light"))


def confirm(asked: str, title: str, text: str, yes: str, icon: str, do: Callable[[], None]) -> None:
    """Asks in a dialog whether to ``do`` it; ``asked``: what in the session holds the question until an answer."""

    def close() -> None:
        st.session_state.pop(asked, None)

    @st.dialog(title, on_dismiss=close)
    def draw() -> None:
        dialog_scheme()
        st.markdown(text)
        with st.container(horizontal=True):
            agreed = button(yes, f"{yes.lower()}-yes", type="primary", icon=icon)
            refused = button("Keep", f"{yes.lower()}-no")
        if agreed:
            do()
        if agreed or refused:
            close()
            st.rerun()

    draw()

"""Widgets of several pages: select boxes whose words change while they are shown, and the box that reports a fault.

The words are a count, or how long ago a run began. The browser names an option by the words that it last drew. When the
script has run again meanwhile, for the first of two quick clicks, those words may be none of the options'. Streamlit
then takes the words themselves for the choice: a page would look for a run called "2 min ago". So the words of the last
drawings are kept.
"""

from collections.abc import Callable, Mapping

import streamlit as st

from conductor_core.errors import InspectorError, RunGone
from pages.components.style.formats import inert

_KEPT, _LONGEST = 1_000, 500  # texts, and characters of one: a browser may send anything, and the session keeps it


def worded(key: str, words: Mapping[str, str]) -> Callable[[str], str]:
    """Returns the ``format_func`` of a select box, and mends its value. Call it before the box is drawn.

    Args:
        key: the box's key in the session. words: what each option is called now. No other option may ever be called
            so: Streamlit could not tell them apart.
    """
    drawn = {text: option for text, option in _drawn(key).items() if text not in words.values()}
    drawn |= {text: option for option, text in words.items() if len(text) <= _LONGEST}
    st.session_state[_drawn_key(key)] = dict(list(drawn.items())[-_KEPT:])
    if key in st.session_state and st.session_state[key] != (option := chosen(key)):
        st.session_state[key] = option
    return lambda option: words.get(option, option)


def chosen(key: str) -> str | None:
    """Returns the option that the box holds, None for none. For its callback, which runs before it is drawn again."""
    value: str | None = st.session_state.get(key)
    drawn = _drawn(key)
    return drawn.get(value, value) if value is not None and value not in drawn.values() else value


def _drawn(key: str) -> dict[str, str]:
    drawn: dict[str, str] = st.session_state.get(_drawn_key(key), {})
    return drawn


def _drawn_key(key: str) -> str:
    return f"{key}-words"


def fault_box(error: InspectorError | str) -> None:
    """Draws an error; a run that somebody deleted or erased is none, and is told as a fact."""
    if isinstance(error, RunGone):
        st.info(inert(str(error)), icon=":material/ink_eraser:")
    else:
        st.error(inert(str(error)), icon=":material/error:")

"""The page's own part of the browser's address (``?run=ID``). Callbacks write it; the script reads it after them.

Streamlit starts a new thread for a click while an earlier thread may be about to run the script again. Both share
``st.query_params``, and the earlier thread sets them back to its own request. The session's state therefore keeps what
a callback wrote; without it, the address changed and the page did not (docs/decisions/0183).
"""

import streamlit as st

from pages.components.app.places import FIRST

OF_RUN = ("at", "edit")
"""What the address says about the run that it names: the moment of a replay, the edit of the plan."""


def write(name: str, value: str | None) -> None:
    """Sets a parameter of the address, also for the script after the callback. None removes it.

    Another run has other moments and other edits, so those of this one go; and with a run, the first screen is over.
    """
    st.session_state[_key(name)] = (value,)
    if name == "run":
        for own in (*OF_RUN, FIRST):
            st.query_params.pop(own, None)
    _set(name, value)


def read(name: str) -> str | None:
    """Returns the parameter of the last callback, else that of the browser. Call it once, at the script's start."""
    if written := st.session_state.pop(_key(name), None):
        _set(name, *written)
    return st.query_params.get(name)


def _set(name: str, value: str | None) -> None:
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value


def _key(name: str) -> str:
    return f"address-{name}"

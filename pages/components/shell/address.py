"""The page's own part of the browser's address (``?run=ID``), written by callbacks and read by the script after them.

Streamlit starts a new thread for a click while an earlier one may still be about to run the script again. Both share
``st.query_params``, and the earlier one sets them back to its own request, so what a callback wrote there alone could
be lost: the address changed, and the page did not (docs/decisions/0183). The session's state keeps it in between.
"""

import streamlit as st


def write(name: str, value: str | None) -> None:
    """Sets a parameter of the address, for the script that follows the callback, too; None: removes it."""
    st.session_state[_key(name)] = (value,)
    _set(name, value)


def read(name: str) -> str | None:
    """The parameter as the last callback left it, else as the browser has it. Call it once, at the script's start."""
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

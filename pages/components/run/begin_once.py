"""Starts a run that a person asks for on the page, and takes a double press for one."""

import time

import streamlit as st

from conductor_core.run_request import RunRequest
from pages.components.shell.runtime import current

_LAST = "begun-last"
DOUBLE_PRESS_S = 3.0


def start(request: RunRequest) -> str:
    """Starts a run and returns its id: that of the run just begun here if the same is asked for while it goes on.

    Raises: InspectorError.
    """
    now_s = time.monotonic()
    asked = request.model_copy(update={"run_id": ""})
    last: tuple[RunRequest, str, float] | None = st.session_state.get(_LAST)
    if last is not None and last[0] == asked and now_s - last[2] < DOUBLE_PRESS_S:
        run_id = last[1]
        if run_id in current().host.active():
            return run_id
    run_id = current().host.start(request)
    st.session_state[_LAST] = (asked, run_id, now_s)
    return run_id

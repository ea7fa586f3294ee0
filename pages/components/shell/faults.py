"""The box that says why something cannot be shown."""

import streamlit as st

from conductor_core.errors import InspectorError, RunGone
from pages.components.look.words import inert


def fault_box(error: InspectorError | str) -> None:
    """Draws an error; a run that somebody deleted or erased is none, and is told as a fact."""
    if isinstance(error, RunGone):
        st.info(inert(str(error)), icon=":material/ink_eraser:")
    else:
        st.error(inert(str(error)), icon=":material/error:")

"""Leads from the Run page to the Models page where a Conductor would have to be downloaded first."""

import streamlit as st

from conductor_core.engine.machine_models import is_away
from pages.components.shell import places
from pages.components.shell.runtime import current

_REF = "to-models"


def leads(ref: str | None) -> bool:
    """Tells whether a Conductor is not on this machine; then ``go`` opens the Models page at it."""
    away = ref is not None and is_away(ref, current().settings)
    if away:
        st.session_state[_REF] = ref
    return away


def go() -> None:
    """Opens the Models page if something that was done since leads there."""
    if (ref := st.session_state.pop(_REF, None)) is not None:
        st.switch_page(places.MODELS, query_params={"model": ref})

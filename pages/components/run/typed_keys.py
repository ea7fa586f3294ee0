"""The keys that the person of this browser session typed."""

import streamlit as st

from conductor_core.privacy.masking import TypedKeys


@st.cache_resource(scope="session", show_spinner=False, on_release=TypedKeys.forget)
def mine() -> TypedKeys:
    """Returns the session's keys. When the browser leaves, Streamlit releases them, and they are forgotten.

    Call it from the page's script and its callbacks: a thread of its own has no session.
    """
    return TypedKeys()

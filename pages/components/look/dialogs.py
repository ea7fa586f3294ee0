"""What every dialog needs."""

import streamlit as st


def dialog_scheme() -> None:
    """Tells an open dialog which of the two colour schemes it has: it lies outside the element that says so."""
    scheme = "dark" if st.context.theme.type == "dark" else "light"
    st.html(f"<style>.stDialog {{ color-scheme: {scheme}; }}</style>")

"""Keys: who may use the endpoint, how much they may spend, and what they spent today."""

import streamlit as st

from pages.components.app.session import current
from pages.components.app.widgets import fault_shown, notes
from pages.components.keys import table
from pages.components.style.formats import html


def show() -> None:
    st.title("Keys", anchor=False)
    st.html(html(table.TEMPLATE, "intro", address=table.endpoint(st.context.url)))
    notes()
    with fault_shown():
        table.rows(current().store.service_keys.list())
    new, how = st.columns(2, gap="large")
    with new:
        st.subheader("Create a key", anchor=False)
        table.creation()
    with how:
        st.subheader("Use a key", anchor=False)
        table.usage()


show()

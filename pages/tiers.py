"""Tiers: cost against quality of sending easy requests to one cheap worker, and the threshold between them."""

import streamlit as st

from pages.components.app.widgets import notes
from pages.components.style.formats import html
from pages.components.tiers import view


def show() -> None:
    st.title("Tiers", anchor=False)
    st.html(html(view.TEMPLATE, "intro"))
    notes()
    file = view.choose()
    if file is None:
        view.nothing_fitted()
    else:
        view.show_file(file)
    view.routed()


show()

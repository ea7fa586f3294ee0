"""The entry script, which runs at each visit and each action: the navigation and the frame of every page."""

import streamlit as st

from pages.components.app import places
from pages.components.app.session import current

st.set_page_config(page_title="Conductor Inspector", page_icon="🎼", layout="wide", initial_sidebar_state=230)


rail = {
    heading: [st.Page(each, title=each.stem.capitalize(), icon=f":material/{places.ICONS[each]}:") for each in group]
    for heading, group in places.RAIL.items()
}
run = rail[""][0]


def home() -> None:
    """Leads from the bare address to the Run page, whose own address also serves links to runs (`/run?run=ID`)."""
    st.switch_page(run, query_params=dict(st.query_params))


def first() -> None:
    st.session_state[places.FIRST] = True  # it was pressed just now: see ``task_box.arrive_first``
    st.switch_page(run, query_params={places.FIRST: "yes"})


name = st.Page(first, title="Conductor Inspector", url_path=places.FIRST)
start = st.Page(home, title="Conductor Inspector", default=True, visibility="hidden", url_path="home")
st.navigation({**rail, "": [start, name, *rail[""]]}).run()

# This comes after the page is drawn, because loading a model takes the processor.
current().warm_up()

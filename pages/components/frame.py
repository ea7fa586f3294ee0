"""The entry script, run at each visit and each action: navigation, and the frame that every page stands in."""

from pathlib import Path

import streamlit as st

PAGES = Path(__file__).resolve().parents[1]

# Streamlit's theme has no setting for these: wide margins would cost the graph a column at 1280 px.
STYLE = """<style>
.stMainBlockContainer { padding: 2.6rem 1.8rem 3rem; max-width: 2200px; }
[data-testid="stHeader"] { height: 2.2rem; min-height: 2.2rem; background: transparent; }
[data-testid="stSidebarHeader"] { height: auto; min-height: 3.4rem; margin-bottom: 0; }
[data-testid="stSidebarHeader"]::before {
  content: "♩ Conductor Inspector"; font-weight: 600; font-size: 1.02rem; white-space: nowrap;
}
</style>"""

st.set_page_config(page_title="Conductor Inspector", page_icon="🎼", layout="wide", initial_sidebar_state=230)
st.html(STYLE)

run = st.Page(PAGES / "run.py", title="Run", icon=":material/play_circle:", url_path="run")
history = st.Page(PAGES / "history.py", title="History", icon=":material/history:", url_path="history")
workers = st.Page(PAGES / "workers.py", title="Workers", icon=":material/groups:", url_path="workers")


def home() -> None:
    """The bare address leads to the Run page, whose own address also holds links to runs (`/run?run=ID`)."""
    st.switch_page(run, query_params=dict(st.query_params))


start = st.Page(home, title="Conductor Inspector", default=True, visibility="hidden", url_path="home")
st.navigation({"": [start, run, history], "System": [workers]}).run()

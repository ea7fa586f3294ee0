"""The entry script, which runs at each visit and each action: the navigation and the frame of every page."""

import streamlit as st

from pages.components.app import places
from pages.components.app.session import current

st.set_page_config(page_title="Conductor Inspector", page_icon="🎼", layout="wide", initial_sidebar_state=230)

run = st.Page(places.RUN, title="Run", icon=":material/play_circle:", url_path=places.RUN.stem)
history = st.Page(places.HISTORY, title="History", icon=":material/history:", url_path=places.HISTORY.stem)
compare = st.Page(places.COMPARE, title="Compare", icon=":material/compare_arrows:", url_path=places.COMPARE.stem)
context = st.Page(places.CONTEXT, title="Context", icon=":material/account_tree:", url_path=places.CONTEXT.stem)
blame = st.Page(places.BLAME, title="Blame", icon=":material/troubleshoot:", url_path=places.BLAME.stem)
audit = st.Page(places.AUDIT, title="Audit", icon=":material/manage_search:", url_path=places.AUDIT.stem)
workers = st.Page(places.WORKERS, title="Workers", icon=":material/groups:", url_path=places.WORKERS.stem)
models = st.Page(places.MODELS, title="Models", icon=":material/neurology:", url_path=places.MODELS.stem)
evaluate = st.Page(places.EVALUATE, title="Evaluate", icon=":material/leaderboard:", url_path=places.EVALUATE.stem)
training = st.Page(places.TRAINING, title="Training", icon=":material/school:", url_path=places.TRAINING.stem)


def home() -> None:
    """Leads from the bare address to the Run page, whose own address also serves links to runs (`/run?run=ID`)."""
    st.switch_page(run, query_params=dict(st.query_params))


def first() -> None:
    """Leads from the rail's name to the first screen."""
    st.switch_page(run, query_params={places.FIRST: "yes"})


name = st.Page(first, title="Conductor Inspector", url_path=places.FIRST)
start = st.Page(home, title="Conductor Inspector", default=True, visibility="hidden", url_path="home")
st.navigation(
    {
        "": [start, name, run, history, compare, context, blame, audit],
        "Conductor": [evaluate, training],
        "System": [workers, models],
    }
).run()

# This comes after the page is drawn, because loading a model takes the processor.
current().warm_up()

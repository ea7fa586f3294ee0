"""Draws the first screen: above the task box a sentence, three steps and the tour's button, below it the story."""

from collections.abc import Callable

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.run.share import recorded_runs
from pages.components.app import address, places
from pages.components.app.session import current

SENTENCE = "One model plans, others do the work. See what each of them saw, and change it."
STEPS = (
    ("Plan", "The Conductor splits a task into steps: an instruction, an agent, and the earlier outputs it may read."),
    ("Watch", "The agents answer live. You see what each one read, what was withheld from it, and what it cost."),
    ("Change", "Edit one step and run again. Only the steps that depend on it run again. Every run is kept."),
)
KEY = "story"
_component = st.components.v2.component(
    "conductor-inspector.story",
    html='<div class="reserved" style="min-height: calc(max(27rem, 100vh - 17.4rem))"></div>',
    js="story.js",
    isolate_styles=True,
)


def is_due() -> bool:
    """Tells whether a page without a run is the first screen: nothing has run yet, or the rail's name was pressed.

    Call it once, early.
    """
    if address.read(places.FIRST) is not None:
        return True
    try:
        newest = current().store.runs(limit=len(_recorded_ids()) + 1)
    except StoreError:
        return False  # the page says elsewhere what is wrong with the database
    return all(run.recorded for run in newest)


def introduction(tour: Callable[[], None]) -> None:
    """Draws what stands above the task box; ``tour`` draws the button that begins the tour."""
    with st.container(key="first-screen", gap=None):
        with st.container(key="first-screen-head", horizontal=True, vertical_alignment="center", wrap=False):
            st.html(f"<h1>{SENTENCE}</h1>")
            tour()
        steps = "".join(
            f"<li><i aria-hidden='true'>{number}</i><div><b>{name}</b><p>{text}</p></div></li>"
            for number, (name, text) in enumerate(STEPS, 1)
        )
        st.html(f"<ol class='three-steps'>{steps}</ol>")


def story(*, plays: bool) -> None:
    """Draws the story, which opens its two runs where the database has them. ``plays``: whether it moves by itself."""
    runs = _recorded_ids()[:2]
    try:
        there = current().store.runs(limit=2, recorded=True, among=runs)
    except StoreError:
        return
    data = {"plays": plays, "opens": len(there) == len(runs) and not any(run.damage for run in there)}
    shown = _component(key=KEY, data=data, on_open_change=lambda: None, width="stretch", height="content")
    if shown.open:
        st.switch_page(places.COMPARE, query_params={"a": runs[0], "b": runs[1]})


@st.cache_resource(show_spinner=False)
def _recorded_ids() -> list[str]:
    return [events[0].run_id for events in recorded_runs()]

"""The Blame page without a run: what it is for, and the newest runs that it can be asked of."""

import streamlit as st

from conductor_core.engine.repeats import PURPOSE as OF_A_STEP
from conductor_core.errors import StoreError
from conductor_core.run_request import REPLAY_PURPOSE
from pages.components.look.words import ago, inert, plural
from pages.components.shell import address, places
from pages.components.shell.runtime import current

MOST_OFFERED, _LOOKED_AT = 6, 60


def offer_runs() -> None:
    """Draws what the page is for, and a button for each of the newest completed runs."""
    with st.container(border=True, key="blame-empty", horizontal_alignment="left"):
        st.markdown(
            "**What decided this answer?** This page replays a run with one step asked anew, or with one access cut or "
            "granted, and counts how often the answer flips."
        )
        try:
            runs = current().store.runs(limit=_LOOKED_AT, status="completed", without=REPLAY_PURPOSE)
        except StoreError as error:
            st.error(inert(str(error)), icon=":material/error:")
            return
        # Of a step that was asked many times, the run that it belongs to is offered, not each of its answers.
        found = [run for run in runs if run.steps and run.purpose != OF_A_STEP][:MOST_OFFERED]
        if not found:
            st.markdown("No run has completed yet. Every completed run can be blamed here.")
            st.page_link(places.RUN, label="Start one", icon=":material/play_circle:")
            return
        st.caption("Choose one of the newest completed runs:")
        for run in found:
            task = " ".join(run.task.split())[:80] or "no task"
            # A page link to this page would leave the browser's address as it is.
            st.button(
                inert(f"{task} · {plural(run.steps, 'step')} · {ago(run.created_at_utc)}"),
                key=f"blame-of-{run.run_id}",
                type="tertiary",
                on_click=address.write,
                args=("run", run.run_id),
            )

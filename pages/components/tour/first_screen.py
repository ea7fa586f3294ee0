"""The first screen: a sentence, three steps and the tour's button above the task box; below it a story of two runs.

The story is computed from the events of two runs that come with the program: one whose answer is wrong because a step
did not read an output, and the same run after that step's access list was changed. Nothing of it is typed in.
"""

import asyncio
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from conductor_core.analysis.conclusion import conclude
from conductor_core.engine.models import grade
from conductor_core.errors import StoreError
from conductor_core.run.share import recorded_runs
from conductor_core.run.trace import RunTrace, fold
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across
from pages.components.live_workflow.messages import LiveView
from pages.components.live_workflow.shared_page import recording
from pages.components.style.formats import html, plural
from storage import StoredEvent


@cache
def story_data() -> dict[str, Any]:
    """Returns what the component plays and says.

    ``step`` is the step whose access list changed, ``before`` and ``after`` are its lists, ``gained`` is what only the
    later one has. ``layout`` is that of the later plan, ``values`` has for each run the value of each step's output,
    ``answers`` what each run's answer comes to and whether it is right.
    """
    recorded = recorded_runs()[:2]
    first, second = (fold(events) for events in recorded)
    pairs = zip(first.steps, second.steps, strict=True)
    (before, after) = next(pair for pair in pairs if pair[0].reads != pair[1].reads)
    read = " and ".join(f"step {index}" for index in before.reads)
    wrong = all(not grade(first.task, first.steps[index].output) for index in before.reads)
    ran = sum(step.status == "completed" for step in second.steps)
    return {
        "run_ids": [first.run_id, second.run_id],
        "task": first.task,
        "simulated": first.simulated and second.simulated,
        "agents": [worker.name for worker in first.pool.workers],
        "steps": [{"agent": step.agent, "instruction": step.instruction} for step in second.steps],
        "step": after.index,
        "before": list(before.reads),
        "after": list(after.reads),
        "gained": [index for index in after.reads if index not in before.reads],
        "layout": LiveView(second, 0).snapshot()["layout"],
        "values": [[_value(trace, step.output) for step in trace.steps] for trace in (first, second)],
        "answers": [
            {"text": _value(trace, trace.answer or ""), "right": grade(trace.task, trace.answer or "")}
            for trace in (first, second)
        ],
        "why": f"Step {before.index} read only {read}{', which was wrong' if wrong else ''}.",
        "rerun": f"{plural(ran, 'step')} ran again, {len(second.steps) - ran} were reused.",
        "recordings": [recording([StoredEvent(at, event) for at, event in enumerate(run, 1)]) for run in recorded],
    }


@cache
def story_json() -> str:
    return json.dumps(story_data(), ensure_ascii=False, separators=(",", ":"))


def _value(trace: RunTrace, text: str) -> str | None:
    found = conclude(text, trace.task)
    return found.text if found is not None and found.kind == "value" else None


SENTENCE = "One model plans, others do the work. See what each of them saw, and change it."
STEPS = (
    ("Plan", "The Conductor splits a task into steps: an instruction, an agent, and the earlier outputs it may read."),
    ("Watch", "The agents answer live. You see what each one read, what was withheld from it, and what it cost."),
    ("Change", "Edit one step and run again. Only the steps that depend on it run again. Every run is kept."),
)
KEY = "story"
_RESERVED = '<div class="reserved" style="min-height: calc(max(27rem, 100vh - 17.4rem))"></div>'
_component = cache(st.components.v2.component)  # made when it is first drawn: only a running app can make it


def is_due() -> bool:
    """Tells whether a page without a run is the first screen: nothing has run yet, or the rail's name was pressed.

    Call it once, early.
    """
    if places.read(places.FIRST) is not None:
        return True
    try:
        newest = current().store.runs(limit=len(_recorded_ids()) + 1)
    except StoreError:
        return False  # the page says elsewhere what is wrong with the database
    return all(run.recorded for run in newest)


def introduction(tour: Callable[[], None]) -> None:
    with st.container(key="first-screen", gap=None):
        with across("first-screen-head", wrap=False):
            st.html(html("tour/first_screen", "sentence", words=SENTENCE))
            tour()
        st.html(html("tour/first_screen", "steps", found=STEPS))


def story(*, plays: bool) -> None:
    """Draws the story, which opens its two runs where the database has them. ``plays``: whether it moves by itself."""
    runs = _recorded_ids()[:2]
    try:
        there = current().store.runs(limit=2, recorded=True, among=runs)
    except StoreError:
        return
    data = {"plays": plays, "opens": len(there) == len(runs) and not any(run.damage for run in there)}
    told = _component("conductor-inspector.story", html=_RESERVED, js="story.js")
    shown = told(key=KEY, data=data, on_open_change=lambda: None, width="stretch", height="content")
    if shown.open:
        st.switch_page(places.COMPARE, query_params={"a": runs[0], "b": runs[1]})


@st.cache_resource(show_spinner=False)
def _recorded_ids() -> list[str]:
    return [events[0].run_id for events in recorded_runs()]


async def tell(_request: Request) -> Response:
    text = await asyncio.to_thread(story_json)
    return Response(text, media_type="application/json", headers={"cache-control": "no-cache"})


ROUTES: list[BaseRoute] = [Route("/api/story", tell)]

"""Where a person is in the tour, and what each move does, by the page's own means: requests, drafts, addresses.

The address says the stop (``?run=ID&tour=STOP``), so a reload keeps it. The browser draws a line from the strip to a
ring around what it is about.
"""

from typing import Any, Literal

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import button, text_button
from pages.components.run import draft as drafts
from pages.components.run import task_box
from pages.components.run.editing import EDITING, Editing
from pages.components.tour import story
from pages.components.tour.story import STOPS, Kind, Stop, Where

KEY = "tour-strip"
_component = st.components.v2.component("conductor-inspector.tour", js="index.js", isolate_styles=True)

TOUR = "tour"
_AT = "tour-at"  # the run and the stop on the page, until a move is made
_LEFT = "tour-left"  # the run and the stop where the tour was left
_BEGUN = "tour-begun"  # the run with which it was begun on this page
_OVER = "tour-over"  # whether it has just been gone through to its end
_FAULT = "tour-fault"  # why it could not go on
_ARRANGED = "tour-arranged"  # the run and the stop for which the page was arranged last
_WAITS = "tour-waits"  # whether the strip waits for the end of the run
_MOST_RUNS_READ = 20


def tour_button(trace: RunTrace | None, kind: Literal["primary", "secondary"] | None = None) -> None:
    """Draws what begins the tour where no run is shown, or goes on with it where it was left.

    ``kind``: of the button on the first screen; None: it stands elsewhere.
    """
    left = st.session_state.get(_LEFT)
    if left is None and trace is not None and (of := story.kind_of(trace)) is not None:
        left = trace.run_id, story.stop_at("", of).name
    if on_tour() or (trace is not None and left is None):
        return
    label = "Take the 60-second tour" if left is None else "Resume tour"
    if kind is not None:
        button(label, "take-tour", _begin, left, icon="play_arrow", type=kind)
        return
    help_ = "One minute with simulated workers: a wrong answer, why it is wrong, and how it becomes right"
    text_button(label, "take-tour", _begin, left, icon="tour", help=help_)


def _begin(left: tuple[str, str] | None) -> None:
    try:
        run_id, stop = left or (current().host.start(story.first_request()), story.STOPS[0].name)
    except InspectorError as error:
        st.session_state[task_box.ERROR] = str(error)
        return
    if left is None:
        st.session_state[_BEGUN] = run_id
    st.session_state.pop(_LEFT, None)
    places.write("run", run_id)
    places.write(TOUR, stop)


def arrive(trace: RunTrace | None) -> Stop | None:
    """Returns the stop on the Run page, which is arranged for it; None: there is no tour. Call it once, early.

    Leads to another page if the stop is there. Whoever opened another run has left the tour.
    """
    name = places.read(TOUR)
    st.session_state.pop(_WAITS, None)
    kind = None if trace is None else story.kind_of(trace)
    if name is None or trace is None or kind is None:
        if name is not None:
            st.query_params.pop(TOUR, None)
        _leave()
        return None
    stop = story.stop_at(name, kind)
    _lead(stop, trace, "run")
    if stop.name != name:
        st.query_params[TOUR] = stop.name
    _note(trace, stop)
    if st.session_state.get(_ARRANGED) != (trace.run_id, stop.name):
        st.session_state[_ARRANGED] = (trace.run_id, stop.name)
        _arrange(trace, stop)
    return stop


def arrive_elsewhere(second: RunTrace | None, page: Where) -> Stop | None:
    """Returns the stop on another page, which shows the last run; None: there is no tour. Call it once, early.

    Leads to the Run page or another one if the stop is there, and to an empty Run page from the end of the tour.
    """
    if st.session_state.pop(_OVER, False):
        st.switch_page(places.RUN)
    name = places.read(TOUR)
    if name is None or second is None or story.kind_of(second) != "second":
        _leave()
        return None
    stop = story.stop_at(name, "second")
    _lead(stop, second, page)
    _note(second, stop)
    return stop


def _lead(stop: Stop, trace: RunTrace, page: Where) -> None:
    if stop.page == page:
        return
    if stop.page == "compare":
        st.switch_page(
            places.COMPARE, query_params={"a": trace.parent_run_id or "", "b": trace.run_id, TOUR: stop.name}
        )
    place = places.RUN if stop.page == "run" else places.AUDIT
    st.switch_page(place, query_params={"run": trace.run_id, TOUR: stop.name})


def tour_strip(stop: Stop, trace: RunTrace) -> None:
    state, ready = st.session_state, trace.ended or not stop.until_end
    state[_WAITS] = not ready
    data = {
        "stop": stop.name,
        "n": STOPS.index(stop) + 1,
        "of": len(STOPS),
        "title": stop.title,
        "text": stop.text,
        "fault": state.pop(_FAULT, None),
        "onward": stop.onward,
        "at": stop.at,
        "press": stop.press,
        "seconds": stop.seconds,
        "ready": ready,
        "begun": state.get(_BEGUN),
    }
    _component(key=KEY, data=data, on_move_change=_move, width="stretch", height="content")


def on_tour() -> bool:
    return st.session_state.get(_AT) is not None


def waits_for_end() -> bool:
    return bool(st.session_state.get(_WAITS))


def adopted(trace: RunTrace, request: RunRequest) -> RunRequest:
    """Returns a request that a person made by the page's own means, as the tour's if it is the tour's next run."""
    return story.of_tour(request) if on_tour() and story.goes_on(trace, request) else request


def _note(trace: RunTrace, stop: Stop) -> None:
    st.session_state[_AT] = (trace.run_id, stop.name)
    st.session_state.pop(_LEFT, None)


def _leave() -> None:
    if (at := st.session_state.pop(_AT, None)) is not None:
        st.session_state[_LEFT] = at
    st.session_state.pop(_ARRANGED, None)


def _arrange(trace: RunTrace, stop: Stop) -> None:
    if not stop.edited:
        st.session_state.pop(EDITING, None)
        return
    st.session_state[EDITING] = trace.run_id
    editing = Editing.of_run(trace)
    if editing.draft.workflow != story.CHANGED:
        changed = drafts.change_step(drafts.reset(editing.draft), story.CHECK, story.CHANGED.steps[story.CHECK])
        editing.store.put(changed)
    editing.open_only(editing.draft.now.ids[story.CHECK])


def _move() -> None:
    """Does what the strip was asked for, before the page is drawn. A browser might send anything."""
    component, at = st.session_state.get(KEY), st.session_state.get(_AT)
    asked: Any = None if component is None else component.move
    by = {"next": 1, "back": -1, "leave": len(STOPS)}
    if not isinstance(asked, dict) or not isinstance(to := asked.get("to"), str) or to not in by:
        return
    if at is None or at[1] != asked.get("stop"):  # a second press of the same button
        return
    run_id, name = at
    target = story.beside(next(stop for stop in STOPS if stop.name == name), by[to])
    if target is None:
        places.write(TOUR, None)
        if to == "next":  # the tour is over: the next one begins anew
            st.session_state.pop(_AT, None)
            st.session_state[_OVER] = True
        return
    try:
        trace = current().store.trace(run_id)[0]
        found = _run_of(target.run, trace)
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
        return
    if found is None:
        return
    st.session_state[_AT] = (found, target.name)
    places.write("run", found)
    places.write(TOUR, target.name)


def _run_of(kind: Kind, trace: RunTrace) -> str | None:
    """Returns the tour's run of this kind, before or after ``trace``; begins it if there is none.

    None: it cannot begin yet. Raises: InspectorError.
    """
    have = story.kind_of(trace)
    if have == kind:
        return trace.run_id
    if have is None or story.KINDS.index(kind) < story.KINDS.index(have):
        return trace.parent_run_id
    if not trace.ended:
        return None
    for run in current().store.runs(limit=_MOST_RUNS_READ, parent=trace.run_id):
        if run.purpose == story.PURPOSE and run.status in ("running", "completed"):
            return run.run_id
    return current().host.start(story.request_after(trace))

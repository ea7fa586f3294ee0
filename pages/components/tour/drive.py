"""The tour: its story as data, where a person is in it, and what each move does by the page's own means.

The plan is given, the workers are simulated and the seed is fixed, so the story ends the same way each time. The
address says the stop (``?run=ID&tour=STOP``), so a reload keeps it. The browser draws a line from the strip to a ring
around what it is about.
"""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import streamlit as st

from conductor_core.engine.request import rerun_of
from conductor_core.errors import InspectorError
from conductor_core.run.request import TOUR_PURPOSE as PURPOSE
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.edits import replace_step
from conductor_core.workflow.model import Step, Workflow
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import button, text_button
from pages.components.run import draft as drafts
from pages.components.run import task_box
from pages.components.run.editing import EDITING, Editing

Kind = Literal["planned", "first", "second"]
"""The runs of the tour in their order: the plan alone, its run, and the re-run with the changed plan."""
KINDS: tuple[Kind, ...] = ("planned", "first", "second")

SEED = 26
TASK = (
    "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 18 minutes, then covers 95 km at 76 km/h. When does "
    "it arrive? Check the result independently."
)
RIGHT, WRONG = "13:43", "14:13"
PLAN = Workflow(
    steps=(
        Step(agent="planner", instruction="Break the journey into parts: {question}"),
        Step(agent="calculator", instruction="Compute the arrival time independently: {question}"),
        Step(agent="reasoner", instruction="Solve the task, following the plan: {question}", access_list=(0,)),
        Step(agent="verifier", instruction="Check the result in view: {question}", access_list=(2,)),
        Step(agent="writer", instruction="State the arrival time in one sentence.", access_list=(3,)),
    )
)
CHECK = 3
"""The step whose access list changes."""
CHANGED = replace_step(PLAN, CHECK, PLAN.steps[CHECK].model_copy(update={"access_list": (1, 2)}))

Path = tuple[str, ...]
"""CSS selectors to an element. Each but the first looks into the shadow trees below the element before it."""
_LIVE = ".st-key-live"
_COMPARED = ".st-key-compared"

Where = Literal["run", "compare", "record"]
"""The pages of the tour."""


@dataclass(frozen=True)
class Stop:
    """One stop of the tour.

    Attributes:
        name: in the address. run: which run of the tour is on the page.
        onward: what the button says that goes on from here. at: the element that has the ring.
        seconds: how long the stop is shown while the tour plays by itself, once it is ready.
        press: elements that are pressed, one after the other, when a person arrives here.
        edited: whether the plan is being edited, with the change made.
        until_end: whether the story goes on only after the run has ended.
    """

    name: str
    run: Kind
    title: str
    text: str
    onward: str
    at: Path
    seconds: float
    page: Where = "run"
    press: tuple[Path, ...] = ()
    edited: bool = False
    until_end: bool = False


STOPS = (
    Stop(
        "plan",
        "planned",
        "A plan for a task: when does the train arrive?",
        "A Conductor writes such plans. A box is a step; an arrow says whose output it may read.",
        "Next: run it",
        (_LIVE, ".map"),
        6,
    ),
    Stop(
        "streaming",
        "first",
        "The steps run",
        "Each starts when the outputs that it may read are there. Every word appears as it is written.",
        "Next: the answer",
        (_LIVE, ".lower"),
        1.5,
        until_end=True,
    ),
    Stop(
        "wrong",
        "first",
        "The answer is wrong",
        f"The train arrives at {RIGHT}, not {WRONG}: step 2 took 2.5 h for 2 h 50 min. Step {CHECK} let it pass.",
        "Next: why",
        (_LIVE, ".bar"),
        5.5,
    ),
    Stop(
        "saw",
        "first",
        "What the check did not see",
        f"Step {CHECK} saw only the wrong solution. Step 1 had the right one, but the access list withheld it.",
        "Next: change it",
        (_LIVE, ".inspector .withheld"),
        7,
        press=(
            (_LIVE, f'.twin [data-step="{CHECK}"]'),
            (_LIVE, ".inspector .tabs button"),
            (_LIVE, f'.inspector[data-step="{CHECK}"] .withheld [data-step="1"] .fold'),
        ),
    ),
    Stop(
        "change",
        "first",
        "One access list changed",
        f"Step {CHECK} may now read step 1, too. Only steps {CHECK} and {CHECK + 1} would run again.",
        "Next: run them",
        (_LIVE, ".inspector .access-list"),
        6,
        edited=True,
    ),
    Stop(
        "rerun",
        "second",
        "Only what changed runs again",
        f"The other three outputs are reused and cost nothing. Now the check sees both solutions: {RIGHT}.",
        "Next: compare",
        (_LIVE, ".map"),
        3,
        until_end=True,
    ),
    Stop(
        "compare",
        "second",
        "Both runs compared",
        "One change in the plan, two new outputs, another answer: each difference has its cause.",
        "Next: the record",
        (_COMPARED, ".compared-summary"),
        5.5,
        page="compare",
    ),
    Stop(
        "record",
        "second",
        "The record",
        "Who asked, what a person changed, what each step was told: all is kept, and a later change would show.",
        "Now your own task",
        (".st-key-audit-top",),
        5,
        page="record",
    ),
)
_BY_NAME = {stop.name: stop for stop in STOPS}


def kind_of(trace: RunTrace) -> Kind | None:
    if trace.purpose != PURPOSE or (trace.ended and trace.status not in ("planned", "completed")):
        return None
    plan = trace.root.workflow or trace.workflow
    if trace.plan_only:
        return "planned" if plan == PLAN else None
    return "first" if plan == PLAN else "second" if plan == CHANGED else None


def stop_at(name: str, kind: Kind) -> Stop:
    """Returns the stop of this name. If that is of another run, or there is none, the first stop of this kind of run.

    Whoever runs the plan by the page's own button has so gone on with the tour.
    """
    stop = _BY_NAME.get(name)
    return stop if stop is not None and stop.run == kind else next(each for each in STOPS if each.run == kind)


def beside(stop: Stop, steps: int) -> Stop | None:
    place = STOPS.index(stop) + steps
    return STOPS[place] if 0 <= place < len(STOPS) else None


def first_request() -> RunRequest:
    """Returns what the tour begins with: the plan, of which nothing runs yet."""
    return RunRequest(
        task=TASK, pool="rehearsal", workflow=PLAN, seed=SEED, plan_only=True, door="page", purpose=PURPOSE
    )


def request_after(trace: RunTrace) -> RunRequest:
    plan, origins = (PLAN, None) if trace.plan_only else (CHANGED, tuple(range(len(PLAN.steps))))
    return rerun_of(trace, plan, door="page", origins=origins).model_copy(update={"purpose": PURPOSE})


def goes_on(trace: RunTrace, request: RunRequest) -> bool:
    """Tells whether ``request``, which a person made by the page's own means, is the next run of the tour."""
    following = {"planned": PLAN, "first": CHANGED}
    kind = kind_of(trace)
    return kind in following and request.workflow == following[kind] and request.overrides == Overrides()


KEY = "tour-strip"
_component = cache(st.components.v2.component)  # made when it is first drawn: only a running app can make it

TOUR = "tour"
_AT = "tour-at"  # the run and the stop on the page, until a move is made
_LEFT = "tour-left"  # the run and the stop where the tour was left
_BEGUN = "tour-begun"  # the run with which it was begun on this page
_OVER = "tour-over"  # whether it has just been gone through to its end
_FAULT = "tour-fault"  # why it could not go on
_ARRANGED = "tour-arranged"  # the run and the stop for which the page was arranged last
WAITS = "tour-waits"  # whether the strip waits for the end of the run
_MOST_RUNS_READ = 20


def tour_button(trace: RunTrace | None, kind: Literal["primary", "secondary"] | None = None) -> None:
    """Draws what begins the tour where no run is shown, or goes on with it where it was left.

    ``kind``: of the button on the first screen; None: it stands elsewhere.
    """
    left = st.session_state.get(_LEFT)
    if left is None and trace is not None and (of := kind_of(trace)) is not None:
        left = trace.run_id, stop_at("", of).name
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
        run_id, stop = left or (current().host.start(first_request()), STOPS[0].name)
    except InspectorError as error:
        st.session_state[task_box.ERROR] = str(error)
        return
    if left is None:
        st.session_state[_BEGUN] = run_id
    st.session_state.pop(_LEFT, None)
    places.write("run", run_id)
    places.write(TOUR, stop)


def arrive(trace: RunTrace | None, page: Where = "run") -> Stop | None:
    """Returns the stop on this page, which is arranged for it; None: there is no tour. Call it once, early.

    Leads to another page if the stop is there, and to an empty Run page from the end of the tour. Whoever opened
    another run has left the tour.
    """
    if page != "run" and st.session_state.pop(_OVER, False):
        st.switch_page(places.RUN)
    name, kind = places.read(TOUR), None if trace is None else kind_of(trace)
    st.session_state.pop(WAITS, None)
    if name is None or trace is None or kind is None or (page != "run" and kind != "second"):
        if page == "run":
            st.query_params.pop(TOUR, None)
        _leave()
        return None
    stop = stop_at(name, kind)
    if stop.page == "compare" != page:
        pair = {"a": trace.parent_run_id or "", "b": trace.run_id, TOUR: stop.name}
        st.switch_page(places.COMPARE, query_params=pair)
    if stop.page != page:
        place = places.RUN if stop.page == "run" else places.AUDIT
        st.switch_page(place, query_params={"run": trace.run_id, TOUR: stop.name})
    st.session_state[_AT] = (trace.run_id, stop.name)
    st.session_state.pop(_LEFT, None)
    if page == "run":
        if stop.name != name:
            st.query_params[TOUR] = stop.name
        if st.session_state.get(_ARRANGED) != (trace.run_id, stop.name):
            st.session_state[_ARRANGED] = (trace.run_id, stop.name)
            _arrange(trace, stop)
    return stop


def tour_strip(stop: Stop, trace: RunTrace) -> None:
    state, ready = st.session_state, trace.ended or not stop.until_end
    state[WAITS] = not ready
    place = {"stop": stop.name, "n": STOPS.index(stop) + 1, "of": len(STOPS), "ready": ready}
    data = {**asdict(stop), **place, "fault": state.pop(_FAULT, None), "begun": state.get(_BEGUN)}
    strip = _component("conductor-inspector.tour", js="index.js", isolate_styles=True)
    strip(key=KEY, data=data, on_move_change=_move, width="stretch", height="content")


def on_tour() -> bool:
    return st.session_state.get(_AT) is not None


def adopted(trace: RunTrace, request: RunRequest) -> RunRequest:
    """Returns a request that a person made by the page's own means, as the tour's if it is the tour's next run."""
    return request.model_copy(update={"purpose": PURPOSE}) if on_tour() and goes_on(trace, request) else request


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
    if editing.draft.workflow != CHANGED:
        changed = drafts.change_step(drafts.reset(editing.draft), CHECK, CHANGED.steps[CHECK])
        editing.store.put(changed)
    editing.open_only(editing.draft.now.ids[CHECK])


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
    target = beside(next(stop for stop in STOPS if stop.name == name), by[to])
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
    have = kind_of(trace)
    if have == kind:
        return trace.run_id
    if have is None or KINDS.index(kind) < KINDS.index(have):
        return trace.parent_run_id
    if not trace.ended:
        return None
    for run in current().store.runs(limit=_MOST_RUNS_READ, parent=trace.run_id):
        if run.purpose == PURPOSE and run.status in ("running", "completed"):
            return run.run_id
    return current().host.start(request_after(trace))

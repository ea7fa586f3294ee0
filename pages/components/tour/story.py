"""The tour as data: its task, its plan, the one change, and its stops. Pure.

The plan is given, the workers are simulated and the seed is fixed, so the story ends the same way each time.
"""

from dataclasses import dataclass
from typing import Literal

from conductor_core.engine.request import rerun_of
from conductor_core.run.request import TOUR_PURPOSE, Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.edits import replace_step
from conductor_core.workflow.model import Step, Workflow

Kind = Literal["planned", "first", "second"]
"""The runs of the tour in their order: the plan alone, its run, and the re-run with the changed plan."""
KINDS: tuple[Kind, ...] = ("planned", "first", "second")

PURPOSE = TOUR_PURPOSE
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
    if trace.plan_only:
        return of_tour(rerun_of(trace, PLAN, door="page"))
    return of_tour(rerun_of(trace, CHANGED, door="page", origins=tuple(range(len(PLAN.steps)))))


def of_tour(request: RunRequest) -> RunRequest:
    return request.model_copy(update={"purpose": PURPOSE})


def goes_on(trace: RunTrace, request: RunRequest) -> bool:
    """Tells whether ``request``, which a person made by the page's own means, is the next run of the tour."""
    following = {"planned": PLAN, "first": CHANGED}
    kind = kind_of(trace)
    return kind in following and request.workflow == following[kind] and request.overrides == Overrides()

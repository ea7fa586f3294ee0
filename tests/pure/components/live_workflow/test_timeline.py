import pytest

from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace, fold
from conductor_core.workflow.model import Step, Workflow
from pages.components.live_workflow.messages import critical_path_ms, timeline, timeline_bars
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

RUN = "r"
DIAMOND = Workflow(
    steps=(
        Step(instruction="split", agent="solver"),
        Step(instruction="left", agent="solver", access_list=(0,)),
        Step(instruction="right", agent="checker", access_list=(0,)),
        Step(instruction="join <b>", agent="checker", access_list=(1, 2)),
    )
)
# Start and duration of each step: the right branch is the slow one.
TIMES_MS = ((20.0, 100.0), (120.0, 50.0), (120.0, 300.0), (420.0, 80.0))


def _events() -> list[ev.Event]:
    events: list[ev.Event] = [created(RUN), *planned(RUN, DIAMOND)]
    for index, (start_ms, duration_ms) in enumerate(TIMES_MS):
        done = step_completed(RUN, index, "done", at_ms=start_ms + duration_ms)
        events += [step_started(RUN, index, start_ms), done.model_copy(update={"duration_ms": duration_ms})]
    return events


def _trace() -> RunTrace:
    return fold(_events())


def _ended() -> RunTrace:
    return fold([*_events(), run_completed(RUN, at_ms=500.0)])


def test_the_critical_path_goes_through_the_slow_branch() -> None:
    critical = {bar.label for bar in timeline_bars(_trace()) if bar.critical}
    assert critical == {"plan", "0 · solver", "2 · checker", "3 · checker"}


def test_the_critical_path_is_as_long_as_planning_and_its_steps() -> None:
    assert critical_path_ms(_trace()) == pytest.approx(495)


def test_what_the_page_draws_has_a_row_for_the_plan_and_for_each_step() -> None:
    drawn = timeline(_ended())
    assert drawn is not None
    rows = [(bar["path"], bar["label"], bar["text"]) for bar in drawn["bars"]]
    assert rows == [
        ([], "plan", "0.0 s · critical path"),
        ([0], "0 · solver", "0.1 s · critical path"),
        ([1], "1 · solver", "0.1 s"),
        ([2], "2 · checker", "0.3 s · critical path"),
        ([3], "3 · checker", "0.1 s · critical path"),
    ]
    assert (drawn["end_ms"], drawn["summary"]) == (500.0, "critical path 0.5 s of 0.5 s")


def test_nothing_is_drawn_while_a_run_goes_on_and_of_a_plan_that_was_not_run() -> None:
    assert timeline(_trace()) is None
    planned_only = _ended().model_copy(update={"plan_only": True})
    assert timeline(planned_only) is None
    assert timeline(fold([created(RUN), ev.RunFailed(run_id=RUN, error_code="X", error="x")])) is None


def test_steps_that_did_not_complete_say_so_in_words() -> None:
    events: list[ev.Event] = [
        created(RUN),
        *planned(RUN, DIAMOND),
        step_started(RUN, 0, 20.0),
        ev.StepFailed(run_id=RUN, at_ms=50.0, path=(0,), error_code="X", error="x", partial="", duration_ms=30.0),
        *(ev.StepSkipped(run_id=RUN, at_ms=50.0, path=(index,), because=((0,),)) for index in (1, 2, 3)),
    ]
    words = [bar.text for bar in timeline_bars(fold(events))][1:]
    assert words == ["✕ failed · 0.0 s · critical path", *["⊘ skipped"] * 3]


def test_an_inner_round_stands_below_the_step_that_opened_it() -> None:
    inner = Workflow(steps=(Step(instruction="inner", agent="solver"),))
    events: list[ev.Event] = [
        created(RUN),
        *planned(RUN, Workflow(steps=(Step(instruction="ask", agent="conductor"), DIAMOND.steps[0]))),
        step_started(RUN, 0, 20.0),
        ev.RecursionEntered(run_id=RUN, at_ms=20.0, path=(0,), depth=1),
        ev.PlanStarted(run_id=RUN, at_ms=20.0, round=(0,), messages=()),
        ev.PlanCompleted(
            run_id=RUN,
            at_ms=30.0,
            round=(0,),
            source="conductor",
            workflow=inner,
            topology="one shot",
            duration_ms=10.0,
        ),
        ev.StepStarted(run_id=RUN, at_ms=30.0, path=(0, 0), agent="solver", identity="i", messages=()),
    ]
    bars = list(timeline_bars(fold(events)))
    assert [(bar.path, bar.label, bar.depth) for bar in bars] == [
        ((), "plan", 0),
        ((0,), "0 · conductor", 0),
        ((0,), "0 · plan", 1),
        ((0, 0), "0.0 · solver", 1),
        ((1,), "1 · solver", 0),
    ]

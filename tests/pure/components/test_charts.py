import pytest

from conductor_core import events as ev
from conductor_core.trace import RunTrace, fold
from conductor_core.workflow.model import Step, Workflow
from pages.components.charts import critical_path_s, timeline, timeline_bars, timeline_in_words
from tests.support.run_events import created, planned, step_completed, step_started

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


def _trace(factor: float = 1) -> RunTrace:
    """The diamond, ``factor`` times as slow."""
    events: list[ev.Event] = [created(RUN), *planned(RUN, DIAMOND)]
    for index, times_ms in enumerate(TIMES_MS):
        start_ms, duration_ms = (factor * each for each in times_ms)
        done = step_completed(RUN, index, "done", at_ms=start_ms + duration_ms)
        events += [step_started(RUN, index, start_ms), done.model_copy(update={"duration_ms": duration_ms})]
    return fold(events)


def test_the_critical_path_goes_through_the_slow_branch() -> None:
    critical = {bar.label for bar in timeline_bars(_trace()) if bar.critical}
    assert critical == {"plan", "0 · solver", "2 · checker", "3 · checker"}


def test_the_critical_path_is_as_long_as_planning_and_its_steps() -> None:
    assert abs(critical_path_s(_trace()) - 0.495) < 1e-9


def test_the_figure_has_a_row_for_the_plan_and_for_each_step() -> None:
    figure = timeline(_trace(), dark=False)
    labels = [label.strip() for label in figure.layout.yaxis.ticktext]
    assert labels == ["plan", "0 · solver", "1 · solver", "2 · checker", "3 · checker"]
    assert figure.data[0].text[2] == "0.1 s"
    assert figure.data[0].text[3] == "0.3 s · critical path"


@pytest.mark.parametrize(
    ("factor", "unit", "last_begins"),
    [(1, "milliseconds", 420.0), (100, "seconds", 42.0), (2000, "minutes", 14.0)],
)
def test_the_axis_has_a_unit_that_suits_the_run(factor: float, unit: str, last_begins: float) -> None:
    figure = timeline(_trace(factor), dark=True)
    assert figure.layout.xaxis.title.text == f"{unit} since the run began"
    assert figure.data[0].base[-1] == pytest.approx(last_begins)
    assert figure.layout.xaxis.range[1] > last_begins


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
    bars = timeline_bars(fold(events))
    assert [(bar.label, bar.depth) for bar in bars] == [
        ("plan", 0),
        ("0 · conductor", 0),
        ("0 · plan", 1),
        ("0.0 · solver", 1),
        ("1 · solver", 0),
    ]


def test_an_agent_with_markup_in_its_name_is_plain_in_the_figure() -> None:
    workflow = Workflow(steps=(Step(instruction="x", agent="<b>solver</b>"),))
    figure = timeline(fold([created(RUN), *planned(RUN, workflow), step_started(RUN, 0, 20.0)]), dark=False)
    assert "<" not in figure.layout.yaxis.ticktext[-1]
    assert "<b>" not in figure.data[0].hovertemplate[-1]


def test_the_timeline_can_be_read_aloud() -> None:
    assert "3 · checker: at 0.4 s, 0.1 s · critical path" in timeline_in_words(_trace())

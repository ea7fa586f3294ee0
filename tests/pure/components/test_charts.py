from conductor_core import events as ev
from conductor_core.trace import RunTrace, fold
from conductor_core.workflow.model import Step, Workflow
from pages.components.charts import critical_path_s, timeline, timeline_bars
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


def _trace() -> RunTrace:
    events: list[ev.Event] = [created(RUN), *planned(RUN, DIAMOND)]
    for index, (start_ms, duration_ms) in enumerate(TIMES_MS):
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
    assert list(figure.data[0].y) == ["plan", "0 · solver", "1 · solver", "2 · checker", "3 · checker"]
    assert list(figure.data[0].base) == [0.005, 0.02, 0.12, 0.12, 0.42]

"""The first screen's story is what its two recorded runs show: nothing of it is typed in."""

from conductor_core.run.share import recorded_runs
from conductor_core.run.trace import fold
from pages.components.tour import drive as tour
from pages.components.tour.first_screen import story_data


def test_it_tells_a_wrong_answer_one_changed_list_and_the_right_answer_of_the_tours_plan() -> None:
    told = story_data()
    first, second = (fold(events) for events in recorded_runs()[:2])
    assert told["run_ids"] == [first.run_id, second.run_id]
    assert [answer["right"] for answer in told["answers"]] == [False, True]
    for answer, trace in zip(told["answers"], (first, second), strict=True):
        assert answer["text"] in (trace.answer or "")
    assert (told["step"], told["gained"]) == (tour.CHECK, [1])
    assert (told["before"], told["after"]) == ([2], [1, 2])
    assert (first.root.workflow, second.root.workflow) == (tour.PLAN, tour.CHANGED)
    assert [answer["text"] for answer in told["answers"]] == [tour.WRONG, tour.RIGHT]


def test_values_of_steps_and_figures_are_those_of_the_runs() -> None:
    told = story_data()
    _, second = (fold(events) for events in recorded_runs()[:2])
    for value, step in zip(told["values"][1], second.steps, strict=True):
        assert value is None or value in step.output
    assert told["values"][0][1] == told["values"][1][3] == told["answers"][1]["text"]
    statuses = [step.status for step in second.steps]
    assert told["rerun"] == f"{statuses.count('completed')} steps ran again, {statuses.count('reused')} were reused."
    assert told["simulated"]


def test_both_recordings_can_be_played_to_their_end() -> None:
    for recording, answer in zip(story_data()["recordings"], story_data()["answers"], strict=True):
        assert len(recording["messages"]) == len(recording["moments"]) > 20
        assert recording["messages"][-1]["conclusion"]["text"] == answer["text"]

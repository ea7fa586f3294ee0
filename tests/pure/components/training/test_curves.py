from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.lab.records import DIFFICULTIES
from conductor_core.lab.records.training import Iteration, Row, Started, TrainingRecord
from pages.components.training import charts as cv
from pages.components.training.charts import Curve
from tests.support.records import AGENTS, training_rows


def record(rows: list[Row]) -> TrainingRecord:
    return TrainingRecord(Path("r"), tuple(rows))


FULL = record(training_rows(1, cold_start=20, grpo=30, recursion=10))


def test_stages_stand_one_after_another_in_the_order_of_training() -> None:
    assert [(span.stage, span.offset, span.end) for span in cv.spans(FULL, cv.stages_of(FULL))] == [
        ("cold_start", 0, 20),
        ("grpo", 20, 50),
        ("recursion", 50, 60),
    ]


def test_a_stage_that_goes_on_keeps_the_room_that_is_planned_for_it() -> None:
    going = record(training_rows(1, cold_start=5, grpo=8, recursion=0, ended=False, planned={"grpo": 120}))
    (span,) = cv.spans(going, ("grpo",))
    assert span.end == 120


def test_a_curve_has_the_points_for_which_there_is_a_value() -> None:
    spans = cv.spans(FULL, ("cold_start", "grpo"))
    reward = cv.curve("reward", FULL.iterations(), spans, lambda row: row.reward)
    assert reward.points[0] == ()
    assert [x for x, _ in reward.points[1]] == list(range(21, 51))
    assert not cv.curve("clipped", FULL.iterations(), spans, lambda row: row.clipped_share)


def test_an_agent_that_is_not_named_in_a_row_has_no_share_in_it() -> None:
    rows = [
        Iteration(stage="grpo", iteration=1, seconds=1, agent_share={"coder": 1.0}),
        Iteration(stage="grpo", iteration=2, seconds=2, agent_share={"coder": 0.5, "conductor": 0.5}),
        Iteration(stage="grpo", iteration=3, seconds=3),
    ]
    found = cv.shares(rows, cv.spans(record([*rows]), ("grpo",)), "agent_share", AGENTS)
    assert [(each.name, each.points) for each in found] == [
        ("coder", (((1, 1.0), (2, 0.5)),)),
        ("conductor", (((1, 0.0), (2, 0.5)),)),
    ]


def test_difficulties_come_in_their_order_and_unknown_ones_after_them() -> None:
    rows = [Iteration(stage="grpo", iteration=1, seconds=1, steps_by_difficulty={"olympic": 4, "hard": 3, "easy": 1})]
    found = cv.by_name(rows, cv.spans(record([*rows]), ("grpo",)), "steps_by_difficulty", DIFFICULTIES)
    assert [each.name for each in found] == ["easy", "hard", "olympic"]


def test_nothing_is_smoothed_across_the_boundary_of_a_stage() -> None:
    before = tuple((x, 0.0) for x in range(1, 11))
    after = tuple((x, 1.0) for x in range(11, 21))
    assert Curve("c", (before, after)).smoothed(9).points == (before, after)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 15).map(lambda half: 2 * half + 1))
def test_a_running_mean_keeps_every_point_and_stays_within_the_values(values: list[float], window: int) -> None:
    part = tuple(enumerate(values))
    (smooth,) = Curve("c", (part,)).smoothed(window).points
    assert [x for x, _ in smooth] == [x for x, _ in part]
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for _, value in smooth)


def test_the_table_has_a_row_per_iteration_with_what_was_recorded() -> None:
    spans = cv.spans(FULL, ("cold_start", "grpo"))
    table = cv.to_csv([cv.curve("loss", FULL.iterations(), spans, lambda row: row.loss)], spans).splitlines()
    assert table[0] == "stage,iteration,loss"
    assert table[1].startswith("cold_start,1,")
    assert table[21].startswith("grpo,1,")
    assert len(table) == 51


def test_held_out_tasks_are_named_by_their_split() -> None:
    held = FULL.held_out()
    assert cv.splits(held) == "test split"
    assert cv.splits([held[0].model_copy(update={"split": "train"}), *held]) == "train and test split"
    assert cv.splits([]) == ""


def test_what_is_left_of_a_stage_is_told_by_its_own_pace() -> None:
    going = record(training_rows(1, cold_start=0, grpo=30, recursion=0, ended=False, planned={"grpo": 40}))
    assert cv.time_left_s(going, "grpo") == pytest.approx(28.0)
    unplanned = record([row for row in going.rows if not isinstance(row, Started)])
    assert cv.time_left_s(unplanned, "grpo") is None
    assert cv.time_left_s(going, "recursion") is None

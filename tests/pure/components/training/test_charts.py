from pathlib import Path

import pytest

from conductor_core.export.picture import LIGHT
from conductor_core.lab.records.training import HeldOut, Iteration, TrainingRecord
from pages.components.style.figures import DARK, PALETTE, thinned
from pages.components.training.charts import Panel, panels
from tests.support.records import AGENTS, training_rows

FULL = TrainingRecord(Path("r"), tuple(training_rows(1, cold_start=20, grpo=30, recursion=10)))


def panel(key: str, *, smooth: bool = True) -> Panel:
    return next(each for each in panels(FULL, ("grpo", "recursion"), smooth=smooth) if each.key == key)


def test_each_stage_has_the_figures_for_which_it_has_data() -> None:
    assert [each.key for each in panels(FULL, ("cold_start",), smooth=True)] == ["time", "loss"]
    assert [each.key for each in panels(FULL, ("grpo",), smooth=True)] == [
        "reward", "agents", "accuracy", "steps", "entropy", "time", "loss", "shapes",
    ]  # fmt: skip


def test_all_figures_have_the_same_axis_and_say_where_a_stage_begins() -> None:
    drawn = panels(FULL, ("grpo", "recursion"), smooth=True)
    assert {tuple(each.figure["layout"]["xaxis"]["range"]) for each in drawn} == {(0, 40)}
    for each in drawn:
        assert [shape["x0"] for shape in each.figure["layout"]["shapes"]] == [30]
        words = [note["text"] for note in each.figure["layout"]["annotations"]]
        assert words[:2] == ["GRPO", "Recursion"]


def test_agents_have_the_colours_of_the_run_page() -> None:
    areas = panel("agents").figure["data"][:-1]
    assert [area["name"] for area in areas] == [*AGENTS, "conductor"]
    assert [area["fillcolor"] for area in areas] == [*(f"@agent-{number}" for number in range(7)), "@agent-none"]
    assert [PALETTE[f"agent-{number}"] for number in range(8)] == list(zip(LIGHT, DARK, strict=True))


def test_what_was_recorded_stands_behind_what_is_smoothed() -> None:
    _, raw, _, smoothed, _ = panel("reward").figure["data"]
    assert raw["hoverinfo"] == "skip"
    recorded = [row.reward for row in FULL.iterations("grpo")]
    assert raw["y"][:30] == recorded
    assert smoothed["y"][:30] != recorded
    assert panel("reward", smooth=False).figure["data"][1]["y"][:30] == recorded


def test_a_hover_says_the_iteration_within_its_stage() -> None:
    where = panel("reward").figure["data"][0]
    assert where["customdata"][0] == "GRPO · iteration 1"
    assert where["customdata"][where["x"].index(31)] == "Recursion · iteration 1"
    (alone, *_) = panels(FULL, ("recursion",), smooth=True)
    assert alone.figure["layout"]["xaxis"]["unifiedhovertitle"]["text"] == "Recursion · iteration %{x}"


def test_held_out_points_are_marks_that_are_never_smoothed() -> None:
    marks = [trace for trace in panel("accuracy").figure["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in marks] == ["easy, held out", "medium, held out", "hard, held out"]
    held = [row.accuracy_by_difficulty["hard"] for row in FULL.held_out() if row.stage == "grpo"]
    assert marks[2]["y"][: len(held)] == held


@pytest.mark.parametrize(
    ("by_difficulty", "symbols", "note"),
    [
        ({"easy": 0.9, "hard": 0.2}, ["circle-open", "square"], "Marks (○ easy, ■ hard): held out"),
        ({"<b>4</b>": 0.2}, ["triangle-up-open"], "Marks (△ <b>4</b>): held out"),
        ({}, ["circle-open"], "Lines: rollouts. Marks: held out"),
    ],
)
def test_a_difficulty_has_its_mark_by_its_name(by_difficulty: dict[str, float], symbols: list[str], note: str) -> None:
    row = HeldOut(
        stage="grpo", iteration=1, split="test", n=9, accuracy=0.5, accuracy_by_difficulty=by_difficulty, steps=1
    )
    rows = (Iteration(stage="grpo", iteration=1, seconds=1, accuracy=0.5), row)
    (drawn,) = [
        each for each in panels(TrainingRecord(Path("r"), rows), ("grpo",), smooth=False) if each.key == "accuracy"
    ]
    marks = [trace for trace in drawn.figure["data"] if trace["mode"] == "markers"]
    assert [trace["marker"]["symbol"] for trace in marks] == symbols
    assert note in drawn.note


def test_every_colour_that_is_named_exists() -> None:
    def colours(value: object) -> set[str]:
        if isinstance(value, dict):
            return set().union(*map(colours, value.values()))
        if isinstance(value, list):
            return set().union(*map(colours, value)) if value else set()
        return {value} if isinstance(value, str) and value.startswith("@") else set()

    named = set().union(*(colours(dict(each.figure)) for each in panels(FULL, ("grpo",), smooth=True)))
    assert named - {"@font"} <= {f"@{name}" for name in PALETTE}


@pytest.mark.parametrize("count", [1, 600, 601, 5000])
def test_a_long_curve_is_drawn_with_as_many_points_as_can_be_seen(count: int) -> None:
    part = [(x, float(x)) for x in range(count)]
    drawn = thinned(part, 600)
    assert min(count, 300) <= len(drawn) <= 601
    assert (drawn[0], drawn[-1]) == (part[0], part[-1])


def test_a_figure_says_in_words_what_it_shows() -> None:
    assert "easy from" in panel("steps").alt


def test_names_from_a_record_are_data(tmp_path: Path) -> None:
    row = Iteration(stage="grpo", iteration=1, seconds=1, agent_share={"<b>x</b>@ink": 1.0})
    (drawn,) = panels(TrainingRecord(tmp_path, (row,)), ("grpo",), smooth=False)
    assert drawn.figure["data"][0]["name"] == "‹b›x‹/b›＠ink"


@pytest.mark.parametrize("value", [0.0, -3.0, 7.5])
def test_a_curve_of_one_value_has_an_axis_with_room(value: float) -> None:
    row = Iteration(stage="grpo", iteration=1, seconds=1, entropy=value)
    (drawn,) = panels(TrainingRecord(Path("r"), (row,)), ("grpo",), smooth=True)
    low, high = drawn.figure["layout"]["yaxis"]["range"]
    assert low <= value < high

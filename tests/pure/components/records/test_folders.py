import os
from pathlib import Path

import pytest

from conductor_core.lab.records import training
from pages.components.records import folders
from tests.support.records import evaluation_plan, outcomes, training_rows, write_evaluation, write_training


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "SHIPPED", tmp_path / "shipped")
    return tmp_path / "shipped"


def begun(at: str) -> list[training.Row]:
    first, *rest = training_rows(1, cold_start=1, grpo=0, recursion=0)
    return [first.model_copy(update={"at": at}), *rest]


def test_the_one_begun_last_comes_first_and_the_shipped_ones_last(tmp_path: Path, shipped: Path) -> None:
    write_training(tmp_path / "training" / "older", begun("2026-01-01T10:00:00+00:00"))
    write_training(tmp_path / "training" / "newer", begun("2026-01-01T12:00:00+01:00"), age_s=1000)
    write_training(shipped / "training", begun("2026-02-01T10:00:00+00:00"))
    found = folders.record_folders("training", tmp_path)
    assert [each.label for each in found] == [
        "newer · 2026-01-01 12:00",
        "older · 2026-01-01 10:00",
        "training · shipped",
    ]


def test_a_name_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    write_training(tmp_path / "training" / "named", begun("2026-01-01T10:00:00+00:00"))
    (tmp_path / "training" / "named").rename(tmp_path / "training" / "b\udcfcro")
    write_training(tmp_path / "training" / "other", begun("2026-01-01T10:00:00+00:00"))
    assert [each.folder.name for each in folders.record_folders("training", tmp_path)] == ["other"]


def test_evaluations_too_are_ordered_by_when_they_began(tmp_path: Path) -> None:
    plan = evaluation_plan("e", ("moa",), 2)
    for name, hour, age_s in (("older", 10, 0.0), ("newer", 12, 1000.0)):
        begun_at = plan.model_copy(update={"at": f"2026-01-01T{hour}:00:00+00:00"})
        write_evaluation(tmp_path / "evaluations" / name, begun_at, outcomes(plan), age_s=age_s)
    found = folders.record_folders("evaluations", tmp_path)
    assert [each.label for each in found] == ["newer · 2026-01-01 12:00", "older · 2026-01-01 10:00"]


def test_several_shipped_records_stand_in_folders_of_their_own(tmp_path: Path, shipped: Path) -> None:
    plan = evaluation_plan("e", ("moa",), 2)
    for name in ("b", "a"):
        write_evaluation(shipped / "evaluation" / name, plan, outcomes(plan))
    assert [each.folder.name for each in folders.record_folders("evaluations", tmp_path)] == ["a", "b"]


def test_what_learned_routers_are_fitted_on_is_no_evaluation_to_show_or_to_resume(tmp_path: Path) -> None:
    for name in ("fit-rehearsal-0123456789ab", "fitted"):
        plan = evaluation_plan(name, ("moa",), 2)
        write_evaluation(tmp_path / "evaluations" / name, plan, outcomes(plan))
    assert [each.folder.name for each in folders.record_folders("evaluations", tmp_path)] == ["fitted"]


def test_a_folder_without_a_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "training" / "empty").mkdir(parents=True)
    assert folders.record_folders("training", tmp_path) == []


def test_a_record_whose_first_line_is_broken_is_still_offered(tmp_path: Path) -> None:
    folder = tmp_path / "training" / "broken"
    folder.mkdir(parents=True)
    (folder / training.RECORD).write_text("no json\n")
    assert [each.folder for each in folders.record_folders("training", tmp_path)] == [folder]


def test_a_record_is_read_again_once_it_has_grown(tmp_path: Path) -> None:
    rows = training_rows(1, cold_start=5, grpo=0, recursion=0)
    write_training(tmp_path, rows[:3])
    assert len(folders.read(training.read_record, tmp_path).rows) == 3
    assert folders.read(training.read_record, tmp_path) is folders.read(training.read_record, tmp_path)
    training.append(tmp_path, rows[3])
    assert len(folders.read(training.read_record, tmp_path).rows) == 4


def test_a_record_that_is_gone_says_so(tmp_path: Path) -> None:
    write_training(tmp_path / "training" / "gone", begun("2026-01-01T10:00:00+00:00"))
    (folder,) = folders.record_folders("training", tmp_path)
    os.remove(folder.folder / training.RECORD)
    with pytest.raises(FileNotFoundError, match="no longer holds a record"):
        folder.state(ended=False)


@pytest.mark.parametrize(
    ("ended", "silent_s", "pace_s", "state"),
    [(True, 1e6, 0, "ended"), (False, 5, 0, "running"), (False, 100, 0, "stopped"), (False, 100, 30, "running")],
)
def test_a_record_that_is_silent_for_long_has_stopped(ended: bool, silent_s: float, pace_s: float, state: str) -> None:
    assert folders.state(ended=ended, silent_s=silent_s, pace_s=pace_s) == state


@pytest.mark.parametrize(
    ("ended", "silent_s", "in_use", "state"),
    [
        (False, 3600, True, "running"),
        (False, 1, False, "stopped"),
        (False, 1, None, "running"),
        (False, 3600, None, "stopped"),
        (True, 1, True, "ended"),
    ],
)
def test_a_lock_says_more_than_silence(ended: bool, silent_s: float, in_use: bool | None, state: str) -> None:
    assert folders.state(ended=ended, silent_s=silent_s, in_use=in_use) == state

import json
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.records import write_whole
from conductor_core.lab.records.evaluation import OUTCOMES, PLAN, SUMMARY, read_record
from tests.support.records import evaluation_plan, outcomes, write_evaluation

MADE = evaluation_plan("e", ("conductor", "moa"), 4)


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    record = read_record(write_evaluation(tmp_path, MADE, outcomes(MADE)))
    assert record.plan == MADE
    assert list(record.outcomes) == outcomes(MADE)
    assert record.summary is not None
    assert [result.orchestrator for result in record.summary.results] == ["conductor", "moa"]


def test_a_broken_outcome_is_named_by_file_and_number_or_left_out(tmp_path: Path) -> None:
    write_evaluation(tmp_path, MADE, outcomes(MADE))
    lines = (tmp_path / OUTCOMES).read_text().splitlines()
    (tmp_path / OUTCOMES).write_text("\n".join([lines[0], "no json", *lines[1:]]) + "\n")
    with pytest.raises(BadInput, match=r"outcomes\.jsonl, line 2, is not a valid outcome"):
        read_record(tmp_path)
    record = read_record(tmp_path, lenient=True)
    assert list(record.outcomes) == outcomes(MADE)
    assert len(record.broken) == 1


@pytest.mark.parametrize("lenient", [False, True])
def test_a_broken_summary_leaves_the_outcomes(tmp_path: Path, lenient: bool) -> None:
    """It is made anew from them: a process that was killed as it wrote it goes on."""
    write_evaluation(tmp_path, MADE, outcomes(MADE))
    (tmp_path / SUMMARY).write_text("{")
    record = read_record(tmp_path, lenient=lenient)
    assert record.summary is None
    assert len(record.outcomes) == 8
    (fault,) = record.broken
    assert "summary.json cannot be used" in fault
    assert not record.broken_lines


def test_a_fault_names_the_part_of_the_row_that_it_is_in(tmp_path: Path) -> None:
    made = [each.model_dump() | {"scores": 1} for each in outcomes(MADE)]
    write_evaluation(tmp_path, MADE, (), done=False)
    (tmp_path / OUTCOMES).write_text(json.dumps(made[0]) + "\n")
    with pytest.raises(BadInput, match="line 1, is not a valid outcome: scores: Extra inputs are not permitted"):
        read_record(tmp_path)


@pytest.mark.parametrize("figure", ["score", "duration_ms", "cost_usd"])
def test_a_figure_that_is_infinite_is_no_outcome(tmp_path: Path, figure: str) -> None:
    write_evaluation(tmp_path, MADE, (), done=False)
    made = outcomes(MADE)[0].model_dump() | {figure: float("inf")}
    (tmp_path / OUTCOMES).write_text(json.dumps(made) + "\n")
    record = read_record(tmp_path, lenient=True)
    assert not record.outcomes
    assert f"{figure}: Input should be a finite number" in record.broken_lines[0]


def test_without_its_plan_nothing_can_be_said(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text("[]")
    with pytest.raises(BadInput, match=r"plan\.json cannot be used"):
        read_record(tmp_path, lenient=True)


def test_what_cannot_be_written_anew_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.json"
    write_whole(file, "before")

    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text[:2].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "after")
    assert file.read_text() == "before"

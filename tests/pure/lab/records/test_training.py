from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.records.training import RECORD, Iteration, Taught, append, read_record
from tests.support.records import training_rows, write_training


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    rows = training_rows(1, cold_start=3, grpo=4, recursion=0)
    record = read_record(write_training(tmp_path, rows))
    assert list(record.rows) == rows
    assert record.ended is rows[-1] or record.ended == rows[-1]


def test_a_line_that_is_still_written_is_left_out(tmp_path: Path) -> None:
    write_training(tmp_path, training_rows(1, cold_start=3, grpo=0, recursion=0, ended=False))
    with (tmp_path / RECORD).open("a") as file:
        file.write('{"kind": "itera')
    assert len(read_record(tmp_path).iterations()) == 3


def test_a_broken_line_is_named_by_file_and_number(tmp_path: Path) -> None:
    write_training(tmp_path, training_rows(1, cold_start=3, grpo=0, recursion=0))
    lines = (tmp_path / RECORD).read_text().splitlines()
    (tmp_path / RECORD).write_text("\n".join([*lines[:2], '{"kind": "nonsense"}', *lines[2:]]) + "\n")
    with pytest.raises(BadInput, match=r"record\.jsonl, line 3, is not a valid row of a training record"):
        read_record(tmp_path)


def test_leniently_read_the_rest_stays_and_every_broken_line_is_told(tmp_path: Path) -> None:
    write_training(tmp_path, training_rows(1, cold_start=3, grpo=0, recursion=0))
    lines = (tmp_path / RECORD).read_text().splitlines()
    (tmp_path / RECORD).write_text("\n".join([lines[0], "{", *lines[1:], "[]"]) + "\n")
    record = read_record(tmp_path, lenient=True)
    assert [row.iteration for row in record.iterations()] == [1, 2, 3]
    assert ["line 2," in record.broken[0], "line 7," in record.broken[1]] == [True, True]


def test_a_fault_names_the_part_of_the_row_that_it_is_in(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"kind":"iteration","stage":"grpo","iteration":1,"seconds":1,"rewards":1}\n')
    with pytest.raises(BadInput, match=r"record: iteration\.rewards: Extra inputs are not permitted"):
        read_record(tmp_path)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_left_out_and_the_record_can_be_read(tmp_path: Path, loss: float) -> None:
    append(
        tmp_path,
        Taught(stage="recursion", rounds=8, planned=16, seconds=1, loss=loss),
        Iteration(stage="recursion", iteration=1, seconds=2, loss=loss, grad_norm=loss),
    )
    (taught,), (row,) = read_record(tmp_path).taught(), read_record(tmp_path).iterations()
    assert (taught.loss, row.loss, row.grad_norm) == (None, None, None)


def test_what_older_versions_wrote_of_such_a_loss_is_read(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(
        '{"kind":"taught","stage":"recursion","rounds":8,"planned":16,"seconds":1.0,"loss":null}\n'
        '{"kind":"iteration","stage":"grpo","iteration":1,"seconds":1.0,"loss":null}\n'
    )
    assert len(read_record(tmp_path).rows) == 2


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ('{"kind":"iteration","stage":"grpo","iteration":1,"seconds":NaN}', "iteration.seconds"),
        ('{"kind":"taught","stage":"recursion","rounds":0,"planned":16,"seconds":1,"loss":1}', "taught.rounds"),
        ('{"kind":"taught","stage":"recursion","rounds":8,"planned":0,"seconds":1,"loss":1}', "taught.planned"),
    ],
)
def test_figures_that_no_page_can_show_are_no_row(tmp_path: Path, row: str, part: str) -> None:
    (tmp_path / RECORD).write_text(row + "\n")
    record = read_record(tmp_path, lenient=True)
    assert not record.rows
    assert f"record: {part}: " in record.broken[0]

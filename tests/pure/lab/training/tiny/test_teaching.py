"""The lessons of the recursion stage: what they teach, and that a stop costs none of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conductor_core.lab.records.training import read_record
from conductor_core.lab.training.folder import drop_rows_after
from conductor_core.lab.training.recorder import StageRecord
from conductor_core.lab.training.tiny.recursion import taught_rounds, teach
from tests.support.trainings import recursion_config, toy_model, toy_tokenizer


def lessons(folder: Path, show: Callable[[str], None]) -> list[torch.Tensor]:
    """The weights after four steps of lessons, or of what ``folder`` says is left of them."""
    folder.mkdir(exist_ok=True)
    model = toy_model(scale=1.0)
    record = StageRecord(folder, "recursion", 1, show)
    teach(model, toy_tokenizer(), recursion_config(32), "5", record)
    return list(model.parameters())


def test_lessons_lower_the_loss(tmp_path: Path) -> None:
    said: list[str] = []
    lessons(tmp_path, said.append)
    assert [line.split(" · ")[0] for line in said] == [
        f"recursion: shown {number} of 32 rounds" for number in (8, 16, 24, 32)
    ]
    rows = read_record(tmp_path).taught()
    assert [(row.rounds, row.planned) for row in rows] == [(8, 32), (16, 32), (24, 32), (32, 32)]
    first, last = rows[0].loss, rows[-1].loss
    assert first is not None
    assert last is not None
    assert last < first < 6.5  # of 600 tokens: 6.4 untaught


def test_no_lessons_change_nothing(tmp_path: Path) -> None:
    model = toy_model()
    before = [parameter.clone() for parameter in model.parameters()]
    teach(model, toy_tokenizer(), recursion_config(0), "5", StageRecord(tmp_path, "recursion", 1, print))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_lessons_that_were_stopped_go_on_to_the_same_weights_and_rows(tmp_path: Path) -> None:
    whole = lessons(tmp_path / "whole", lambda _: None)

    def stop(line: str) -> None:
        if "shown 24" in line:
            raise KeyboardInterrupt

    part = tmp_path / "part"
    work = StageRecord(part, "recursion", 1, print).work
    with pytest.raises(KeyboardInterrupt):
        lessons(part, stop)
    assert len(read_record(part).taught()) == 3
    assert taught_rounds(work) == 16, "what was shown after it was kept is shown again"
    drop_rows_after(part, (), "recursion", -1, rounds=taught_rounds(work))
    said: list[str] = []
    again = lessons(part, said.append)
    assert [line.split(" · ")[0] for line in said] == [
        "recursion: shown 24 of 32 rounds",
        "recursion: shown 32 of 32 rounds",
    ]
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    losses = [[row.loss for row in read_record(tmp_path / name).taught()] for name in ("whole", "part")]
    assert losses[0] == losses[1]

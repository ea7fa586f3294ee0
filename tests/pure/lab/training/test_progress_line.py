"""The line of progress that a training prints: how long it still takes, by the pace of this process alone."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from conductor_core.lab.training.recorder import RecordCallback, StageRecord


def lines(folder: Path, monkeypatch: pytest.MonkeyPatch, *, begins_at: int, logged_at: list[int]) -> list[str]:
    """A stage of 110 iterations that takes 200 s to prepare and then 2 s for each iteration."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    shown: list[str] = []
    writes = RecordCallback(StageRecord(folder, "cold_start", 110, shown.append))
    now[0] = 200.0
    writes.on_train_begin(None, SimpleNamespace(global_step=begins_at), None)
    for step in logged_at:
        now[0] = 200.0 + 2.0 * (step - begins_at)
        writes.on_log(None, SimpleNamespace(global_step=step), None, {"loss": 1.0})
    return shown


def test_the_preparation_is_not_taken_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lines(tmp_path, monkeypatch, begins_at=0, logged_at=[10, 90])

    assert first.endswith("2.0 s each, about 3 min left")
    assert second.endswith("about 40 s left")


def test_what_an_earlier_process_did_is_not_counted_as_done_by_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = lines(tmp_path, monkeypatch, begins_at=50, logged_at=[60])

    assert first.endswith("2.0 s each, about 2 min left")

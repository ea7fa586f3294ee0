"""What stderr says of an evaluation where it is no terminal."""

import re

import pytest

from conductor_core.cli import progress
from conductor_core.cli.evaluate import EvaluationProgress
from tests.support.evaluations import row


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)


def test_a_line_tells_how_far_it_is_and_the_scores_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    with EvaluationProgress("first", 6, quiet=False) as told:
        told.begin(2)
        told.on_outcome(row("second", "task-0", score=1.0))
        told.on_outcome(row("third", "task-0", score=0.5))
        told.on_outcome(row("first", "task-0", score=0.0))
        told.on_outcome(row("first", "task-1", score=1.0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("2 of 6 · unknown time left · "), "nothing was done in this part yet"
    assert re.fullmatch(r"4 of 6 · \d\.\d s left · first 50\.0 · second 100\.0 · third 50\.0", lines[3])


def test_runs_for_a_fit_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with EvaluationProgress("first", 6, quiet=False) as told:
        told.fitting(3, 9)
    assert capsys.readouterr().err == "runs to fit routers on: 3 of 9\n"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with EvaluationProgress("first", 1, quiet=True) as told:
        told.fitting(1, 1)
        told.on_outcome(row("first"))
    assert capsys.readouterr().err == ""

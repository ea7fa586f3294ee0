import logging
from pathlib import Path

import pytest

from conductor_core.chat.progress import Progress
from conductor_core.inference import pace as module
from conductor_core.inference.generation import Meter, RecentPace, WritingMeter, mean_of_late
from conductor_core.inference.pace import recent_paces

PACE = RecentPace(read_per_s=26.5, written_per_s=1.5, written=57)


def test_the_pace_of_each_model_is_kept_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "prefixes"
    assert recent_paces(folder).get("one") is None
    recent_paces(folder).keep("one", PACE)
    recent_paces(folder).keep("other", RecentPace(read_per_s=1))
    kept = recent_paces(folder)
    assert (kept.get("one"), kept.get("other")) == (PACE, RecentPace(read_per_s=1))
    assert ((folder / "paces.json").stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    kept.keep("one", PACE)
    kept.keep("third", PACE)
    assert kept.get("other") is None, "the one not used for longest is forgotten"


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"one": {"read_per_s": -1}}', b'{"one": {"read_per_s": "NaN"}}'])
def test_a_damaged_file_is_written_anew(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "paces.json").write_bytes(text)
    assert recent_paces(tmp_path).get("one") is None
    recent_paces(tmp_path).keep("one", PACE)
    assert recent_paces(tmp_path).get("one") == PACE


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    recent_paces(tmp_path / "file" / "prefixes").keep("one", PACE)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


def test_a_pace_is_measured_from_the_first_report_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    now_s = 100.0
    monkeypatch.setattr(Meter, "_clock", staticmethod(lambda: now_s))
    meter = Meter("reading", 1000, told.append, known_per_s=50)
    meter.at(600)
    assert told[-1] == Progress(phase="reading", done=600, total=1000, per_s=50, left_s=8)
    now_s += 0.1
    meter.at(610)
    assert told[-1].per_s == 50, "a tenth of a second says nothing yet"
    now_s += 1.9
    meter.at(700.7)
    assert told[-1].done == 700
    assert told[-1].per_s == pytest.approx(50.35)
    assert told[-1].left_s == pytest.approx((1000 - 700.7) / 50.35)
    meter.at(1000)
    assert told[-1].left_s == 0
    told.clear()
    Meter("loading", 0, told.append).at(0)
    assert told == [Progress(phase="loading", done=0, total=0)]


def test_a_text_longer_than_usual_has_no_estimate() -> None:
    told: list[Progress] = []
    meter = WritingMeter(1024, 10, told.append)
    for written in (1, 5, 10):
        meter.at(written, thinking=written < 10)
    assert [each.phase for each in told] == ["thinking", "thinking", "writing"]
    assert [each.left_s is None for each in told] == [True, False, True]
    WritingMeter(6, 100, told.append).at(5, thinking=False)
    assert told[-1].left_s is not None
    assert told[-1].left_s < 0.1, "the limit comes first"


def test_the_first_tokens_of_a_text_do_not_tell_how_long_it_takes() -> None:
    told: list[Progress] = []
    WritingMeter(1024, 150, told.append).at(2, thinking=True)
    WritingMeter(1024, 150, told.append, known_per_s=2).at(2, thinking=True)
    assert [each.left_s for each in told] == [None, 74]


def test_a_mean_forgets() -> None:
    assert (mean_of_late(None, 9), mean_of_late(9, 12)) == (9, 10)

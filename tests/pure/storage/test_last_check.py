"""The kept result of the last check: whatever lies in its place, only a result that can be true is read."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.evidence.checking import CheckedLog, keep_check, last_check

_VALUES: dict[str, object] = {
    "origin": "log/1", "at_utc": "2026-01-01T00:00:00Z", "duration_ms": 1.0, "newest": 1, "fingerprint": None,
    "anchor": None, "witnessed": False, "verified_events": 0, "unanchored_events": 0,
    "deleted_runs": 0, "findings": [], "more": 0, "notes": [],
}  # fmt: skip
_LATER = (datetime.now(UTC) + timedelta(days=1)).isoformat()


@pytest.mark.parametrize(
    "changed",
    [
        {"at_utc": "2026-01-01T00:00:00"}, {"at_utc": _LATER}, {"duration_ms": float("inf")}, {"duration_ms": -1},
        {"more": -1}, {"origin": "log/2"}, {"notes": ["x" * (5 << 20)]},
    ],
)  # fmt: skip
def test_a_result_that_cannot_be_is_not_read(tmp_path: Path, changed: dict[str, object]) -> None:
    file = tmp_path / "last-check.json"
    file.write_text(json.dumps(_VALUES))
    assert last_check(tmp_path, "log/1") is not None
    file.write_text(json.dumps(_VALUES | changed))
    assert last_check(tmp_path, "log/1") is None


def test_a_pipe_in_its_place_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "last-check.json")
    assert last_check(tmp_path, "log/1") is None


def test_a_result_is_kept_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / f".last-check.json-{os.getpid()}").symlink_to(victim)
    checked = CheckedLog.model_validate_json(json.dumps(_VALUES))
    keep_check(checked, folder)
    assert victim.read_text() == "as it was"
    assert last_check(folder, "log/1") == checked

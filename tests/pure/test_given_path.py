"""Whatever is typed as a path, asking about it gives an answer."""

from pathlib import Path

import pytest

from conductor_core.cli import inputs
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import open_pool
from conductor_core.errors import BadInput, UnknownConductor
from conductor_core.files import expand_path, is_file, is_folder, is_there
from conductor_core.inference.source import local_folder
from conductor_core.settings import Settings

NO_PATHS = ["~nobody-of-that-name/x", "n" * 5000, "o/" + "n" * 5000, "a\0b", "\udcff", "é" * 200]


@pytest.mark.parametrize("text", [*NO_PATHS, "", "~", "#"])
def test_nothing_raises(text: str) -> None:
    path = expand_path(text)
    assert not is_file(path)
    assert is_folder(path) == is_there(path)


def test_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_path("~/models/x") == tmp_path / "models" / "x"
    assert is_folder(expand_path("~"))


@pytest.mark.parametrize("text", NO_PATHS)
def test_a_conductor_or_pool_of_that_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UnknownConductor, match="name tiny, small, one of") as unknown:
        open_conductor(text, Settings())
    assert len(str(unknown.value)) < 500
    for ref in (text, f"{text}.toml"):
        with pytest.raises(BadInput) as refused:
            open_pool(ref, Settings())
        assert len(str(refused.value)) < 500
    with pytest.raises(BadInput):
        open_conductor(f"{text}.toml", Settings())
    assert local_folder(text) is None


def test_a_database_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown user"):
        inputs.database_url("~nobody-of-that-name/x.sqlite3")

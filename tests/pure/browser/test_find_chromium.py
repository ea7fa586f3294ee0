from pathlib import Path

import pytest

from tests.browser import find_chromium


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with nothing on it, and no CI."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(find_chromium.VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def _executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_named_executable_comes_first(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _executable(nothing_installed / "chromium")
    named = _executable(nothing_installed / "my-browser")
    monkeypatch.setenv(find_chromium.VARIABLE, str(named))
    assert find_chromium.find_chromium() == named
    monkeypatch.setenv(find_chromium.VARIABLE, str(nothing_installed / "absent"))
    assert find_chromium.find_chromium() is None


def test_a_known_name_on_the_path_is_found(nothing_installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chrome = _executable(nothing_installed / "google-chrome")
    assert find_chromium.main([]) == 0
    assert capsys.readouterr().out.strip() == str(chrome)


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("false", 0), ("true", 1), ("1", 1)])
def test_none_is_said_loudly_and_fails_in_ci(
    nothing_installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    code: int,
) -> None:
    monkeypatch.setenv("CI", ci)
    assert find_chromium.main(["--install"]) == code
    assert "THE BROWSER TESTS DO NOT RUN" in capsys.readouterr().err


def test_other_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_chromium.main(["--instal"]) == 2
    assert "find_chromium" in capsys.readouterr().err

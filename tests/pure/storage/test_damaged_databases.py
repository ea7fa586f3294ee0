"""A few trials of the benchmark of the same name: no traceback, and no run that reads otherwise without a word."""

from pathlib import Path

import pytest

from benchmarks.damaged_databases import CHANGES, Pristine, pristine, trial


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    return pristine(tmp_path_factory.mktemp("pristine"))


@pytest.mark.parametrize("seed", [2, 4, 6, 8])
def test_a_changed_byte(whole: Pristine, tmp_path: Path, seed: int) -> None:
    result = trial(seed, whole, tmp_path)
    assert (result.broken, result.silent) == ([], set()), result.change


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_event(whole: Pristine, tmp_path: Path, how: str) -> None:
    result = trial(1, whole, tmp_path, how)
    assert (result.broken, result.silent) == ([], set()), result.change
    [changed] = result.flagged
    assert changed in result.change
    assert result.whole == whole.shown.keys() - {changed}, result.change

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.settings import Settings
from pages.components.run import settings
from pages.components.run.settings import Choice, Kept


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert settings.read_kept(tmp_path) == Kept()
    chosen = Kept(
        pool=Choice(chosen="paper", instead_of="rehearsal"),
        excluded={"paper": ("gpt-5", "o3")},
        max_usd=Choice(chosen=0.5, instead_of=None),
    )
    settings.write_kept(tmp_path / "new folder", chosen)
    assert settings.read_kept(tmp_path / "new folder") == chosen
    assert [file.name for file in (tmp_path / "new folder").iterdir()] == [settings.FILE]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Invalid JSON"),
        ("\udcff", "Invalid JSON"),
        ('{"excluded": {"rehearsal": "coder"}}', "at excluded.rehearsal"),
        ('{"max_steps": {"chosen": 99, "instead_of": 5}}', "at max_steps.chosen"),
        ('{"max_usd": {"chosen": NaN, "instead_of": null}}', "at max_usd.chosen"),
        ('{"something else": 1}', "at something else"),
    ],
)
def test_a_damaged_file_is_one_clear_error_and_is_put_aside_not_lost(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / settings.FILE
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput, match=said) as caught:
        settings.read_kept(tmp_path)
    assert str(file) in str(caught.value)
    settings.write_kept(tmp_path, Kept(excluded={"rehearsal": ("coder",)}))
    assert settings.read_kept(tmp_path).excluded == {"rehearsal": ("coder",)}
    aside = tmp_path / f"{settings.FILE}.unreadable"
    assert aside.read_text(encoding="utf-8", errors="surrogateescape") == text


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(BadInput, match=r"choices\.json cannot be written"):
        settings.write_kept(tmp_path / "a file", Kept())


def test_bounds_are_those_of_the_settings() -> None:
    of_settings = Settings.model_json_schema()["properties"]
    for name, most in (("max_steps", settings.MOST_STEPS), ("max_depth", settings.MOST_DEPTH)):
        assert of_settings[name]["maximum"] == most


A, B = "a" * 32, "b" * 32


def test_each_browser_has_its_own_and_a_new_one_begins_with_the_last(tmp_path: Path) -> None:
    first = Kept(pool=Choice(chosen="paper", instead_of="rehearsal"))
    second = Kept(pool=Choice(chosen="small", instead_of="rehearsal"))
    settings.write_kept(tmp_path, first, A)
    assert settings.read_kept(tmp_path, B) == first
    settings.write_kept(tmp_path, second, B)
    assert settings.read_kept(tmp_path, A) == first
    assert settings.read_kept(tmp_path, B) == second
    assert settings.read_kept(tmp_path) == second


def test_a_new_browser_waits_for_no_approval_because_of_what_another_chose(tmp_path: Path) -> None:
    chosen = Kept(
        pool=Choice(chosen="paper", instead_of="rehearsal"),
        gates=Choice(chosen=("steps",), instead_of=()),
        gate_above_usd=Choice(chosen=0.5, instead_of=None),
    )
    settings.write_kept(tmp_path, chosen, A)
    assert settings.read_kept(tmp_path, A) == chosen
    assert settings.read_kept(tmp_path, B) == Kept(pool=chosen.pool)


def test_browsers_that_chose_long_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MOST_BROWSERS", 2)
    for number in range(4):
        settings.write_kept(tmp_path, Kept(), f"{number:032x}")
    assert len(list((tmp_path / settings.FOLDER).iterdir())) == 2


def test_pages_that_choose_at_once_do_not_stumble_over_what_the_others_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MOST_BROWSERS", 1)

    def choose(number: int) -> None:
        for step in range(20):
            settings.write_kept(tmp_path, Kept(), f"{number * 100 + step:032x}")

    with ThreadPoolExecutor(8) as pages:
        list(pages.map(choose, range(8)))
    assert settings.read_kept(tmp_path) == Kept()

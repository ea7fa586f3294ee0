"""Names of people, by Presidio and spaCy. `make test-names` installs both."""

import socket
from pathlib import Path
from typing import Any

import pytest

from conductor_core.errors import StoreError
from conductor_core.privacy.detectors import PersonNames
from storage import Privacy, open_store
from tests.support.run_events import created


def blank() -> Any:
    import spacy  # only `make test-names` installs it, and every test can be collected without it

    return spacy.blank("en")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spaCy model of rules: real ones come from the network, and no test depends on what such a one has learnt."""
    folder = tmp_path_factory.mktemp("models") / "rules"
    pipeline = blank()
    pipeline.add_pipe("entity_ruler").add_patterns([
        {"label": "PERSON", "pattern": "Ada Lovelace"},
        {"label": "GPE", "pattern": "London"},
    ])  # fmt: skip
    pipeline.to_disk(folder)
    return folder


def refuse(*_: object) -> None:
    raise AssertionError("nothing of this asks the network")


def test_people_are_found_and_places_are_not(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", refuse)
    text = "In London,\nAda Lovelace met ada@example.org."
    assert [text[low:high] for low, high in PersonNames(str(model)).spans(text)] == ["Ada Lovelace"]


def test_a_line_longer_than_any_part_is_searched_whole(model: Path) -> None:
    text = "word " * 2_500 + "Ada Lovelace" + "x" * 12_000 + " Ada Lovelace"
    assert len(list(PersonNames(str(model)).spans(text))) == 1, "the first one is a part of a longer word"


def test_no_byte_of_the_database_holds_the_name(model: Path, tmp_path: Path) -> None:
    store = open_store(
        f"sqlite:///{tmp_path}/folder/runs.sqlite3", Privacy(frozenset({"names"}), names_model=str(model))
    )
    store.log.append_and_wait(created("r", "Ask Ada Lovelace in London"))
    assert store.read("r").task == "Ask [redacted: name] in London"
    store.close()
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"Lovelace" in file.read_bytes()]


@pytest.mark.parametrize("damage", ["damaged", "names nobody"])
def test_a_model_that_cannot_be_used_stops_the_run_with_the_cause(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    blank().to_disk(folder)
    if damage == "damaged":
        (folder / "config.cfg").write_text("[nlp")
    store = open_store(
        f"sqlite:///{tmp_path}/folder/runs.sqlite3", Privacy(frozenset({"names"}), names_model=str(folder))
    )
    with pytest.raises(StoreError, match="cannot be loaded" if damage == "damaged" else "finds no names"):
        store.log.append_and_wait(created("r", "Ask Ada Lovelace"))
    assert store.runs() == []
    store.close()

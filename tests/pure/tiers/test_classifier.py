"""The file of a classifier: what is written is read, and whatever else it holds is one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.tiers import classifier as files
from conductor_core.tiers.classifier import Classifier, parse, read_classifier
from conductor_core.tiers.features import features
from tests.support.any_json import ANY
from tests.support.tiers import EASY, HARD, fitted, written


def test_what_is_written_is_read_and_says_the_same(tmp_path: Path) -> None:
    found, sha256 = read_classifier(written(tmp_path))
    assert found == fitted()
    assert len(sha256) == 64
    for text in (EASY.format(3), HARD.format(4), "", "\ud800", "x" * 100_000):
        assert found.probability(features(text)) == fitted().probability(features(text))
        assert 0 <= found.probability(features(text)) <= 1


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(fitted().write()) | fields)


def outcome(**fields: Any) -> str:
    document = json.loads(fitted().write())
    document["outcomes"][3] |= fields
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"kind": "conductor-tiers", "version": NaN}', "not JSON"),
        ("[]", "it is not what conductor tiers fit writes"),
        ("{}", "it is not what conductor tiers fit writes"),
        (changed(version=2), "its version is 2"),
        (changed(version=True), "its version is True"),
        (changed(form=9), "its form is 9"),
        (changed(weights=[1.0]), "weights: "),
        (changed(weights=[1e300] * 8204), "weights.0: "),
        (changed(weights=["1"] * 8204), "weights.0: "),
        (changed(slope=-1), "slope: "),
        (changed(more=1), "more: "),
        (changed(outcomes=[]), "outcomes: "),
        (changed(worker=""), "worker: "),
        (outcome(cheap_run_id="../../etc/passwd"), "outcomes.3.cheap_run_id: "),
        (outcome(probability=2), "outcomes.3.probability: "),
        (outcome(cheap_usd=-1), "outcomes.3.cheap_usd: "),
        (outcome(cheap_tokens=10**30), "outcomes.3.cheap_tokens: "),
        (
            json.dumps(json.loads(fitted().write()) | {"bias": 1.5}).replace('"bias": 1.5', '"bias": Infinity'),
            "not JSON",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "easy.json"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_classifier(file)
    said = str(caught.value)
    assert said.startswith(f"classifier of tiers {file}: ") or len(str(file)) > 100
    assert told in said
    assert "\n" not in said
    assert len(said) < 500


def test_outcomes_of_one_class_are_refused() -> None:
    document = json.loads(fitted().write())
    for each in document["outcomes"]:
        each["easy"] = True
    with pytest.raises(BadInput, match="all of one class"):
        parse(json.dumps(document))


@pytest.mark.parametrize("make", [lambda file: None, Path.mkdir, lambda file: file.write_bytes(b"\xff\xfe")])
def test_a_file_that_is_gone_a_folder_or_not_text(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "easy.json")
    with pytest.raises(BadInput, match=r"easy\.json: "):
        read_classifier(tmp_path / "easy.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with pytest.raises(BadInput, match="more than 1,000 bytes"):
        read_classifier(written(tmp_path))


@given(st.sampled_from(sorted(json.loads(fitted().write()))), ANY)
def test_any_value_anywhere_is_taken_or_refused(name: str, value: object) -> None:
    try:
        found = parse(changed(**{name: value}))
    except BadInput:
        return
    assert isinstance(found, Classifier)
    assert 0 <= found.probability(features("What is it?")) <= 1

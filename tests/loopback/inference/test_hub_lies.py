"""A hub that says what cannot be so: nothing is written outside its cache, and no disk is filled."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_core.inference import hub
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.source import cache_folder, cached_folder
from tests.loopback.inference.conftest import REF, weights_of
from tests.support.hub import COMMIT, LoopbackHub

Lie = Callable[[dict[str, object]], None]
DIGEST = "../../../../outside"


def of_weights(**said: object) -> Lie:
    return lambda info: next(each for each in info["siblings"] if "lfs" in each)["lfs"].update(said)  # type: ignore[attr-defined]


LIES: dict[str, tuple[Lie, str]] = {
    "a digest that leads out of the cache": (
        of_weights(sha256=DIGEST, oid=DIGEST),
        "the digest of 'model.safetensors'",
    ),
    "no digest": (of_weights(sha256=None), "the digest"),
    "no size": (of_weights(size=None), "the size"),
    "a size below zero": (of_weights(size=-1), "the size"),
    "a commit that leads out of the cache": (lambda info: info.update(sha="../../../outside"), "its commit"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_hub_that_lists_what_cannot_be_is_not_believed(
    lie: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    change, says = LIES[lie]
    (tmp_path / "outside.part").write_text("somebody's")
    with LoopbackHub({REF: model}, lie=change) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=says):
            hub.download(REF)
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache", "outside.part"}
    assert (tmp_path / "outside.part").read_text() == "somebody's"
    assert not server.asked


def test_a_tag_that_leads_out_of_the_cache_is_no_path(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    with LoopbackHub({REF: model}, tag="../../../outside") as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match="the tag or commit of '"):
            hub.download(REF)
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache"}


@pytest.mark.parametrize(
    "name",
    [
        "../../../../evil.json",
        "/evil.json",
        "onnx/model.safetensors",
        "consolidated.safetensors",
        "a\nb.json",
        "x" * 300,
    ],
)
def test_a_file_that_is_not_of_the_models_folder_is_left_out(
    name: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    with LoopbackHub({REF: model}, also=(name,)) as server:
        asked(server)
        folder = hub.download(REF)
    assert {each.name for each in folder.iterdir()} == {each.name for each in model.iterdir()}
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache"}


def test_xet_is_not_used_by_which_a_hub_could_send_the_key_to_another_host(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with LoopbackHub({}) as other, LoopbackHub({REF: model}, xet=other.url) as server:
        asked(server)
        hub.download(REF)
        assert not other.requests
        assert server.requests
    assert cached_folder(REF) is not None


@pytest.mark.parametrize("answer", [b"<html>Log in to this network</html>", b"[]", b"7", b"{}"])
def test_what_answers_unlike_a_hub_is_told_in_one_line(
    answer: bytes, model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, says=answer) as server:
        asked(server)
        with pytest.raises(
            ModelUnavailable, match=r"^someone/small.*(does not answer as a hub does|offers no safetensors)"
        ):
            hub.download(REF)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_without_end_ends_where_the_hub_said(
    name: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, endless=name) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=r"other bytes than the hub says|more bytes than it listed"):
            hub.download(REF)
    here = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file() and not file.is_symlink())
    assert here < 2 * weights_of(model) + 3_000_000
    with LoopbackHub({REF: model}) as server:
        asked(server)
        assert hub.download(REF) == cached_folder(REF)


def test_the_weights_and_the_other_files_are_of_one_commit(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    later: list[str] = []

    def newer(info: dict[str, object]) -> None:
        later.append("asked")
        if len(later) > 1:
            info["sha"] = "b" * 40

    with LoopbackHub({REF: model}, lie=newer) as server:
        asked(server)
        folder = hub.download(REF)
    assert folder.name == COMMIT
    assert (cache_folder(REF) / "refs" / "main").read_text() == COMMIT

import json
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub import errors as hub
from huggingface_hub.utils._validators import validate_repo_id

from conductor_core.inference import source
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.hub import download
from tests.support.tiny_models import random_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return random_model(tmp_path / "model")


def test_reads_parameters_and_size_without_loading(model: Path) -> None:
    files = source.inspect_folder(model)
    # Tied embeddings 384 x 32, two layers: attention 32 x (32 + 16 + 16) + 64, 32 x 32, FFN 3 x 32 x 64, norms.
    vocabulary = files.config["vocab_size"]
    layer = 32 * 64 + 64 + 32 * 32 + 3 * 32 * 64 + 2 * 32
    assert files.parameters == vocabulary * 32 + 2 * layer + 32
    assert files.size_bytes >= files.parameters * 4


def test_refuses_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no config\.json"):
        source.inspect_folder(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_refuses_a_config_that_is_no_object(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    with pytest.raises(ModelUnavailable, match=r"config\.json"):
        source.inspect_folder(model)


def test_refuses_pickled_weights(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match="pickled weights"):
        source.inspect_folder(model)


def test_says_that_weights_are_missing(model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match="weights are missing"):
        source.inspect_folder(model)


@pytest.mark.parametrize(
    ("ref", "is_one"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", True),
        ("a/b", True),
        ("a_b/_c.d-e", True),
        ("a--b/c", False),
        ("a/b--c", False),
        ("a/..", False),
        ("a/b..c", False),
        ("a-/b", False),
        ("a/-b", False),
        ("a/b.", False),
        ("a/b.git", False),
        ("a/b\n", False),
        (f"a/{'b' * 97}", False),
    ],
)
def test_hub_ids_are_those_that_the_library_takes(ref: str, is_one: bool) -> None:
    assert bool(source.HUB_ID.fullmatch(ref)) == is_one
    if is_one:
        validate_repo_id(ref)


LENGTH_2 = b"\x02" + b"\0" * 7


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, LENGTH_2 + b"{", LENGTH_2 + b"[]", LENGTH_2 + b"\xff\xff"])
def test_refuses_broken_safetensors(model: Path, content: bytes) -> None:
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelUnavailable, match="not a whole safetensors file"):
        source.inspect_folder(model)


def test_refuses_a_cut_off_download(model: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1])
    with pytest.raises(ModelUnavailable, match="bytes instead of"):
        source.inspect_folder(model)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": {"a": "other.safetensors"}}'])
def test_refuses_a_model_of_which_files_are_missing(model: Path, index: str) -> None:
    (model / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelUnavailable, match="lacks some of the files"):
        source.inspect_folder(model)


@pytest.mark.parametrize("name", ["weights.bin", "../other.safetensors", "part/model.safetensors", ".safetensors", 7])
def test_refuses_an_index_that_names_anything_but_safetensors_beside_it(model: Path, name: object) -> None:
    (model / "weights.bin").write_bytes(b"a pickle")
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model.safetensors", "b": name}})
    )
    with pytest.raises(ModelUnavailable, match=r"index\.json names .*: weights are read from \*\.safetensors files"):
        source.inspect_folder(model)


def test_weights_in_another_form_beside_those_that_are_loaded_do_not_count(model: Path) -> None:
    alone = source.inspect_folder(model)
    (model / "consolidated.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    assert source.inspect_folder(model) == alone
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match="the weights are missing"):
        source.inspect_folder(model)


def test_refuses_weights_that_the_configuration_names(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"transformers_weights": "weights.bin"}))
    with pytest.raises(ModelUnavailable, match="transformers_weights"):
        source.inspect_folder(model)


def test_refuses_what_is_no_language_model(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(ModelUnavailable, match="BertForMaskedLM"):
        source.inspect_folder(model)


def test_refuses_a_model_without_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    (model / "tokenizer_config.json").unlink()
    with pytest.raises(ModelUnavailable, match="no tokenizer"):
        source.inspect_folder(model)


def test_a_name_that_can_be_no_model_is_refused_at_once() -> None:
    with pytest.raises(ModelUnavailable, match="neither a folder nor a hub id"):
        source.model_files("no such thing")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (hub.OfflineModeIsEnabled("Cannot reach https://..."), "HF_HUB_OFFLINE forbids downloading it: unset it, or"),
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "hub https://.* cannot be reached: connect this"),
        (
            httpx2.ReadTimeout("The read operation timed out"),
            "cannot be reached: .* fetch the model elsewhere",
        ),
        (hub.LocalEntryNotFoundError("An error happened\nwhile"), "cannot be reached"),
        (OSError(28, "No space left on device"), "the disk of .* is full: free some space and continue$"),
        (OSError("Consistency check failed\nplease retry"), "could not be downloaded: Consistency check failed$"),
    ],
)
def test_a_failed_download_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception, says: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(ModelUnavailable, match=f"^someone/some-model is not on this machine and .*{says}") as caught:
        download("someone/some-model")
    assert "Errno" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_here_is_not_downloaded_behind_anyones_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("the hub was asked"))
    with pytest.raises(ModelUnavailable, match="`conductor models pull someone/some-model` downloads it"):
        source.model_files("someone/some-model")


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("---\nlicense: mit\n---\n", "mit"),
        ("---\ntags: [a]\nlicense: 'apache-2.0'\r\n---", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: some-licence\n---", "some-licence"),
        ("---\nlicense: <b>bold</b>\n---", ""),
        (f"---\nlicense: {'a' * 61}\n---", ""),
        ("license: mit", ""),
        ("---\n---\nlicense: mit", ""),
        ("", ""),
    ],
)
def test_the_licence_is_what_the_header_of_the_readme_names(tmp_path: Path, text: str, licence: str) -> None:
    (tmp_path / "README.md").write_bytes(text.encode() + b"\xff")
    assert source.licence_of(tmp_path) == licence
    assert source.licence_of(tmp_path / "none") == ""


def _download_into(cache: Path, hub_id: str) -> Path:
    snapshot = cache / f"models--{hub_id.replace('/', '--')}" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    return random_model(snapshot)


def test_finds_what_was_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = _download_into(tmp_path, "someone/some-model")
    assert source.cached_folder("someone/some-model") == snapshot
    assert source.cached_hub_ids() == ["someone/some-model"]
    assert source.model_files("someone/some-model").folder == snapshot


def test_a_half_downloaded_model_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = _download_into(tmp_path, "someone/some-model")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert source.cached_folder("someone/some-model") is None

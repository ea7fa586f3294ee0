import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import PlanRequest, WorkerSpec
from conductor_core.conductors.catalogue import TINY_FOLDER, list_conductors, open_conductor
from conductor_core.errors import ConductorUnavailable, UnknownConductor
from conductor_core.inference import hardware
from conductor_core.settings import Settings
from tests.support.tiny_models import random_model

GIB = 2**30


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("nothing-like-this", "hub id"),
        ("", "hub id"),
        ("a/b/c", "hub id"),
        ("http://127.0.0.1:1/v1", "which model"),
        ("http://127.0.0.1:1/v1#", "which model"),
        ("ftp://host/v1#m", "not an http address"),
        ("http://#m", "not an http address"),
        ("http://host:99999/v1#m", "not an address"),
        ("http://me:secret@host/v1#m", "CONDUCTOR_API_KEY"),
        ("http://host/sk-secret-0123456789/v1#m", "holds a key.*CONDUCTOR_API_KEY"),
        ("http://host/some-secret-of-mine/v1#m", "holds a key.*CONDUCTOR_API_KEY"),
    ],
)
def test_a_name_that_means_nothing_is_one_clear_line(ref: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "some-secret-of-mine")
    with pytest.raises(UnknownConductor, match=says) as caught:
        open_conductor(ref, Settings())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("ref", "base_url"),
    [
        ("http://127.0.0.1:11434/v1#qwen2.5:7b", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434#m", "http://127.0.0.1:11434/v1"),
        ("https://host/api/v3/#m", "https://host/api/v3"),
    ],
)
def test_a_server_and_its_model(ref: str, base_url: str) -> None:
    conductor = open_conductor(ref, Settings())
    assert conductor.info.kind == "remote"
    assert conductor.info.name == ref
    assert conductor.info.model == ref.partition("#")[2]
    assert conductor._base_url == base_url  # type: ignore[attr-defined]


def test_a_folder_that_is_no_model_is_refused_when_opened(tmp_path: Path) -> None:
    with pytest.raises(UnknownConductor, match=r"no config\.json"):
        open_conductor(str(tmp_path), Settings())


async def test_a_hub_model_is_fetched_only_when_it_writes() -> None:
    conductor = open_conductor("someone/some-model", Settings())
    agent = WorkerSpec(name="a", provider="rehearsal", model="m")
    with pytest.raises(ConductorUnavailable, match="is not on this machine: the Models page or `conductor models pull"):
        _ = [piece async for piece in conductor.write(PlanRequest(task="t", agents=(agent,)))]


def test_lists_what_could_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 9 * GIB)
    options = {option.ref: option for option in list_conductors(Settings())}
    big, middle = options["Qwen/Qwen2.5-7B-Instruct"], options["di-zhang-fdu/openfugu-conductor-3b"]
    assert (big.runnable, big.downloaded) == (False, False)
    assert "9.7 GB of RAM" in big.reason
    assert (middle.runnable, middle.downloaded) == (True, False)
    assert middle.reason == (
        "di-zhang-fdu/openfugu-conductor-3b is not on this machine: the Models page or `conductor models pull "
        "di-zhang-fdu/openfugu-conductor-3b` downloads it (6.4 GB)."
    )
    assert (big.licence, middle.licence, options["tiny"].licence) == ("apache-2.0", "llama3.2", "MIT")
    assert next(iter(options)) == "tiny"


def test_lists_downloaded_models_and_the_folder_of_the_settings(tmp_path: Path) -> None:
    for name in ("models--Qwen--Qwen2.5-0.5B-Instruct", "models--someone--some-model"):
        snapshot = tmp_path / "hub" / name / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        random_model(snapshot)
    other = tmp_path / "hub" / "models--someone--no-model" / "snapshots" / "abc"
    other.mkdir(parents=True)
    (other / "config.json").write_text("{}")
    own, copied = random_model(tmp_path / "own"), random_model(tmp_path / "data" / "models" / "copied")
    (copied / "README.md").write_text("---\nlicense: other\nlicense_name: some-licence\n---\nlicense: none\n")
    options = {option.ref: option for option in list_conductors(Settings(conductor=str(own)))}
    assert (options[str(copied)].name, options[str(copied)].licence) == ("copied", "some-licence")
    for ref in ("Qwen/Qwen2.5-0.5B-Instruct", "someone/some-model", str(own), str(copied)):
        assert options[ref].downloaded
        assert options[ref].runnable
        assert options[ref].parameters > 0
    assert "someone/no-model" not in options


TOO_DEEP, TOO_LONG = "[" * 100_000, "9" * 10_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conductor.json", TOO_DEEP),
        ("conductor.json", TOO_LONG),
        ("conductor.json", '{"top_k": ' + "9" * 400 + "}"),
        ("conductor.json", '{"temperature": 1e400}'),
        ("config.json", TOO_DEEP),
        ("config.json", TOO_LONG),
    ],
)
def test_a_folder_with_an_unreadable_file_is_refused_in_one_line(name: str, text: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY_FOLDER, folder)
    (folder / name).write_text(text)
    with pytest.raises(UnknownConductor) as caught:
        open_conductor(str(folder), Settings())
    assert str(folder / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500

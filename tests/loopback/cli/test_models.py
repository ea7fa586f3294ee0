"""``models``: list, pull, remove and time, against a hub on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import WorkerSpec
from conductor_core.cli.models import lines
from conductor_core.conductors.catalogue import listed_option, open_conductor
from conductor_core.engine.models import cancel, machine_model, machine_models
from conductor_core.inference import hardware, small_base
from conductor_core.inference import model as inference_model
from conductor_core.inference.downloads import Downloads
from conductor_core.inference.shared import hold
from conductor_core.inference.source import cached_folder
from conductor_core.lab.evaluation.runner import model_digest
from conductor_core.settings import Settings
from tests.support.command_line import CommandLine
from tests.support.eventually import eventually
from tests.support.gguf_models import write_model
from tests.support.hub import LoopbackHub
from tests.support.package_index import Index
from tests.support.tiny_models import random_model

REF = "someone/small"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = random_model(tmp_path_factory.mktemp("model"))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return folder


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CONDUCTOR_SERVER_PORTS", "")
    with LoopbackHub({REF: model}) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield server


def test_a_model_is_pulled_listed_timed_and_removed(
    cli: CommandLine, hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = cli("models", "pull", REF)
    assert (pulled.code, pulled.out) == (0, f"{REF} is on this machine, in {cached_folder(REF)}\n")
    assert pulled.err.splitlines()[-1].startswith(f"downloading {REF}: ")
    again = cli("models", "pull", REF, "--json", "-q")
    assert (again.document["was_here"], again.err) == (True, "")
    assert set(again.document) == {"ref", "folder", "size_bytes", "was_here", "duration_ms"}
    monkeypatch.setattr(inference_model, "_timed", lambda *_: (2.56, 0.5))
    timed = cli("models", "time", REF, "--json", "-q").document
    assert timed == {
        "ref": REF, "read_tokens_per_s": 100.0, "write_tokens_per_s": 2.0, "plan_s": 75.6, "first_plan_s": 89.04,
        "precision": "float32",
    }  # fmt: skip
    assert "A plan takes about 76 s here, the first one about 89 s" in cli("models", "time", REF).out
    listed = cli("models", "list", "--json").document
    assert set(listed["room"]) == {"folder", "free_bytes"}
    rows = {row["ref"]: row for row in listed["models"]}
    assert rows[REF]["here"]
    assert (rows[REF]["licence"], rows[REF]["where"]) == ("mit", "hub")
    assert rows[REF]["pace"]["plan_s"] == 75.6
    assert not rows["Qwen/Qwen2.5-7B-Instruct"]["here"]
    needed = rows["Qwen/Qwen2.5-7B-Instruct"]["memory"]["needed"]
    assert len(needed) == 1
    assert "about 76 s (first about 89 s)" in cli("models", "list").out
    assert "give --yes" in cli("models", "remove", REF).error
    folder = cached_folder(REF)
    assert folder is not None
    mark = hold(folder)
    assert mark is not None
    refused = cli("models", "remove", REF, "--yes")
    assert (refused.code, "has someone/small in memory" in refused.error) == (1, True)
    mark.close()
    removed = cli("models", "remove", REF, "--yes", "--json").document
    assert removed["freed_bytes"] > 0
    assert cached_folder(REF) is None
    assert cli("models", "remove", REF, "--yes").code == 2


def test_the_list_names_each_memory_that_a_model_could_have(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny one runs on the processor where larger ones have a graphics card."""
    monkeypatch.setenv("CONDUCTOR_SERVER_PORTS", "")
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 64 * 10**9)
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)
    assert "\nMemory: 64.0 GB of RAM. Downloads" in cli("models", "list").out
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: hardware.Memory("cuda", 80 * 10**9, "NVIDIA Card"))
    assert "\nMemory: 64.0 GB of RAM, 80.0 GB of NVIDIA Card. Downloads" in cli("models", "list").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pull", "tiny"], 2, "tiny comes with the program: only a model of the hub's cache is downloaded"),
        (["remove", "tiny", "--yes"], 2, "tiny comes with the program: only a model of the hub's cache can be"),
        (["pull", "http://127.0.0.1:9/v1#m"], 2, "m belongs to the server http://127.0.0.1:9/v1"),
        (["time", "http://127.0.0.1:9/v1#m"], 2, "m runs on the server http://127.0.0.1:9/v1"),
        (["time", "someone/unknown"], 2, "its architecture is known once it is downloaded: conductor models pull"),
        (["pull", "no such model"], 2, "no Conductor 'no such model'"),
        (["pull", "nobody/nothing"], 1, "the hub has no public model 'nobody/nothing'"),
        (["remove", "nobody/nothing", "--yes"], 2, "the hub's cache has nothing of nobody/nothing"),
        (["pull"], 2, "Missing argument 'REF'"),
        (["nonsense"], 2, "No such command 'nonsense'"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_what_cannot_be_is_one_line(
    cli: CommandLine, hub: LoopbackHub, arguments: list[str], code: int, says: str
) -> None:
    outcome = cli("models", *arguments, "-q") if arguments[0] in ("pull", "time") else cli("models", *arguments)
    assert (outcome.code, says in outcome.error) == (code, True), outcome.err


def test_a_run_with_a_model_that_is_not_here_is_refused_and_downloads_nothing(
    cli: CommandLine, hub: LoopbackHub, tmp_path: Path
) -> None:
    outcome = cli("run", "Two things.", "--conductor", REF, "--db", tmp_path / "runs.sqlite3")
    assert outcome.code == 2
    assert outcome.error == (
        f"{REF} is not on this machine: the Models page or `conductor models pull {REF}` downloads it"
    )
    assert hub.asked == []
    assert not (tmp_path / "runs.sqlite3").exists()


def test_a_pull_that_was_stopped_goes_on_where_it_was(cli: CommandLine, hub: LoopbackHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 100_000
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    environment["HF_HUB_CACHE"] = str(tmp_path / "cache")
    command = [sys.executable, "-m", "conductor_core", "models", "pull", REF]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 60
        while sum(part.stat().st_size for part in tmp_path.rglob("*.part")) <= 8192:
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("stopped: ")
    assert err.splitlines()[-1].endswith("are here; run the same command to continue")
    rows = {row["ref"]: row for row in cli("models", "list", "--json").document["models"]}
    assert (rows[REF]["state"], rows[REF]["here_bytes"] > 8192) == ("paused", True)
    hub.bytes_per_s = 0
    assert cli("models", "pull", REF, "--json", "-q").document["was_here"] is False
    first, second = hub.ranges()
    assert first == ""
    assert int(second.removeprefix("bytes=").removesuffix("-")) > 8192


def test_a_model_in_the_data_folder_is_named_as_it_is_listed(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONDUCTOR_SERVER_PORTS", "")
    settings = Settings()
    folder = random_model(settings.models_folder / "copied")
    (listed,) = (each for each in cli("models", "list", "--json").document["models"] if each["name"] == "copied")
    for ref in (listed["name"], listed["ref"], str(folder)):
        assert open_conductor(ref, settings).info.kind == "local"
        assert listed_option(ref, settings).downloaded
        assert machine_model(ref, settings).where == "folder"
        assert model_digest(ref, settings.models_folder) == model_digest(str(folder), settings.models_folder)
        assert cli("plan", "Two things.", "--conductor", ref, "--db", tmp_path / "runs.sqlite3").code != 2
    assert f"{folder} is a folder of yours" in cli("models", "remove", "copied", "--yes").error


def test_the_folder_of_a_downloaded_model_names_it_too(tmp_path: Path) -> None:
    random_model(tmp_path / "models--owner--name" / "snapshots" / "a1")
    assert listed_option(str(tmp_path / "models--owner--name"), Settings()).model.endswith("snapshots/a1")


def test_the_list_names_a_servers_model_as_a_conductor_is_named() -> None:
    spec = WorkerSpec(name="m", provider="openai", model="qwen", base_url="http://127.0.0.1:9/v1")
    served = [each for each in machine_models(Settings(), [spec]) if each.where == "server"]
    assert "\nhttp://127.0.0.1:9/v1#qwen " in "\n".join(lines(served, Settings(), Path("b"), 0))


def test_a_gguf_file_of_the_hub_is_pulled_by_its_tag(cli: CommandLine, hub: LoopbackHub, tmp_path: Path) -> None:
    folder = tmp_path / "gguf"
    q4, _ = (write_model(folder / f"tiny-{tag}.gguf", name=tag) for tag in ("Q4_K_M", "Q8_0"))
    write_model(folder / "mmproj-tiny-f16.gguf")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    hub.models["other/tiny-GGUF"] = folder
    which = cli("models", "pull", "other/tiny-GGUF")
    assert "which GGUF file of other/tiny-GGUF? Write other/tiny-GGUF:TAG with one of Q4_K_M, Q8_0" in which.error
    ref = "other/tiny-GGUF:q4_k_m"
    pulled = cli("models", "pull", ref, "--json", "-q").document
    assert Path(pulled["folder"]).read_bytes() == q4.read_bytes()
    assert not pulled["was_here"]
    assert cli("models", "pull", ref, "--json", "-q").document["was_here"]
    listed = {each["ref"]: each for each in cli("models", "list", "--json").document["models"]}
    found = listed["hub: other/tiny-GGUF:Q4_K_M"]
    assert (found["where"], found["here"], found["quantisation"], found["pace_is_estimate"]) == (
        "file",
        True,
        "Q8_0",
        True,
    )
    assert machine_model(ref, Settings()).here
    other = machine_model("other/tiny-GGUF:Q8_0", Settings())
    assert (other.where, other.download.state) == ("hub", "absent")
    assert "no public model" in cli("models", "pull", "someone/none:Q4_K_M").error
    assert "which GGUF file" in cli("models", "pull", "other/tiny-GGUF:Q2_K").error
    cancel(other)
    assert Path(pulled["folder"]).read_bytes() == q4.read_bytes(), "what is here of the repository stays"
    assert cli("models", "pull", "other/tiny-GGUF:Q8_0", "-q").code == 0
    removed = cli("models", "remove", ref, "--yes", "--json").document
    assert removed["freed_bytes"] == q4.stat().st_size
    assert not Path(pulled["folder"]).exists()
    assert machine_model("other/tiny-GGUF:Q8_0", Settings()).here, "the other file of the repository stays"
    own = write_model(Settings().models_folder / "own.gguf")
    refused = cli("models", "remove", "models: own", "--yes")
    assert (refused.code, own.exists()) == (2, True)


def test_the_base_of_small_is_pulled_listed_and_fetched_in_the_background(
    cli: CommandLine, package_index: Index, base_content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_SERVER_PORTS", "")
    path = Settings().models_folder / small_base.NAME
    assert package_index.url
    listed = {each["ref"]: each for each in cli("models", "list", "--json").document["models"]}
    assert (listed[str(path)]["where"], listed[str(path)]["here"]) == ("index", False)
    pulled = cli("models", "pull", "small", "-q")
    assert (pulled.code, pulled.out) == (0, f"small is on this machine, in {path}\n")
    here = {each["name"]: each for each in cli("models", "list", "--json").document["models"]}
    assert here[f"models: {path.stem}"]["here"]
    assert str(path) not in {each["ref"] for each in here.values()}
    path.unlink()
    downloads = Downloads()
    downloads.begin([str(path)])
    eventually(lambda: downloads.state(str(path)).state == "here")
    assert path.read_bytes() == base_content

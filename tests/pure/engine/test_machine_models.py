"""Which Conductors a machine has or could have, in which order, and which of them can be timed or is away."""

import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors import catalogue
from conductor_core.conductors.catalogue import TINY_FOLDER, ConductorOption
from conductor_core.engine.models import (
    FoundServer,
    Pace,
    check_all,
    check_conductor,
    check_worker,
    conductors_file_text,
    discover_local_servers,
    find_servers,
    is_away,
    larger_conductors,
    list_conductors,
    machine_model,
    machine_models,
    parameters_by_name,
    pool_file_text,
    ready_workers,
    time_now,
)
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.inference import hardware, llama, model
from conductor_core.inference.generation import RecentPace
from conductor_core.privacy import masking
from conductor_core.settings import Settings
from tests.support.gguf_models import write_model
from tests.support.model_files import parse_conductors, parse_pool

GIB = 2**30
SERVER = "http://127.0.0.1:9/v1"
SMALL, LARGE = "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """6 GiB of memory, no graphics card, nothing of the hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 6 * GIB)


def test_the_shipped_one_is_first_then_what_is_here_and_of_that_the_servers_models_first() -> None:
    served = WorkerSpec(name="mine", provider="openai", model="qwen2.5:7b", base_url=SERVER)
    own = str(TINY_FOLDER)
    found = machine_models(Settings(conductor=own), [served])
    assert [each.ref for each in found[:3]] == ["tiny", f"{SERVER}#qwen2.5:7b", own]
    assert [each.here for each in found[:4]] == [True, True, True, False]
    assert [each.where for each in found[3:]] == ["index", "hub", "hub", "hub", "hub", "hub"]
    on_server = found[1]
    assert (on_server.where, on_server.model, on_server.server) == ("server", "qwen2.5:7b", SERVER)
    assert (on_server.parameters, on_server.memory, on_server.fits) == (7_000_000_000, None, True)


def test_a_model_of_the_hub_says_what_it_needs_before_it_is_here() -> None:
    small, large = machine_model(f" {SMALL}\n", Settings()), machine_model(LARGE, Settings())
    assert (small.ref, small.model, small.licence) == (SMALL, SMALL, "apache-2.0")
    assert (small.size_bytes, small.download.state, small.can_be_timed) == (2 * 1_543_714_304, "absent", True)
    assert small.memory is not None
    assert (small.memory.device, small.memory.total_bytes) == ("cpu", 6 * GIB)
    assert (small.fits, large.needs[0].fits) == (True, False)


def test_the_models_of_files_are_where_their_files_say() -> None:
    tiny, own = machine_model("tiny", Settings()), machine_model(str(TINY_FOLDER), Settings())
    assert (tiny.where, tiny.model) == ("shipped", "tiny")
    assert (own.where, own.model, own.parameters) == ("folder", str(TINY_FOLDER), tiny.parameters)
    assert (tiny.can_be_timed, tiny.pace, tiny.timing, tiny.timing_fault) == (True, None, False, "")
    assert tiny.size_bytes > tiny.parameters > 1_000_000


@pytest.mark.parametrize(
    ("ref", "away"),
    [
        (SMALL, True),
        ("someone/unknown", True),
        (LARGE, False),  # it could not run if it were here
        ("tiny", False),
        (str(TINY_FOLDER), False),
        (f"{SERVER}#m", False),
        ("no such name", False),
    ],
)
def test_only_what_would_have_to_be_downloaded_is_away(ref: str, away: bool) -> None:
    assert is_away(f" {ref} ", Settings()) == away


def test_a_pace_is_measured_and_kept_for_the_next_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "trial", lambda kind, *_: (0.5, 0.25, "float32") if kind == "qwen2" else None)
    told = time_now(machine_model(SMALL, Settings()), Settings(), lambda _done, _all: None)
    assert told == Pace(0.5, 0.25, "float32")
    assert machine_model(SMALL, Settings()).pace == told


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        (
            "someone/unknown",
            "someone/unknown cannot be timed: its architecture is known once it is downloaded: "
            "conductor models pull someone/unknown",
        ),
        (f"{SERVER}#m", f"m runs on the server {SERVER}: its pace is the server's"),
    ],
)
def test_what_cannot_be_timed_says_why_and_what_to_do(ref: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        time_now(machine_model(ref, Settings()), Settings(), lambda _done, _all: None)
    assert str(caught.value) == says


def test_a_folder_that_is_no_model_has_its_fault_and_cannot_be_timed(tmp_path: Path) -> None:
    model = machine_model(str(tmp_path), Settings())
    assert (model.here, model.can_be_timed) == (False, False)
    assert "has no config.json" in model.fault
    with pytest.raises(BadInput, match=r"cannot be timed: .* has no config\.json"):
        time_now(model, Settings(), lambda _done, _all: None)


def test_the_pace_of_a_file_is_an_estimate_until_it_has_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "_servers", {})
    file = write_model(Settings().models_folder / "mine.gguf")
    before = machine_model("models: mine", Settings())
    assert before.is_estimate
    assert before.pace is not None
    llama.shared_llama(file).pace = RecentPace(read_per_s=50, written_per_s=10)
    now = machine_model("models: mine", Settings())
    assert now.pace is not None
    assert not now.is_estimate
    assert now.pace.plan_s == pytest.approx(60 / 50 + 150 / 10)


def test_a_file_that_is_larger_than_the_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(Settings().models_folder / "mine.gguf")
    monkeypatch.setattr(catalogue, "ram_bytes", lambda: 50 * 10**6)
    monkeypatch.setattr(catalogue, "free_ram_bytes", lambda: 40 * 10**6)
    large = machine_model("models: mine", Settings())
    assert (large.here, large.fits) == (False, False)
    assert large.fault.startswith("Needs 0.1 GB, this machine has 0.1 GB of RAM")
    assert machine_models(Settings())[-1].name == "models: mine", "what cannot be used is last"


# Which models of a machine are proposed as a Conductor in place of the shipped one.


def option(ref: str, parameters: int, *, downloaded: bool = True, runnable: bool = True) -> ConductorOption:
    return ConductorOption(
        ref=ref,
        name=ref,
        parameters=parameters,
        size_bytes=1,
        memory_needed_bytes=1,
        memory_there_bytes=1,
        memory="RAM",
        downloaded=downloaded,
        runnable=runnable,
        reason="",
    )


def served(model: str) -> WorkerSpec:
    return WorkerSpec(
        name=model,
        provider="openai",
        model=model,
        description=f"{model} on this machine, served by Ollama",
        base_url="http://127.0.0.1:11434/v1",
    )


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen2.5:7b", 7),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.5),
        ("llama3.2:3b-instruct-q4_K_M", 3),
        ("mixtral-8x7b", 7),
        ("qwen2.5-coder:0.5b", 0.5),
        ("gemma-3-27b-it", 27),
        ("gpt-4.1-mini", 0),
        ("phi3:latest", 0),
        ("bert-base", 0),
    ],
)
def test_the_size_is_read_from_the_name(name: str, billions: float) -> None:
    assert parameters_by_name(name) == int(billions * 1e9)


def test_servers_come_first_and_the_largest_of_each_kind() -> None:
    options = [option("tiny", 3_300_000), option("a/3b", 3 * 10**9), option("a/7b", 7 * 10**9)]
    found = larger_conductors(options, [served("small:1b"), served("big:8b"), served("unknown:latest")])
    assert [each.ref for each in found] == [
        "http://127.0.0.1:11434/v1#big:8b",
        "http://127.0.0.1:11434/v1#small:1b",
        "a/7b",
        "a/3b",
    ]
    assert (found[0].name, found[0].where) == ("big:8b", "Ollama")


def test_what_would_have_to_be_downloaded_or_does_not_run_is_not_proposed() -> None:
    options = [
        option("a/absent", 7 * 10**9, downloaded=False),
        option("a/too-large", 70 * 10**9, runnable=False),
        option("a/worker", 494_032_768),
        option("tiny", 5 * 10**9),
    ]
    assert larger_conductors(options, [served("coder:0.5b")]) == ()


FILE = """
[[worker]]
name = "one"
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:9/v1"
usd_per_mtok = { input = 1.25, output = 10.0 }
params = { temperature = 0.2, stop = ["a", "b"] }

[[worker]]
name = "two \\"quoted\\""
provider = "anthropic"
model = "n"
api_key_env = "SOME_KEY"
"""


def test_a_pool_file_made_of_workers_reads_back_as_the_same_workers(tmp_path: Path) -> None:
    original = tmp_path / "original.toml"
    original.write_text(FILE)
    for specs in (read_specs(str(original)), read_specs("paper")):
        copy = tmp_path / "copy.toml"
        copy.write_text(pool_file_text(specs))
        assert read_specs(str(copy)) == specs


def test_parameters_of_any_shape_and_name_are_kept_in_a_pool_file(tmp_path: Path) -> None:
    original = tmp_path / "original.toml"
    original.write_text(
        FILE.replace(
            "params = {", 'params = { "top.p" = 0.5, "größe" = 1, nested = { list = [1, 2, 3], "a b" = "\\u007f" },'
        ),
        encoding="utf-8",
    )
    specs = read_specs(str(original))
    assert specs[0].params["nested"] == {"list": [1, 2, 3], "a b": "\x7f"}
    copy = tmp_path / "copy.toml"
    copy.write_text(pool_file_text(specs), encoding="utf-8")
    assert read_specs(str(copy)) == specs


def test_a_name_in_any_script_is_kept_in_a_pool_file(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    specs = (read_specs("rehearsal")[0].model_copy(update={"name": "größe 算 🦉"}),)
    copy.write_text(pool_file_text(specs), encoding="utf-8")
    assert read_specs(str(copy)) == specs


def test_a_simulated_worker_is_always_healthy() -> None:
    assert check_worker(read_specs("rehearsal")[0], Settings()).ok


def test_a_worker_that_is_not_there_is_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    health = check_worker(read_specs(str(file))[0], Settings())
    assert not health.ok
    assert "one" in health.detail


def test_a_conductor_is_healthy_if_it_could_write() -> None:
    assert check_conductor("tiny", Settings()).ok
    away = check_conductor("http://127.0.0.1:9/v1#m", Settings())
    assert not away.ok
    assert "Conductor http://127.0.0.1:9/v1#m" in away.detail
    with pytest.raises(BadInput, match="no Conductor 'nobody'"):
        check_conductor("nobody", Settings())


def test_all_are_checked_at_once_and_an_unknown_conductor_has_its_fault(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    specs = (read_specs("rehearsal")[0], read_specs(str(file))[0])
    conductors, workers = check_all(["tiny", "nobody"], specs, Settings())
    assert {ref: health.ok for ref, health in conductors.items()} == {"tiny": True, "nobody": False}
    assert "no Conductor 'nobody'" in conductors["nobody"].detail
    assert {name: health.ok for name, health in workers.items()} == {specs[0].name: True, "one": False}


def test_a_key_that_is_sent_to_a_server_is_hidden_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "hunter2-hunter2")
    assert find_servers({"http://127.0.0.1:9/v1": "SOME_KEY"}, Settings(server_ports=())) == ()
    assert masking.known().text("it said hunter2-hunter2") == "it said hu***"


def test_servers_are_looked_for_on_the_ports_of_the_settings() -> None:
    listed = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n{"data": [{"id": "odd"}]}'
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    asked, _ = server.accept()
                    with asked:
                        asked.recv(4096)
                        asked.sendall(listed.replace(b"24", b"25"))

        threading.Thread(target=answer, daemon=True).start()
        [spec] = discover_local_servers(Settings(server_ports=(port,)))
        assert (spec.model, spec.base_url) == ("odd", f"http://127.0.0.1:{port}/v1")
        [found] = find_servers({}, Settings(server_ports=(port,)))
        assert found.title == f"port {port}"
        assert discover_local_servers(Settings(server_ports=())) == ()


def test_none_of_this_loads_torch() -> None:
    asked = "import sys, conductor_core.engine.models, conductor_core.engine.host; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_the_tiny_conductor_is_offered_first() -> None:
    assert list_conductors(Settings())[0].ref == "tiny"


NAMES = [
    "conductor",
    "org/Conductor",
    "model 1",
    "org/step3",
    "-3",
    "tiny",
    "a/ b",
    f"org/{'a' * 59} b",
    "foo#bar",
    "a\\b",
    "foo.toml",
    "/",
    "İ",
    "i̇",
    '"]\\n[[worker]]',
]


@pytest.mark.parametrize("count", [1, 2])
def test_whatever_servers_call_their_models_one_click_makes_a_pool_and_conductors_of_them(count: int) -> None:
    servers = [FoundServer(f"http://127.0.0.1:{port}/v1", "Ollama", tuple(NAMES)) for port in range(1, count + 1)]
    specs = ready_workers(servers)
    assert len(specs) == count * len(NAMES)
    assert parse_pool(pool_file_text(specs)) == (specs, [])
    conductors, faults = parse_conductors(conductors_file_text(specs))
    assert faults == []
    assert [each.model for each in conductors] == [spec.model for spec in specs]

"""Which Conductors a machine has or could have, in which order, and which of them can be timed or is away."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors import catalogue
from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.engine.models import Pace, is_away, machine_model, machine_models, time_now
from conductor_core.errors import BadInput
from conductor_core.inference import hardware, llama, model
from conductor_core.inference.generation import RecentPace
from conductor_core.settings import Settings
from tests.support.gguf_models import write_model

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
    assert (small.ref, small.model, small.hub_id, small.licence) == (SMALL, SMALL, SMALL, "apache-2.0")
    assert (small.size_bytes, small.download.state, small.can_be_timed) == (2 * 1_543_714_304, "absent", True)
    assert small.memory is not None
    assert (small.memory.device, small.memory.total_bytes) == ("cpu", 6 * GIB)
    assert (small.fits, large.needs[0].fits) == (True, False)


def test_the_models_of_files_are_where_their_files_say() -> None:
    tiny, own = machine_model("tiny", Settings()), machine_model(str(TINY_FOLDER), Settings())
    assert (tiny.where, tiny.model, tiny.hub_id) == ("shipped", "tiny", None)
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

"""What is found out before a run: of Conductor and workers at once, at no cost, within a few seconds."""

import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.engine import preflight as module
from conductor_core.engine.pools import read_specs
from conductor_core.engine.preflight import Preflight, preflight
from conductor_core.errors import BadInput
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from tests.support.provider import Call, Hang, Part, Pause, Reply, ScriptedProvider, error

PRICE = Price(input=1, output=2)


class Listing(ScriptedProvider):
    """Lists ``there`` with a context of 1,000 tokens, or gives another reply in the list's place."""

    listing: Reply | None = None

    def _script(self, call: Call) -> Any:
        if not call.path.endswith("/models"):
            return super()._script(call)
        if self.listing is not None:
            return self.listing
        models = [{"id": name, "max_model_len": 1000} for name in ("there", "planner")]
        return Reply([json.dumps({"data": models}).encode()], content_type="application/json")


@pytest.fixture
def server() -> Iterator[Listing]:
    with Listing() as running:
        yield running


def worker(server: ScriptedProvider, name: str = "w", model: str = "there", **fields: Any) -> WorkerSpec:
    known = {"provider": "openai", "base_url": server.url, "usd_per_mtok": PRICE}
    return WorkerSpec(name=name, model=model, **(known | fields))


def look(ref: str | None, *specs: WorkerSpec, limits: Limits | None = None, task: str = "") -> Preflight:
    return preflight(ref, specs, limits or Limits(), Settings(), task)


def test_what_answers_is_told_with_what_was_proven_and_nothing_is_paid(server: Listing) -> None:
    found = look(f"{server.url}#planner", worker(server))
    assert [(part.role, part.name, part.ok) for part in found.parts] == [
        ("conductor", f"{server.url}#planner", True),
        ("worker", "w", True),
    ]
    assert (found.answering, found.failing, found.impossible) == (2, (), None)
    assert server.completions == []


def test_each_fault_is_named(server: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        found = look(
            f"{away}#planner",
            worker(server, "keyless", api_key_env="UNSET_API_KEY"),
            worker(server, "away", base_url=away),
            worker(server, "unknown", model="elsewhere"),
            worker(server, "fine"),
        )
    assert found.answering == 1
    told = {part.name: part.detail for part in found.failing}
    assert "refuses connections" in told[f"{away}#planner"]
    assert told[f"{away}#planner"].startswith("Conductor ")
    assert "UNSET_API_KEY" in told["keyless"]
    assert "refuses connections" in told["away"]
    assert "elsewhere is not among the server's models" in told["unknown"]
    assert found.failing_workers == ("keyless", "away", "unknown")
    assert [part.name for part in found.parts if part.hopeless] == ["keyless"], "a server may yet come up"
    assert (found.some_worker, found.impossible) == (True, None)


def test_all_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN_S", 60.0)
    with ExitStack() as stack:
        servers = [stack.enter_context(Listing()) for _ in range(6)]

        def once_all_are_asked() -> Iterator[Part]:
            while not all(server.calls for server in servers):
                yield Pause(0.01)
            yield json.dumps({"data": [{"id": "there"}]}).encode()

        for server in servers:
            server.listing = Reply(once_all_are_asked(), content_type="application/json")
        found = look(None, *(worker(server, f"w{number}") for number, server in enumerate(servers)))
    assert found.answering == 6


def test_nobody_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN_S", 1.0)
    with Listing() as silent:
        silent.listing = Reply([Hang()])
        found = look(None, *(worker(silent, f"silent {number}") for number in range(6)))
    assert found.answering == 0
    assert all("no answer within 1 s" in part.detail for part in found.failing)


def test_a_conductor_without_its_key_makes_a_run_impossible(
    server: Listing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    (folder / "c.toml").write_text(
        f'[[conductor]]\nname = "mine"\nmodel = "planner"\nbase_url = "{server.url}"\napi_key_env = "UNSET_API_KEY"\n'
    )
    found = look("mine", worker(server))
    assert found.impossible is not None
    assert "UNSET_API_KEY" in found.impossible


def test_a_pool_without_any_key_makes_a_run_impossible(server: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    found = look("tiny", *(worker(server, name, api_key_env="UNSET_API_KEY") for name in ("a", "b")))
    assert found.impossible is not None
    assert found.impossible.startswith("no worker of the pool can answer: ")


def test_a_context_that_is_shorter_than_the_task_is_told(server: Listing) -> None:
    found = look(f"{server.url}#planner", worker(server), task="word " * 1000)
    assert found.answering == 0
    assert found.parts[1].detail == "worker w: the task is about 1,250 tokens, and its context is 1,000"
    assert "Conductor" in found.parts[0].detail


def model_folder(folder: Path, **config: Any) -> Path:
    """A model of this machine whose weights are one number: to look at, and never to be loaded."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], **config}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"max_position_embeddings": 4000},
        {"n_positions": 4000},
        {"max_position_embeddings": 99, "text_config": {"max_position_embeddings": 4000}},
    ],
)
def test_a_model_of_this_machine_tells_its_context_by_its_configuration_alone(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    folder = model_folder(tmp_path / "model", **config)
    spec = WorkerSpec(name="w", provider="local", model=str(folder))
    short = look(str(folder), spec, task="short")
    assert [part.ok for part in short.parts] == [True, True]
    assert short.parts[1].detail == "runs on this machine, loaded when first asked; it reads up to 4,000 tokens"
    between = look(str(folder), spec, task="word " * 2400)
    assert [part.ok for part in between.parts] == [False, True], "the Conductor reads more than the task"
    assert re.search(
        r"Conductor .*: its prompt is about [45],\d+ tokens with this task, and its context is 4,000",
        between.parts[0].detail,
    )
    long = look(str(folder), spec, task="word " * 4000)
    assert long.parts[1].detail == "worker w: the task is about 5,000 tokens, and its context is 4,000"


def test_a_model_that_tells_no_context_is_taken_at_its_word(tmp_path: Path) -> None:
    configs: list[dict[str, Any]] = [{}, {"max_position_embeddings": "many"}, {"max_position_embeddings": True}]
    for number, config in enumerate(configs):
        folder = model_folder(tmp_path / str(number), **config)
        found = look(str(folder), WorkerSpec(name="w", provider="local", model=str(folder)), task="word " * 9000)
        assert [part.ok for part in found.parts] == [True, True]


def test_the_shipped_conductor_takes_a_task_of_any_length() -> None:
    assert look("tiny", task="word " * 100_000).parts[0].ok, "it cuts what it reads"


def test_a_budget_that_cannot_see_a_part_is_told_once(server: Listing) -> None:
    unpriced = worker(server, "b", usd_per_mtok=None)
    found = look(f"{server.url}#planner", worker(server), unpriced, limits=Limits(max_usd=0.5))
    assert found.budget_warning is not None
    assert found.budget_warning.startswith(
        f"the budget of 0.5 USD cannot see what Conductor {server.url}#planner, b will cost: no price is known"
    )
    assert look("tiny", worker(server), limits=Limits(max_usd=0.5)).budget_warning is None
    assert look(None, unpriced).budget_warning is None, "without a budget nothing is blind"


def test_what_runs_here_is_not_asked_over_a_network() -> None:
    found = look("tiny", read_specs("rehearsal")[0])
    assert (found.answering, [part.latency_ms for part in found.parts]) == (2, [None, None])


def test_a_model_folder_that_cannot_be_used_fails(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = look(str(tmp_path))
    assert not found.parts[0].ok


def test_a_conductor_that_nothing_is_known_of_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no Conductor 'nobody'"):
        look("nobody")


def test_a_server_without_a_list_is_given_the_benefit_of_the_doubt() -> None:
    with Listing() as server:
        server.listing = error(404)
        found = look(None, worker(server))
    assert found.parts[0].ok
    assert "the first step will show" in found.parts[0].detail

"""Local servers are found by their ports; what is no model server is left out."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from conductor_core.settings import Settings
from conductor_core.workers.discovery import FoundServer, discover_local_servers, find_servers, in_words, ready_workers
from conductor_core.workers.pool import open_worker
from tests.support.model_files import parse_pool
from tests.support.provider import Answer, Call, Hang, Part, Pause, Reply, ScriptedProvider


class _Odd(ScriptedProvider):
    """A server whose model list is whatever it is told."""

    def __init__(self, listing: Reply) -> None:
        super().__init__()
        self._listing = listing

    def _script(self, call: Call) -> Reply:
        return self._listing if call.path.endswith("/models") else super()._script(call)


def listing(*models: tuple[str, str]) -> Reply:
    data = [{"id": name, "object": "model", "owned_by": owner} for name, owner in models]
    return Reply([json.dumps({"object": "list", "data": data}).encode()], content_type="application/json")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_models_of_all_servers_become_ready_workers(stack: ExitStack) -> None:
    ollama = stack.enter_context(
        _Odd(listing(("llama3.2:latest", "library"), ("nomic-embed-text", "library"), ("qwen3", "library")))
    )
    other = stack.enter_context(_Odd(listing(("org/qwen3", "vllm"), ("7", "vllm"), ("org/team/phi", "vllm"))))
    found = await discover_local_servers({ollama.port: "first", other.port: "second"}, timeout_s=5)
    assert [(spec.name, spec.model, spec.base_url) for spec in found] == [
        ("llama3.2:latest", "llama3.2:latest", ollama.url),
        ("qwen3", "qwen3", ollama.url),
        ("qwen3 (vLLM)", "org/qwen3", other.url),
        ("7 (vLLM)", "7", other.url),
        ("phi", "org/team/phi", other.url),
    ]
    assert found[0].description == "llama3.2:latest on this machine, served by Ollama"
    other.then(Answer("hello", pieces=1))
    worker = open_worker(found[2], Settings())
    chunks = [chunk async for chunk in worker.answer(())]
    await worker.aclose()
    assert len(chunks) == 2


class _Ollama(_Odd):
    """Its own list beside the OpenAI one."""

    tags: object = {}

    def _script(self, call: Call) -> Reply:
        if call.path.endswith("/api/tags"):
            return Reply([json.dumps(self.tags).encode()], content_type="application/json")
        return super()._script(call)


async def test_models_are_described_by_their_sizes_where_a_server_tells(stack: ExitStack) -> None:
    ollama = stack.enter_context(_Ollama(listing(("qwen2.5:7b", "library"), ("smollm", "library"), ("odd", "library"))))
    ollama.tags = {
        "models": [
            {"name": "qwen2.5:7b", "details": {"parameter_size": "7.6B"}},
            {"name": "smollm", "details": {"parameter_size": "134.52M"}},
            {"name": "odd", "details": {"parameter_size": "many"}},
            {"name": "odd", "details": None},
            "nothing",
        ]
    }
    body = {"data": [{"id": "phi", "owned_by": "llamacpp", "meta": {"n_params": 3_821_079_552}}]}
    llama = stack.enter_context(_Odd(Reply([json.dumps(body).encode()], content_type="application/json")))
    found = await discover_local_servers({ollama.port: "first", llama.port: "second"}, timeout_s=5)
    assert [spec.description for spec in found] == [
        "qwen2.5:7b (7.6 billion parameters) on this machine, served by Ollama",
        "smollm (135 million parameters) on this machine, served by Ollama",
        "odd on this machine, served by Ollama",
        "phi (3.82 billion parameters) on this machine, served by llama.cpp",
    ]


@pytest.mark.parametrize("tags", [None, [], {"models": None}, {"models": [{"details": {"parameter_size": "1e9B"}}]}])
async def test_odd_lists_of_sizes_leave_the_models_without(stack: ExitStack, tags: object) -> None:
    ollama = stack.enter_context(_Ollama(listing(("qwen", "library"))))
    ollama.tags = tags
    (spec,) = await discover_local_servers({ollama.port: "first"}, timeout_s=5)
    assert spec.description == "qwen on this machine, served by Ollama"


async def test_what_is_no_model_server_is_left_out(stack: ExitStack) -> None:
    odd = [
        Reply([b"<html>hello</html>"], content_type="text/html"),
        Reply([b"[1, 2]"], content_type="application/json"),
        Reply([b'{"data": {"a": 1}}'], content_type="application/json"),
        Reply([b'{"data": [{"id": 5}, "x", {"id": "a\\u001bb"}]}'], content_type="application/json"),
        Reply([b"no"], status=404),
        Reply([b"no"], status=401),
        Reply([b"x" * 2_000_000]),
        Reply([Hang()]),
    ]
    servers = [stack.enter_context(_Odd(reply)) for reply in odd]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = {server.port: "s" for server in servers} | {free.getsockname()[1]: "dead"}
        assert await discover_local_servers(ports, timeout_s=0.5) == ()


async def test_a_list_that_comes_drop_by_drop_is_not_waited_for(stack: ExitStack) -> None:
    whole = b"".join(part for part in listing(("qwen3", "library")).parts if isinstance(part, bytes))
    drops: list[Part] = [Pause(0.1), b" "] * 20
    slow = stack.enter_context(_Odd(Reply([*drops, whole], content_type="application/json")))
    assert await discover_local_servers({slow.port: "slow"}, timeout_s=0.5) == ()


async def test_no_proxy_is_asked_for_this_machines_own_ports(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stack.enter_context(ScriptedProvider(["m"]))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert len(await discover_local_servers({server.port: "s"}, timeout_s=5)) == 1


async def test_found_workers_can_be_written_into_a_pool_file(stack: ExitStack) -> None:
    server = stack.enter_context(ScriptedProvider(["some/model", "x" * 150, "models/ü"]))
    for spec in await discover_local_servers({server.port: "s"}, timeout_s=5):
        fields = {key: getattr(spec, key) for key in ("name", "provider", "model", "base_url")}
        text = "[[worker]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())
        assert parse_pool(text)[1] == []


async def test_a_server_that_wants_a_key_is_found_and_tells_its_models_with_it(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Locked(_Odd):
        def _script(self, call: Call) -> Reply:
            if call.headers.get("authorization") == "Bearer sesame-5f0c9a7e1d":
                return self._listing
            return Reply([b'{"error": "no key"}'], status=401, content_type="application/json")

    server = stack.enter_context(Locked(listing(("gpt-x", "litellm"))))
    (found,) = await find_servers({server.port: "LiteLLM"}, timeout_s=5)
    assert found == FoundServer(server.url, "LiteLLM", needs_key=True, guessed=True)
    assert await discover_local_servers({server.port: "LiteLLM"}, timeout_s=5) == ()
    monkeypatch.setenv("LOCAL_API_KEY", "sesame-5f0c9a7e1d")
    (opened,) = await find_servers({server.port: "LiteLLM"}, timeout_s=5, key_variables={server.url: "LOCAL_API_KEY"})
    (spec,) = ready_workers([opened])
    assert (spec.model, spec.api_key_env) == ("gpt-x", "LOCAL_API_KEY")


@pytest.mark.parametrize(
    ("parameters", "words"), [(7_615_616_512, "7.62 billion"), (10**9, "1 billion"), (494_000_000, "494 million")]
)
def test_a_size_is_told_in_words(parameters: int, words: str) -> None:
    assert in_words(parameters) == words


def test_a_found_model_is_asked_two_questions_at_once_and_given_time() -> None:
    [worker] = ready_workers([FoundServer("http://127.0.0.1:11434/v1", "Ollama", ("qwen2.5:7b",))])
    assert (worker.max_concurrency, worker.timeout_s) == (2, 300)

"""Whether a worker would answer, and which servers of this machine have models."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.engine.pools import open_worker as open_any_worker
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.settings import Settings
from conductor_core.workers import discovery
from conductor_core.workers.discovery import FoundServer, Health, check_health, find_servers, in_words, ready_workers
from conductor_core.workers.pool import open_worker
from tests.support.model_files import parse_pool
from tests.support.provider import Answer, Call, Hang, Part, Pause, Reply, ScriptedProvider, error, hang_after


class _Listing(ScriptedProvider):
    """Its list of models can misbehave too."""

    listing: Reply | None = None

    def _script(self, call: Call) -> Reply:
        if "/models" in call.path and self.listing is not None:
            return self.listing
        return super()._script(call)


@pytest.fixture
def provider() -> Iterator[_Listing]:
    with _Listing(["alpha", "beta"]) as provider:
        yield provider


async def discovered(ports: Mapping[int, str], timeout_s: float) -> tuple[WorkerSpec, ...]:
    return ready_workers(await find_servers(ports, timeout_s=timeout_s))


async def check(spec: WorkerSpec) -> Health:
    return await check_health(open_worker(spec, Settings()))


async def test_a_healthy_worker_costs_no_completion(provider: _Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "hunter2-hunter2")
    health = await check(provider.spec("alpha", api_key_env="TEST_KEY"))
    assert health.ok
    assert health.latency_ms is not None
    assert health.latency_ms > 0
    assert (health.detail, health.key) == ("reached; it lists the model", "TEST_KEY: present")
    assert provider.completions == []
    assert provider.calls[0].headers["authorization"] == "Bearer hunter2-hunter2"
    assert provider.calls[0].headers["accept-encoding"] == "identity"
    assert provider.calls[0].headers["user-agent"].startswith("conductor-inspector/")


async def test_no_redirect_is_followed(provider: _Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it leads is not the server that the key was given for."""
    monkeypatch.setenv("TEST_KEY", "hunter2-hunter2")
    provider.listing = Reply([], status=307, headers={"location": "/v1/models/elsewhere"})
    health = await check(provider.spec("alpha", api_key_env="TEST_KEY"))
    assert (health.ok, "307" in health.detail, len(provider.calls)) == (False, True, 1)


async def test_a_list_without_an_end_is_left(provider: _Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_MOST_BYTES", 1000)
    provider.listing = Reply([b'{"data": [', *[b'{"id": "alpha"}, '] * 1000, b"]}"], content_type="application/json")
    health = await check(provider.spec("alpha"))
    assert (health.ok, "is not a model server; check base_url" in health.detail) == (False, True)


async def test_anthropic_is_asked_for_the_one_model(provider: _Listing) -> None:
    provider.listing = Reply([b'{"id": "alpha"}'], content_type="application/json")
    assert (await check(provider.spec("alpha", provider="anthropic"))).detail == "reached; it knows the model"
    assert provider.calls[0].path == "/v1/models/alpha"
    provider.listing = error(404)
    health = await check(provider.spec("alpha", provider="anthropic"))
    assert (health.ok, "no such model" in health.detail) == (False, True)


@pytest.mark.parametrize(
    ("listing", "ok", "told"),
    [
        (error(401), False, "refused the key with 401"),
        (error(500), False, "failed with 500"),
        (error(404), True, "it does not list its models, so the first step will show"),
        (Reply([b"<html></html>"], content_type="text/html"), False, "is not a model server; check base_url"),
        (Reply([b'{"data": []}'], content_type="application/json"), False, "not among the server's models (none)"),
        (hang_after(), False, "no answer within 0.3 s"),
    ],
)
async def test_what_can_be_wrong(provider: _Listing, listing: Reply, ok: bool, told: str) -> None:
    provider.listing = listing
    # The short limit is for the server that hangs alone: on a busy machine the others may take longer.
    health = await check(provider.spec(timeout_s=0.3 if told.startswith("no answer") else 20))
    assert health.ok == ok
    assert told in health.detail or "sent nothing for 0.3 s" in health.detail
    assert "\n" not in health.detail


async def test_a_model_that_is_not_there_is_told_with_those_that_are(provider: _Listing) -> None:
    health = await check(provider.spec("gamma"))
    assert (health.ok, "gamma is not among the server's models (alpha, beta)" in health.detail) == (False, True)


async def test_llama_cpp_is_asked_by_any_name(provider: _Listing) -> None:
    """Its server has one model, and does not look at the name; several of them it tells apart."""
    for files, ok in ((["/models/small.gguf"], True), (["small", "large"], False)):
        listed = {"data": [{"id": file, "owned_by": "llamacpp"} for file in files]}
        provider.listing = Reply([json.dumps(listed).encode()], headers={"content-type": "application/json"})
        health = await check(provider.spec("mine"))
        assert (health.ok, files[0] in health.detail) == (ok, True)


async def test_a_missing_key_is_named_and_nobody_is_asked(provider: _Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    health = await check(provider.spec("alpha", api_key_env="TEST_KEY"))
    assert (health.ok, health.key) == (False, "TEST_KEY: missing")
    assert "TEST_KEY is not set" in health.detail
    assert provider.calls == []


async def test_a_dead_server_is_told(provider: _Listing) -> None:
    health = await check(provider.spec(base_url="http://127.0.0.1:1/v1"))
    assert (health.ok, "refuses connections" in health.detail) == (False, True)


async def test_a_local_model_that_is_not_downloaded_is_away_and_how_to_get_it_is_told() -> None:
    here = await check(WorkerSpec(name="here", provider="local", model=str(TINY_FOLDER)))
    away = await check(WorkerSpec(name="mine", provider="local", model="nobody/has-this-model"))
    assert (here.ok, here.away, away.ok, away.away) == (True, False, False, True)
    assert "worker mine: nobody/has-this-model is not on this machine" in away.detail
    assert "conductor models pull nobody/has-this-model" in away.detail


@pytest.mark.parametrize("listed", ["alpha", "models/alpha", "alpha:latest"])
async def test_a_model_is_found_as_servers_list_it(provider: _Listing, listed: str) -> None:
    document = json.dumps({"data": [{"id": "other"}, {"id": listed}]}).encode()
    provider.listing = Reply([document], content_type="application/json")
    assert (await check(provider.spec("alpha"))).detail == "reached; it lists the model"
    health = await check(provider.spec("alph"))
    assert (health.ok, "alph is not among the server's models" in health.detail) == (False, True)


async def test_a_simulated_worker_is_always_there() -> None:
    worker = open_any_worker(rehearsal_specs()[0], Settings(), 0)
    health = await check_health(worker)
    assert (health.ok, health.latency_ms, health.key) == (True, None, None)
    assert health.detail == "simulated, always available"


@pytest.mark.parametrize(("around", "said"), [('"', True), ("'", True), ("", False)])
async def test_a_key_in_quotation_marks_is_told_where_it_is_refused(
    provider: _Listing, monkeypatch: pytest.MonkeyPatch, around: str, said: bool
) -> None:
    monkeypatch.setenv("SOME_API_KEY", f"{around}sk-0123456789abcdef{around}")
    provider.listing = error(401)
    health = await check(provider.spec("alpha", api_key_env="SOME_API_KEY"))
    told = "the value of SOME_API_KEY begins and ends with a quotation mark: set it again without"
    assert (told in health.detail) == said, health.detail


# Local servers are found by their ports; what is no model server is left out.


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
    found = await discovered({ollama.port: "first", other.port: "second"}, timeout_s=5)
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
    found = await discovered({ollama.port: "first", llama.port: "second"}, timeout_s=5)
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
    (spec,) = await discovered({ollama.port: "first"}, timeout_s=5)
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
        assert await discovered(ports, timeout_s=0.5) == ()


async def test_a_list_that_comes_drop_by_drop_is_not_waited_for(stack: ExitStack) -> None:
    whole = b"".join(part for part in listing(("qwen3", "library")).parts if isinstance(part, bytes))
    drops: list[Part] = [Pause(0.1), b" "] * 20
    slow = stack.enter_context(_Odd(Reply([*drops, whole], content_type="application/json")))
    assert await discovered({slow.port: "slow"}, timeout_s=0.5) == ()


async def test_no_proxy_is_asked_for_this_machines_own_ports(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stack.enter_context(ScriptedProvider(["m"]))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert len(await discovered({server.port: "s"}, timeout_s=5)) == 1


async def test_found_workers_can_be_written_into_a_pool_file(stack: ExitStack) -> None:
    server = stack.enter_context(ScriptedProvider(["some/model", "x" * 150, "models/ü"]))
    for spec in await discovered({server.port: "s"}, timeout_s=5):
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
    assert await discovered({server.port: "LiteLLM"}, timeout_s=5) == ()
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

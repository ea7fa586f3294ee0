"""The health check proves what it says, and names a key's variable, never its value."""

import json
from collections.abc import Iterator

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.engine.pools import open_worker as open_any_worker
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.settings import Settings
from conductor_core.workers import health as health_module
from conductor_core.workers.health import Health, check_health
from conductor_core.workers.pool import open_worker
from tests.support.provider import Call, Reply, ScriptedProvider, error, hang_after


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
    monkeypatch.setattr(health_module, "_MOST_BYTES", 1000)
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

"""Requests for a model that is not ours: forwarded and relayed byte for byte, and recorded as runs."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from cryptography.fernet import Fernet

from conductor_core.analysis.conclusion import name_of
from conductor_core.chat.messages import Price, Usage, WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.errors import StoreError
from conductor_core.run.request import PASS_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.serving import pass_through
from conductor_core.serving.app import endpoint as endpoint_of
from conductor_core.serving.counts import Counts, read_counts
from conductor_core.serving.gateway import Gateway
from conductor_core.serving.pass_through import PassThrough, Upstream
from conductor_core.serving.served_models import ServedModels
from conductor_core.serving.turns import Turns
from storage import Store, open_store
from tests.support.eventually import eventually_async
from tests.support.gated_runs import FAST
from tests.support.provider import Answer, Call, Cut, Hang, Pause, Reply, ScriptedProvider, delta, error, sse
from tests.support.serving import KEY, FakeKeys

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HELLO = {"model": "theirs", "messages": [{"role": "user", "content": "Hello"}]}
ODD = b'{ "model" : "theirs",\n"messages":[{"role":"user","content":"H\\u00e9llo"}],  "temperature":0.50, "n":1 }'
"""JSON that another writer would write otherwise."""
UPSTREAM_KEY = "sk-upstream-0123456789abcdef"


@dataclass
class Passing:
    store: Store
    keys: FakeKeys
    gateway: Gateway
    provider: ScriptedProvider
    client: httpx2.AsyncClient
    folder: Path

    @property
    def passing(self) -> PassThrough:
        assert self.gateway.passing is not None
        return self.gateway.passing

    async def run(self) -> RunTrace:
        """Returns the newest run once it has ended."""
        (newest,) = await eventually_async(lambda: self.store.runs(limit=1))
        await eventually_async(lambda: self.store.read(newest.run_id).ended)
        return self.store.read(newest.run_id)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


@asynccontextmanager
async def passing_through(provider: ScriptedProvider, folder: Path) -> AsyncIterator[Passing]:
    store = open_store(f"sqlite:///{folder / 'runs.sqlite3'}")
    host = EngineHost(store.log, FAST, store, awaited=False)
    served, keys = ServedModels(FAST), FakeKeys()
    turns = Turns(host, store, FAST, served)
    kept = store.deleted_responses, store.judgements
    gateway = Gateway(turns, served, keys, Fernet.generate_key(), *kept)
    price = Price(input=1.0, output=10.0, cached_input=0.5)
    spec = WorkerSpec(
        name="theirs",
        provider="openai",
        model="theirs",
        base_url=provider.url,
        usd_per_mtok=price,
        api_key_env="THEIR_KEY",
    )
    gateway.passing = PassThrough(Upstream(spec, any_api=True), host.sink, store, turns, Counts(folder))
    server = uvicorn.Server(uvicorn.Config(endpoint_of(lambda: gateway), port=0, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await eventually_async(lambda: server.started)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        try:
            yield Passing(store, keys, gateway, provider, client, folder)
        finally:
            server.should_exit = True
            await serving
            await gateway.passing.aclose()
            await asyncio.to_thread(host.close)
            store.close()


@pytest.fixture
async def through(
    provider: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Passing]:
    monkeypatch.setenv("THEIR_KEY", UPSTREAM_KEY)
    async with passing_through(provider, tmp_path) as passing:
        yield passing


def whole(body: bytes, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([body], content_type="application/json", headers=named)


def chat_answer(text: str = "Hi", **usage: Any) -> bytes:
    told = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, **usage}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c9", "object": "chat.completion", "choices": [choice], "usage": told}, indent=1).encode()


async def test_body_and_answer_are_the_same_byte_for_byte_and_the_record_has_what_they_say(through: Passing) -> None:
    answer = chat_answer(prompt_tokens_details={"cached_tokens": 5}, completion_tokens_details={"reasoning_tokens": 2})
    through.provider.always(whole(answer, x_request_id="req_theirs", x_ratelimit_remaining="7"))
    response = await through.client.post(
        f"{CHAT}?x=1%20", content=ODD, headers={"content-type": "application/json", "openai-beta": "a"}
    )
    (call,) = through.provider.calls
    assert (call.raw, call.path) == (ODD, f"{CHAT}?x=1%20")
    assert (call.headers["openai-beta"], call.headers["content-type"]) == ("a", "application/json")
    assert (response.content, response.status_code) == (answer, 200)
    assert response.headers.get_list("x-request-id") == ["req_theirs"]
    assert response.headers["x-ratelimit-remaining"] == "7"
    trace = await through.run()
    assert response.headers["x-conductor-trace-id"] == trace.run_id
    assert (trace.purpose, trace.status, trace.task, trace.answer) == (PASS_PURPOSE, "completed", "Héllo", "Hi")
    (step,) = trace.steps
    assert (step.agent, [message.text for message in step.messages]) == ("theirs", ["Héllo"])
    assert trace.pool.workers[0].params == {"temperature": 0.5, "n": 1}
    assert trace.usage == Usage(input_tokens=9, output_tokens=4, cached_input_tokens=5, reasoning_tokens=2)
    assert trace.cost_usd == pytest.approx((4 * 1.0 + 5 * 0.5 + 4 * 10.0) / 1e6)
    assert step.first_token_ms is not None
    assert name_of(trace) == "Forwarded"
    assert trace.client is not None
    assert (trace.client.api, trace.client.model, trace.client.stream) == ("chat", "theirs", False)


async def test_the_upstreams_key_is_sent_in_place_of_the_clients(through: Passing) -> None:
    through.keys.add(KEY)
    through.provider.always(whole(chat_answer()))
    assert (await through.client.post(CHAT, json=HELLO)).status_code == 401
    sent = {"authorization": f"Bearer {KEY}", "cookie": "a=b", "x-forwarded-for": "127.0.0.1"}
    assert (await through.client.post(CHAT, json=HELLO, headers=sent)).status_code == 200
    (call,) = through.provider.calls
    assert call.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert not {"cookie", "x-forwarded-for"} & set(call.headers)
    assert KEY not in str(call.headers)
    odd = [*sent.items(), ("x-goog-api-key", KEY), ("x-title", "Caf\u00e9")]
    assert (
        await through.client.post(CHAT, json=HELLO, headers=httpx2.Headers(odd, encoding="utf-8"))
    ).status_code == 200
    assert KEY not in str(through.provider.calls[-1].headers)
    assert through.provider.calls[-1].headers["x-title"].encode("latin-1").decode() == "Caf\u00e9"
    assert (await through.client.post(MESSAGES, json=HELLO, headers={"x-api-key": KEY})).status_code == 200
    assert through.provider.calls[-1].headers["x-api-key"] == UPSTREAM_KEY
    run = await through.run()
    assert run.actor is not None
    assert run.actor.name == "ada"


CHAT_STREAM = [
    sse(delta(role="assistant"), delta("Hel")),
    b"data: " + json.dumps(delta("lo")).encode()[:20],
    json.dumps(delta("lo")).encode()[20:] + b"\n\n: a comment\n\n",
    sse(delta(finish="stop")),
    sse({"id": "c1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}),
    sse("[DONE]"),
]
RESPONSE = {
    "id": "resp_9", "object": "response", "status": "completed", "model": "theirs-1",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I greet."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
    ],
    "usage": {
        "input_tokens": 7, "output_tokens": 3, "total_tokens": 10, "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 1},
    },
}  # fmt: skip
RESPONSES_STREAM = [
    sse({"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}),
    sse({"type": "response.reasoning_summary_text.delta", "delta": "I greet."}, event="x"),
    sse({"type": "response.output_text.delta", "delta": "Hel"}),
    sse({"type": "response.output_text.delta", "delta": "lo"}),
    sse({"type": "response.completed", "response": RESPONSE}),
]
MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "theirs-1", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Hello"}],
    "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3},
}  # fmt: skip
MESSAGES_STREAM = [
    sse({"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}, event="message_start"),
    sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
    sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
    sse({"type": "message_stop"}),
]
ASKED: Mapping[str, Mapping[str, Any]] = {
    CHAT: HELLO,
    RESPONSES: {"model": "theirs", "input": "Hello"},
    MESSAGES: {**HELLO, "max_tokens": 9},
}


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (CHAT, CHAT_STREAM),
        (RESPONSES, RESPONSES_STREAM),
        (MESSAGES, MESSAGES_STREAM),
        (RESPONSES, [json.dumps(RESPONSE).encode()]),
        (MESSAGES, [json.dumps(MESSAGE).encode()]),
    ],
)
async def test_each_api_is_relayed_as_it_comes_and_the_record_has_its_text_and_usage(
    through: Passing, path: str, parts: list[bytes]
) -> None:
    streamed = len(parts) > 1
    kind = "text/event-stream" if streamed else "application/json"
    through.provider.always(Reply(parts, content_type=kind))
    response = await through.client.post(path, json={**ASKED[path], "stream": streamed})
    assert (response.content, response.headers["content-type"]) == (b"".join(parts), kind)
    trace = await through.run()
    assert (trace.status, trace.task, trace.answer) == ("completed", "Hello", "Hello")
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.estimated) == (7, 3, False)
    if path == RESPONSES:
        assert (trace.usage.reasoning_tokens, trace.usage.cached_input_tokens) == (1, 2)
        assert trace.steps[0].reasoning == "I greet."
    assert trace.client is not None
    assert trace.client.stream is streamed


async def test_parts_of_a_stream_come_before_the_next_is_there(through: Passing) -> None:
    through.provider.always(Reply([sse(delta("a")), Hang()]))
    async with through.client.stream("POST", CHAT, json={**HELLO, "stream": True}) as response:
        async for part in response.aiter_raw():
            assert part == sse(delta("a"))
            break
    assert await asyncio.to_thread(through.provider.wait_until, lambda provider: provider.disconnects == 1)
    trace = await through.run()
    assert (trace.status, trace.steps[0].output) == ("cancelled", "a")
    assert trace.usage.estimated
    assert trace.cost_usd is not None
    assert trace.cost_usd > 0


async def test_without_usage_of_the_upstreams_it_is_estimated_and_says_so(through: Passing) -> None:
    through.provider.always(Answer("some words", pieces=2))
    await through.client.post(CHAT, json={**HELLO, "stream": True})
    trace = await through.run()
    assert (trace.answer, trace.usage.estimated) == ("some words", True)
    assert trace.usage.output_tokens > 0
    assert "stream_options" not in through.provider.calls[0].body


async def test_a_refusal_is_passed_on_with_its_headers_and_recorded_as_a_failure(through: Passing) -> None:
    said = b'{"error": {"message": "slow down", "type": "tokens", "code": "rate_limit_exceeded"}}'
    through.provider.always(error(429, said.decode(), retry_after="7", x_request_id="r1"))
    response = await through.client.post(CHAT, json=HELLO)
    assert (response.status_code, response.content, response.headers["retry-after"]) == (429, said, "7")
    trace = await through.run()
    assert (trace.status, trace.error_code, trace.usage.total_tokens) == ("failed", "WorkerRateLimited", 0)
    assert "slow down" in str(trace.error)


@pytest.mark.parametrize("framing", [{}, {"content-length": "5000"}])
async def test_an_answer_that_is_cut_is_cut_for_the_client(through: Passing, framing: dict[str, str]) -> None:
    through.provider.always(Reply([sse(delta("half an ans")), b'data: {"cho', Pause(0.05), Cut()], headers=framing))
    came = b""

    async def read() -> None:
        nonlocal came
        async with through.client.stream("POST", CHAT, json={**HELLO, "stream": True}) as response:
            async for part in response.aiter_raw():
                came += part

    with pytest.raises(httpx2.TransportError):
        await read()
    assert came == sse(delta("half an ans")) + b'data: {"cho'
    trace = await through.run()
    assert (trace.status, trace.error_code, trace.steps[0].output) == ("failed", "WorkerStreamCut", "half an ans")


async def test_an_upstream_that_is_not_there_is_a_502_and_a_failed_run(through: Passing) -> None:
    through.passing.upstream.spec = through.passing.upstream.spec.model_copy(
        update={"base_url": "http://127.0.0.1:9/v1"}
    )
    response = await through.client.post(CHAT, json=HELLO)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")
    trace = await through.run()
    assert (trace.status, trace.error_code) == ("failed", "WorkerUnreachable")


async def test_a_body_of_30_mb_goes_on_whole(through: Passing) -> None:
    through.provider.always(whole(chat_answer()))
    text = "x" * (30 << 20)
    body = json.dumps({**HELLO, "messages": [{"role": "user", "content": text}]}).encode()
    response = await through.client.post(CHAT, content=body)
    assert response.status_code == 200
    assert through.provider.calls[0].raw == body
    assert (await through.run()).task == text


async def test_a_compressed_answer_stays_so_and_is_read_for_the_record(through: Passing) -> None:
    packed = gzip.compress(chat_answer("packed"))
    through.provider.always(whole(packed, content_encoding="gzip"))
    async with through.client.stream("POST", CHAT, json=HELLO, headers={"accept-encoding": "br, gzip"}) as response:
        assert b"".join([part async for part in response.aiter_raw()]) == packed
    assert through.provider.calls[0].headers["accept-encoding"] == "gzip"
    assert (await through.run()).answer == "packed"


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[1]", b'{"model": "theirs", "messages": [{"role": "assistant"}]}'])
async def test_what_cannot_be_read_goes_on_all_the_same(through: Passing, body: bytes) -> None:
    through.provider.always(error(400))
    assert (await through.client.post(CHAT, content=body)).status_code == 400
    assert through.provider.calls[0].raw == body
    trace = await through.run()
    assert (trace.status, trace.task) == ("failed", body.decode() or "(an empty request)")


async def test_calls_of_tools_are_recorded_and_nobody_waits_for_them(through: Passing) -> None:
    call = {"id": "w0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    document = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    through.provider.always(whole(json.dumps(document).encode()))
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    await through.client.post(CHAT, json={**HELLO, "tools": [tool]})
    trace = await through.run()
    assert (trace.status, trace.steps[0].tool_calls[0].name) == ("completed", "weather")
    assert [each.name for each in trace.tools] == ["weather"]


async def test_other_paths_are_forwarded_and_recorded_without_text(through: Passing) -> None:
    document = {"data": [], "usage": {"prompt_tokens": 11, "total_tokens": 11}}
    through.provider.always(whole(json.dumps(document).encode()))
    response = await through.client.post("/v1/embeddings", json={"model": "emb", "input": "a secret"})
    assert response.json() == document
    trace = await through.run()
    assert (trace.status, trace.steps[0].agent, trace.usage.input_tokens) == ("completed", "emb", 11)
    assert trace.task.startswith("POST /v1/embeddings, ")
    assert "a secret" not in trace.model_dump_json()
    for path in ("/v1/../secret", "/v1/%2e%2e/secret", "/v1/..;a/secret", "/v2/embeddings", "/v1%2fembeddings"):
        raw = httpx2.URL(str(through.client.base_url)).copy_with(raw_path=path.encode())
        assert (await through.client.send(httpx2.Request("GET", raw))).status_code == 404
    assert len(through.provider.calls) == 1


async def test_no_path_leads_to_another_host(through: Passing) -> None:
    spec = through.passing.upstream.spec
    root = spec.model_copy(update={"base_url": f"http://127.0.0.1:{through.provider.port}", "api_key_env": None})
    through.passing.upstream.spec = root
    with ScriptedProvider() as elsewhere:
        for path in (f"/v1%2f@127.0.0.1:{elsewhere.port}/x", "/v1%2fchat/completions", "/%76%31/chat/completions"):
            raw = httpx2.URL(str(through.client.base_url)).copy_with(raw_path=path.encode())
            await through.client.send(httpx2.Request("POST", raw, json=HELLO))
        assert not elsewhere.calls
    assert {call.path for call in through.provider.calls} == {"/chat/completions"}


async def test_models_of_ours_are_answered_here_and_both_are_listed(through: Passing) -> None:
    listed = (await through.client.get("/v1/models")).json()["data"]
    assert [each["id"] for each in listed] == ["fugu", "fugu-ultra", "theirs", "scripted"]
    plan = {"steps": [{"agent": "reasoner", "instruction": "{question}", "access_list": []}]}
    response = await through.client.post(CHAT, json={**HELLO, "model": "fugu", "conductor": {"workflow": plan}})
    assert response.json()["conductor"]["steps"][0]["agent"] == "reasoner"
    assert [call.path for call in through.provider.calls] == ["/v1/models"]


async def test_if_the_record_cannot_be_written_the_client_is_served_and_the_loss_is_counted(
    through: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(through.passing, "_sink", type("Full", (), {"append": staticmethod(full)})())
    through.provider.always(whole(chat_answer()))
    response = await through.client.post(CHAT, json=HELLO)
    assert (response.status_code, response.content) == (200, chat_answer())
    assert "x-conductor-trace-id" not in response.headers
    assert through.passing.counts.all["unrecorded"] == 1
    await through.passing.aclose()
    assert read_counts(through.folder)["unrecorded"] == 1


async def test_a_record_that_takes_long_to_begin_does_not_hold_up_the_client(
    through: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_through, "BEGIN_S", 0.05)
    sink, opened = through.passing._sink, asyncio.Event()

    class Slow:
        def append(self, *events: Any) -> "asyncio.Future[None]":
            async def later() -> None:
                await opened.wait()
                await sink.append(*events)

            return asyncio.ensure_future(later())

    monkeypatch.setattr(through.passing, "_sink", Slow())
    through.provider.always(whole(chat_answer()))
    assert (await through.client.post(CHAT, json=HELLO)).status_code == 200
    assert not through.store.runs()
    opened.set()
    await eventually_async(through.store.runs)
    assert (await through.run()).answer == "Hi"


async def test_what_leaves_is_on_record_before_it_leaves(through: Passing) -> None:
    seen: list[str] = []

    def answer(_call: Call) -> Reply:
        seen.extend(run.status for run in through.store.runs())
        return whole(chat_answer())

    through.provider.always(answer)
    await through.client.post(CHAT, json=HELLO)
    assert seen == ["running"]
    assert (await through.run()).status == "completed"


async def test_a_conversation_is_known_by_its_turns(through: Passing) -> None:
    through.provider.always(whole(chat_answer("Hi")))
    await through.client.post(CHAT, json=HELLO)
    first = await through.run()
    said = [*HELLO["messages"], {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}]
    await through.client.post(CHAT, json={**HELLO, "messages": said})
    second = await through.run()
    assert (second.conversation_id, second.task) == (first.run_id, "And?")


async def test_a_key_may_ask_only_what_it_may_and_its_day_counts(through: Passing) -> None:
    through.provider.always(whole(chat_answer()))
    sent = {"authorization": f"Bearer {KEY}"}
    through.keys.add(KEY, models=("fugu",))
    assert (await through.client.post(CHAT, json=HELLO, headers=sent)).status_code == 403
    through.keys.add(KEY, usd_per_day=1.0)
    assert (await through.client.post(CHAT, json={**HELLO, "model": "dear"}, headers=sent)).status_code == 400
    assert (await through.client.post(CHAT, json=HELLO, headers=sent)).status_code == 200
    through.keys.spent["id-ada"] = (1.0, 0)
    assert (await through.client.post(CHAT, json=HELLO, headers=sent)).status_code == 429
    through.keys.add(KEY, excluded_providers=("openai",))
    assert (await through.client.post(CHAT, json=HELLO, headers=sent)).status_code == 403
    assert len(through.provider.calls) == 1


@pytest.mark.parametrize("limit", [{"models": ("theirs",)}, {"usd_per_day": 1.0}])
async def test_a_key_with_limits_orders_nothing_that_cannot_be_held_against_them(
    through: Passing, limit: dict[str, Any]
) -> None:
    through.keys.add(KEY, **limit)
    sent = {"authorization": f"Bearer {KEY}"}
    dear = {**HELLO, "model": "dear"}
    hidden = gzip.compress(json.dumps(dear).encode())
    orders: tuple[tuple[str, dict[str, Any]], ...] = (
        (CHAT, {"content": b"not JSON"}),
        (CHAT, {"content": hidden, "headers": {"content-encoding": "gzip"}}),
        (CHAT, {"content": hidden, "headers": {"content-encoding": "br"}}),
        ("/v1//chat/completions/", {"json": dear}),
        ("/v1/batches", {"json": {"input_file_id": "f"}}),
        ("/v1/images/edits", {"files": {"image": b"x"}, "data": {"model": "dear"}}),
        ("/v1/embeddings", {"json": {"model": "dear", "input": "x"}}),
    )
    for path, how in orders:
        how["headers"] = {**sent, **how.get("headers", {})}
        assert (await through.client.post(path, **how)).status_code in (400, 403), path
    assert not through.provider.calls
    through.provider.always(whole(chat_answer()))
    assert (await through.client.post("/v1/embeddings", json=HELLO, headers=sent)).status_code == 200
    assert (await through.client.post("/v1/responses/resp_1/cancel", headers=sent)).status_code == 200
    assert (await through.client.get("/v1/files", headers=sent)).status_code == 200


async def test_a_keys_day_holds_with_many_requests_at_once(through: Passing) -> None:
    through.keys.add(KEY, tokens_per_day=300)
    through.provider.always(Reply([Pause(0.05), chat_answer()], content_type="application/json"))
    asked = {**HELLO, "max_tokens": 100}
    sent = {"authorization": f"Bearer {KEY}"}
    answers = await asyncio.gather(*(through.client.post(CHAT, json=asked, headers=sent) for _ in range(50)))
    statuses = [each.status_code for each in answers]
    assert set(statuses) == {200, 429}
    assert 13 * statuses.count(200) <= 300
    assert len(through.provider.calls) == statuses.count(200)
    assert through.provider.most_at_once <= 2


async def test_a_compressed_request_goes_on_as_it_is_and_is_read_for_the_record(through: Passing) -> None:
    through.provider.always(whole(chat_answer()))
    packed = gzip.compress(json.dumps(HELLO).encode())
    packed += gzip.compress(b"  ")
    for path in (CHAT, "/v1//chat/completions"):
        await through.client.post(path, content=packed, headers={"content-encoding": "gzip"})
        assert through.provider.calls[-1].raw == packed
        trace = await through.run()
        assert (trace.task, trace.steps[0].agent, trace.answer) == ("Hello", "theirs", "Hi")
    await through.client.post(CHAT, content=b"\x28\xb5\x2f\xfd", headers={"content-encoding": "zstd"})
    assert (await through.run()).task == f"POST {CHAT}, 4 bytes, encoded as zstd"


@pytest.mark.parametrize("status", [101, 600, 999])
async def test_what_is_no_status_of_an_answer_is_a_502(through: Passing, status: int) -> None:
    through.provider.always(Reply([b"{}"], status=status))
    response = await through.client.post(CHAT, json=HELLO)
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_unreachable"
    assert (await through.run()).status == "failed"


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n", "\r\n\n"])
async def test_events_are_read_whatever_ends_their_lines(through: Passing, end: str) -> None:
    events = [json.dumps(each) for each in (delta("Hel"), delta("lo"), delta(finish="stop"))]
    body = "\ufeff" + "".join(f"data: {each}{end}" for each in (*events, "[DONE]"))
    through.provider.always(Reply([body.encode()]))
    assert (await through.client.post(CHAT, json={**HELLO, "stream": True})).text == body
    trace = await through.run()
    assert (trace.status, trace.answer) == ("completed", "Hello")

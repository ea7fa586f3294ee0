"""The HTTP workers against a provider that misbehaves: each fault becomes one clear error, nothing is lost."""

import asyncio
import email.utils
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from conductor_core.chat import Chunk, Finished, Message, ReasoningDelta, TextDelta, Usage, WorkerSpec
from conductor_core.errors import (
    WorkerError,
    WorkerFailed,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnreachable,
)
from conductor_core.settings import Settings
from conductor_core.workers.http import HttpWorker
from conductor_core.workers.pool import open_worker
from tests.support.provider import (
    SSE,
    Answer,
    Call,
    Cut,
    Hang,
    Pause,
    Reply,
    ScriptedProvider,
    cut_after,
    delta,
    error,
    hang_after,
    sse,
)

QUESTION = (Message(role="user", content="What is 6 times 7?"),)
KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


@pytest.fixture
def provider(running: ScriptedProvider) -> ScriptedProvider:
    running.reset()
    return running


def opened(spec: WorkerSpec) -> HttpWorker:
    worker = open_worker(spec, Settings())
    assert isinstance(worker, HttpWorker)
    return worker


async def ask(spec: WorkerSpec, messages: tuple[Message, ...] = QUESTION) -> list[Chunk]:
    worker = opened(spec)
    try:
        return [chunk async for chunk in worker.answer(messages)]
    finally:
        await worker.aclose()


async def fails(spec: WorkerSpec, kind: type[WorkerError]) -> tuple[WorkerError, str]:
    """The error of a call, and the text that arrived before it."""
    worker = opened(spec)
    partial = ""
    with pytest.raises(kind) as caught:  # noqa: PT012 - what arrives before the error is part of the promise
        async for chunk in worker.answer(QUESTION):
            assert isinstance(chunk, TextDelta)
            partial += chunk.text
    await worker.aclose()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert f"worker {spec.name}" in message, message
    assert "\n" not in message
    assert len(message) < 600
    return caught.value, partial


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def finished(chunks: list[Chunk]) -> Finished:
    assert isinstance(chunks[-1], Finished)
    assert sum(isinstance(chunk, Finished) for chunk in chunks) == 1
    return chunks[-1]


# ------------------------------------------------------------------ a good answer


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_answer_streams_with_its_reasoning_and_the_providers_usage(
    provider: ScriptedProvider, kind: str
) -> None:
    provider.then(Answer("six times seven is 42", usage=(11, 5), reasoning="6*7", pieces=5))
    chunks = await ask(provider.spec(provider=kind))
    assert text_of(chunks) == "six times seven is 42"
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)) == "6*7"
    assert sum(isinstance(chunk, TextDelta) for chunk in chunks) == 5
    assert finished(chunks) == Finished(
        finish_reason="stop", usage=Usage(input_tokens=11, output_tokens=5), model="scripted"
    )


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_what_is_sent(provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("TEST_KEY", KEY + "\n")
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="One"),
        Message(role="assistant", content="Two"),
        Message(role="user", content="Three"),
    )
    await ask(provider.spec(provider=kind, api_key_env="TEST_KEY", params={"temperature": 0.2}), messages)
    call = provider.calls[0]
    assert call.headers["accept-encoding"] == "identity"
    assert call.body["temperature"] == 0.2
    assert call.body["stream"] is True
    turns = [{"role": message.role, "content": message.content} for message in messages]
    if kind == "openai":
        assert call.path == "/v1/chat/completions"
        assert call.headers["authorization"] == f"Bearer {KEY}"
        assert call.body["messages"] == turns
        assert call.body["stream_options"] == {"include_usage": True}
    else:
        assert call.path == "/v1/messages"
        assert call.headers["x-api-key"] == KEY
        assert call.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in call.headers
        assert (call.body["system"], call.body["messages"]) == ("Be brief.", turns[1:])
        assert call.body["max_tokens"] == 4096


async def test_the_providers_own_cost_is_passed_on(provider: ScriptedProvider) -> None:
    provider.then(Answer("x", cost_usd=0.00125))
    assert finished(await ask(provider.spec())).cost_usd == 0.00125


async def test_no_usage_is_none_and_never_a_guess(provider: ScriptedProvider) -> None:
    provider.then(Answer("x", usage=None), Answer("x", usage=None))
    assert finished(await ask(provider.spec())).usage is None
    assert finished(await ask(provider.spec(provider="anthropic"))).usage is None


@pytest.mark.parametrize(
    ("kind", "said", "read"),
    [
        ("openai", "length", "length"),
        ("openai", "content_filter", "content_filter"),
        ("openai", "tool_calls", "tool_calls"),
        ("openai", "something new", "other"),
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "refusal", "content_filter"),
        ("anthropic", "pause_turn", "other"),
    ],
)
async def test_why_an_answer_ended(provider: ScriptedProvider, kind: str, said: str, read: str) -> None:
    provider.then(Answer("x", finish_reason=said))
    assert finished(await ask(provider.spec(provider=kind))).finish_reason == read


async def test_a_server_that_refuses_stream_options_is_asked_without_and_that_is_remembered(
    provider: ScriptedProvider,
) -> None:
    def strict(call: Call) -> Reply | Answer:
        if "stream_options" in call.body:
            return error(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "stream_options: extra field"}]})
        return Answer("fine", usage=None)

    provider.always(strict)
    worker = opened(provider.spec())
    for _ in range(2):
        assert text_of([chunk async for chunk in worker.answer(QUESTION)]) == "fine"
    await worker.aclose()
    assert [("stream_options" in call.body) for call in provider.calls] == [True, False, False]


async def test_calls_one_after_another_share_a_connection(provider: ScriptedProvider) -> None:
    before = provider.connections
    worker = opened(provider.spec())
    for _ in range(5):
        assert text_of([chunk async for chunk in worker.answer(QUESTION)])
    await worker.aclose()
    assert provider.connections == before + 1


async def test_calls_at_once_do_not_wait_for_each_other(provider: ScriptedProvider) -> None:
    together = asyncio.Barrier(150)
    provider.always(lambda _: Reply([sse(delta("a")), Pause(0.3), sse(delta(finish="stop"), "[DONE]")]))
    worker = opened(provider.spec(max_concurrency=150))

    async def one() -> str:
        text = ""
        async for chunk in worker.answer(QUESTION):
            if isinstance(chunk, TextDelta):
                text += chunk.text
                await together.wait()
        return text

    assert await asyncio.gather(*[one() for _ in range(150)]) == ["a"] * 150
    await worker.aclose()


# ------------------------------------------------------------------ departures that are read


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([sse(delta("one\u2028two\u2029 \u0085three"))], id="line separators in JSON"),
        pytest.param(
            [json.dumps(delta("one\u2028two\u2029 \u0085three"), ensure_ascii=False).join(["data:", "\n\n"]).encode()],
            id="raw line separators",
        ),
    ],
)
async def test_line_separators_inside_an_event(provider: ScriptedProvider, parts: list[bytes]) -> None:
    provider.then(Reply([*parts, sse(delta(finish="stop"))]))
    assert text_of(await ask(provider.spec())) == "one\u2028two\u2029 \u0085three"


async def test_carriage_returns_comments_keep_alives_and_byte_by_byte_delivery(provider: ScriptedProvider) -> None:
    stream = b": keep-alive\r\n\r\n" + sse(delta("né"), delta("e"), delta(finish="stop"), "[DONE]").replace(
        b"\n", b"\r\n"
    )
    provider.then(Reply([stream[i : i + 1] for i in range(len(stream))]))
    assert text_of(await ask(provider.spec())) == "née"


async def test_a_character_split_between_two_events(provider: ScriptedProvider) -> None:
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % half for half in (b"\\ud83d", b"\\ude00")
    ]
    provider.then(Reply([*halves, sse(delta("\ud83d", finish="stop"))]))
    text = text_of(await ask(provider.spec()))
    assert text.startswith("\U0001f600")
    text.encode()


async def test_of_two_choices_the_first_counts(provider: ScriptedProvider) -> None:
    two = delta("mine")
    two["choices"] += delta("other", index=1)["choices"]
    stream = [two, delta("also other", index=1), delta(finish="stop", index=1), delta("!"), delta(finish="length")]
    provider.then(Reply([sse(*stream)]))
    chunks = await ask(provider.spec())
    assert (text_of(chunks), finished(chunks).finish_reason) == ("mine!", "length")


async def test_done_is_not_needed_but_a_finish_reason_is(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("whole"), delta(finish="stop"))]), Reply([sse(delta("not whole"), "[DONE]")]))
    assert text_of(await ask(provider.spec())) == "whole"
    _, partial = await fails(provider.spec(), WorkerStreamCut)
    assert partial == "not whole"


async def test_after_the_finish_reason_the_answer_is_whole_whatever_follows(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("whole"), delta(finish="stop")), Pause(0.05), Cut()]))
    assert finished(await ask(provider.spec())).finish_reason == "stop"


async def test_a_server_that_keeps_the_stream_open_after_the_end(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.workers.http.TAIL_S", 0.1)
    provider.then(
        Reply([sse(delta("a"), delta(finish="stop")), Hang()]),
        Reply([sse(delta("b", finish="stop"), "[DONE]"), Hang()]),
    )
    assert text_of(await ask(provider.spec())) == "a"
    assert text_of(await ask(provider.spec())) == "b"


async def test_a_server_that_does_not_stream_is_read_whole(provider: ScriptedProvider) -> None:
    whole: dict[str, Any] = {
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }
    provider.then(Reply([json.dumps(whole).encode()], content_type="application/json; charset=utf-8"))
    chunks = await ask(provider.spec())
    assert text_of(chunks) == "42"
    assert finished(chunks).usage == Usage(input_tokens=9, output_tokens=1)

    message = {"type": "message", "content": [{"type": "text", "text": "43"}], "stop_reason": "end_turn"}
    provider.then(Reply([json.dumps(message).encode()], content_type="application/json"))
    assert text_of(await ask(provider.spec(provider="anthropic"))) == "43"


# ------------------------------------------------------------------ bad streams


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        pytest.param(Reply([]), WorkerStreamCut, "without a finish reason", id="empty body"),
        pytest.param(Reply([b": nothing\n\n"]), WorkerStreamCut, "without a finish reason", id="only a comment"),
        pytest.param(Reply([b"data: {bad\n\n"]), WorkerFailed, "not a JSON object", id="not JSON"),
        pytest.param(Reply([b"data: [1]\n\n"]), WorkerFailed, "not a JSON object", id="a list"),
        pytest.param(Reply([b"data: " + b"[" * 200_000 + b"\n\n"]), WorkerFailed, "not a JSON object", id="deep"),
        pytest.param(Reply([sse({"hello": 1})]), WorkerFailed, "no part of a chat completion", id="other JSON"),
        pytest.param(Reply([sse({"choices": [3]})]), WorkerFailed, "no part of a chat completion", id="odd choices"),
        pytest.param(Reply([sse(delta(["x"]))]), WorkerFailed, "content that is no text", id="odd content"),  # type: ignore[arg-type]
        pytest.param(Reply([sse(delta("a"))[:-4] + b"\xff\xfe\n\n"]), WorkerFailed, "not UTF-8", id="invalid UTF-8"),
        pytest.param(
            Reply([b"<html><script>alert(1)</script></html>"], content_type="text/html"),
            WorkerRefused,
            "text/html instead of an event stream",
            id="a page",
        ),
        pytest.param(Reply([b"hi"], content_type=None), WorkerRefused, "no content type", id="no content type"),
        pytest.param(Reply([b"{}"], content_type="application/json"), WorkerFailed, "no part of", id="empty JSON"),
        pytest.param(Reply([b"{"], content_type="application/json"), WorkerFailed, "not a JSON", id="cut JSON"),
        pytest.param(
            Reply([b"\x1f\x8b"], headers={"content-encoding": "gzip"}), WorkerRefused, "compressed", id="compressed"
        ),
        pytest.param(Reply([Cut()]), WorkerStreamCut, "in the middle of its answer", id="cut after the headers"),
    ],
)
async def test_a_bad_stream(provider: ScriptedProvider, reply: Reply, kind: type[WorkerError], told: str) -> None:
    provider.then(reply)
    caught, _ = await fails(provider.spec(), kind)
    assert told in str(caught)
    assert "<" not in str(caught)


async def test_a_stream_cut_in_mid_word_keeps_what_arrived(provider: ScriptedProvider) -> None:
    provider.then(cut_after("the answer is forty-t"))
    caught, partial = await fails(provider.spec(), WorkerStreamCut)
    assert partial == "the answer is forty-t"
    assert caught.retryable

    provider.then(Reply([sse({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "for"}}), Cut()]))
    _, partial = await fails(provider.spec(provider="anthropic"), WorkerStreamCut)
    assert partial == "for"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"message": "upstream died", "code": 502}, WorkerFailed),
        ({"message": "slow down", "code": 429}, WorkerRateLimited),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, WorkerRateLimited),
        ({"message": "who are you", "code": "401"}, WorkerRefused),
        ({"message": "Overloaded", "type": "overloaded_error"}, WorkerFailed),
        ({"message": "no money", "type": "insufficient_quota", "code": 429}, WorkerRefused),
        ("just words", WorkerFailed),
        ({"unknown": "shape"}, WorkerFailed),
        (["a list"], WorkerFailed),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_object_under_200(
    provider: ScriptedProvider, found: Any, kind: type[WorkerError], streamed: bool
) -> None:
    if streamed:
        provider.then(Reply([sse(delta("some")), sse({"error": found})]))
    else:
        provider.then(Reply([json.dumps({"error": found}).encode()], content_type="application/json"))
    caught, partial = await fails(provider.spec(), kind)
    assert partial == ("some" if streamed else "")
    if isinstance(found, dict) and "message" in found:
        assert found["message"] in str(caught)


async def test_anthropics_error_event(provider: ScriptedProvider) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    provider.then(Reply([sse(body, event="error")]))
    caught, _ = await fails(provider.spec(provider="anthropic"), WorkerFailed)
    assert "529 (Overloaded)" in str(caught)


async def test_a_50_mb_answer_is_refused_without_being_held(provider: ScriptedProvider) -> None:
    sent = 0

    def flood(event: bytes) -> Iterator[bytes]:
        nonlocal sent
        for _ in range(50_000_000 // len(event)):
            sent += len(event)
            yield event

    many_events = sse(delta("x" * 900))
    for parts, most in (
        (flood(many_events), 3_000_000),
        (flood(b"data: " + b"y" * 60_000), 8_000_000),
        (flood(b": " + b"z" * 60_000 + b"\n\n"), 45_000_000),
    ):
        sent = 0
        provider.then(Reply(parts))
        caught, partial = await fails(provider.spec(max_output_bytes=300_000), WorkerOutputTooLarge)
        assert "300,000 bytes" in str(caught)
        assert not caught.retryable
        assert len(partial) <= 300_000
        assert sent < most
    provider.then(Reply(flood(b"y" * 60_000), content_type="application/json"))
    await fails(provider.spec(max_output_bytes=300_000), WorkerOutputTooLarge)


# ------------------------------------------------------------------ statuses


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, WorkerRefused),
        (401, WorkerRefused),
        (402, WorkerRefused),
        (403, WorkerRefused),
        (404, WorkerRefused),
        (408, WorkerTimedOut),
        (413, WorkerRefused),
        (422, WorkerRefused),
        (429, WorkerRateLimited),
        (500, WorkerFailed),
        (502, WorkerFailed),
        (503, WorkerFailed),
        (504, WorkerTimedOut),
        (529, WorkerFailed),
        (302, WorkerRefused),
        (204, WorkerRefused),
    ],
)
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_status_becomes_an_error(
    provider: ScriptedProvider, status: int, kind: type[WorkerError], dialect: str
) -> None:
    provider.then(error(status, location="http://127.0.0.1:9/elsewhere"))
    caught, _ = await fails(provider.spec(provider=dialect), kind)
    assert caught.retryable == (kind is not WorkerRefused)
    assert str(status) in str(caught) or status == 402
    assert len(provider.calls) == 1


async def test_401_names_the_variable_and_never_the_key(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "not-of-any-known-form-8888"
    monkeypatch.setenv("TEST_KEY", secret)
    echo = {"error": {"message": f"Incorrect API key provided: {secret} or {KEY}.\x1b[31m\nBye", "code": "invalid"}}
    provider.then(error(401, echo))
    caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
    assert "TEST_KEY" in str(caught)
    assert secret not in str(caught)
    assert KEY not in str(caught)
    assert "\x1b" not in str(caught)
    assert "Incorrect API key provided: ***" in str(caught)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<!DOCTYPE html><html><head><title>Bad gateway</title></head></html>", "text/html"),
        ("<html>" + "x" * 100_000, "text/plain"),
        (json.dumps({"error": "<html><body>nginx</body></html>"}), "application/json"),
        ('{"error": {"message": "cut', "application/json"),
        ("\xff" * 5000, "text/plain"),
        ("", "text/plain"),
    ],
)
async def test_the_body_of_an_error_never_fills_the_message(
    provider: ScriptedProvider, body: str, content_type: str
) -> None:
    provider.then(error(500, body, content_type=content_type))
    caught, _ = await fails(provider.spec(), WorkerFailed)
    assert "<" not in str(caught)
    assert "failed with 500" in str(caught)


async def test_a_compressed_or_cut_error_body_is_not_read(provider: ScriptedProvider) -> None:
    provider.then(error(503, "zipped", content_encoding="gzip"), Reply([b'{"error"', Cut()], status=503))
    for _ in range(2):
        caught, _ = await fails(provider.spec(), WorkerFailed)
        assert "failed with 503; try again later" in str(caught)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0"}, 0, 0),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"retry-after": email.utils.formatdate(time.time() + 3600, usegmt=True)}, 3000, 3601),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_read_as_seconds_or_a_date(
    provider: ScriptedProvider, headers: dict[str, str], low: float, high: float, status: int
) -> None:
    provider.then(error(status, **headers))
    caught, _ = await fails(provider.spec(), WorkerRateLimited if status == 429 else WorkerFailed)
    assert caught.retry_after_s is not None
    assert low <= caught.retry_after_s <= high


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "99 Foo 2099", ""])
async def test_a_senseless_retry_after_is_ignored(provider: ScriptedProvider, value: str) -> None:
    provider.then(error(429, retry_after=value))
    caught, _ = await fails(provider.spec(), WorkerRateLimited)
    assert caught.retry_after_s is None


async def test_an_empty_purse_is_not_a_rate_limit(provider: ScriptedProvider) -> None:
    provider.then(error(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}))
    caught, _ = await fails(provider.spec(), WorkerRefused)
    assert "paid" in str(caught)


# ------------------------------------------------------------------ no connection


async def test_a_dead_server(provider: ScriptedProvider) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    caught, _ = await fails(provider.spec(base_url=f"http://127.0.0.1:{port}/v1"), WorkerUnreachable)
    assert f"127.0.0.1:{port} refuses connections" in str(caught)
    assert caught.retryable


async def test_a_host_that_does_not_exist(provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    caught, _ = await fails(provider.spec(base_url="http://models.invalid/v1"), WorkerUnreachable)
    assert "models.invalid cannot be found" in str(caught)


async def test_a_server_that_accepts_no_connection_in_time(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.workers.http.CONNECT_TIMEOUT_S", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        caught, _ = await fails(provider.spec(base_url=url, timeout_s=5), WorkerUnreachable)
        for client in waiting:
            client.close()
    assert "did not accept a connection in time" in str(caught)


async def test_no_tls_where_tls_is_expected(provider: ScriptedProvider) -> None:
    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        caught, _ = await fails(provider.spec(base_url=f"https://127.0.0.1:{port}/v1"), WorkerUnreachable)
    assert "TLS" in str(caught)


async def test_a_connection_closed_without_an_answer(provider: ScriptedProvider) -> None:
    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        caught, _ = await fails(provider.spec(base_url=f"http://127.0.0.1:{port}/v1"), WorkerUnreachable)
    assert "without an answer" in str(caught)


async def test_silence_times_out_before_and_in_the_middle_of_an_answer(provider: ScriptedProvider) -> None:
    provider.then(hang_after("half an ans"), hang_after())
    caught, partial = await fails(provider.spec(timeout_s=0.2), WorkerTimedOut)
    assert partial == "half an ans"
    assert "sent nothing for 0.2 s" in str(caught)
    await fails(provider.spec(timeout_s=0.2), WorkerTimedOut)


async def test_a_missing_key_is_refused_before_any_connection(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = provider.connections
    for value in (None, "", "  "):
        if value is None:
            monkeypatch.delenv("TEST_KEY", raising=False)
        else:
            monkeypatch.setenv("TEST_KEY", value)
        caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
        assert "TEST_KEY is not set" in str(caught)
    monkeypatch.setenv("TEST_KEY", "clé secrète")
    caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
    assert "secrète" not in str(caught)
    assert provider.connections == before


# ------------------------------------------------------------------ leaving


async def test_closing_the_iterator_closes_the_providers_connection(provider: ScriptedProvider) -> None:
    provider.then(hang_after("a"))
    worker = opened(provider.spec())
    async with aclosing(worker.answer(QUESTION)) as chunks:
        assert await anext(chunks) == TextDelta(text="a")
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 1, 1.0)
    await worker.aclose()


@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_closes_the_providers_connection_within_a_second(
    provider: ScriptedProvider, begun: bool
) -> None:
    provider.then(hang_after("a" if begun else ""))
    worker = opened(provider.spec())
    got = asyncio.Event()

    async def consume(chunks: AsyncIterator[Chunk]) -> None:
        async for _ in chunks:
            got.set()

    task = asyncio.create_task(consume(worker.answer(QUESTION)))
    if begun:
        await got.wait()
    else:
        assert await asyncio.to_thread(provider.wait_until, lambda it: len(it.calls) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 1, 1.0)
    await worker.aclose()


async def test_the_reply_is_read_as_an_event_stream_by_its_media_type_alone(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("a", finish="stop"))], content_type=f"{SSE.upper()}; charset=latin-1"))
    assert text_of(await ask(provider.spec())) == "a"

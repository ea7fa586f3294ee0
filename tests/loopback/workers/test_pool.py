"""Workers behind servers on loopback: requests, statuses, streams that break, and departures."""

import asyncio
import email.utils
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, ReasoningDelta, TextDelta, Usage
from conductor_core.errors import (
    WorkerContextOverflow,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerKeyRefused,
    WorkerLoading,
    WorkerModelUnknown,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnpaid,
)
from tests.support.asking import KEY, QUESTION, ask, fails, finished, opened, text_of
from tests.support.provider import (
    SSE,
    Answer,
    Call,
    Cut,
    Hang,
    Part,
    Pause,
    Reply,
    ScriptedProvider,
    cut_after,
    delta,
    error,
    hang_after,
    sse,
)


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
        ("anthropic", "refusal", "refusal"),
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


async def test_closing_the_iterator_closes_the_providers_connection(provider: ScriptedProvider) -> None:
    provider.then(hang_after("a"))
    worker = opened(provider.spec())
    async with aclosing(worker.answer(QUESTION)) as chunks:
        assert await anext(chunks) == TextDelta(text="a")
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 1)
    await worker.aclose()


@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_closes_the_providers_connection_at_once(provider: ScriptedProvider, begun: bool) -> None:
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
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 1)
    await worker.aclose()


async def test_the_reply_is_read_as_an_event_stream_by_its_media_type_alone(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("a", finish="stop"))], content_type=f"{SSE.upper()}; charset=latin-1"))
    assert text_of(await ask(provider.spec())) == "a"


# Streams that are no whole answer: each becomes one clear error, and what arrived is kept.


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        pytest.param(
            Reply([]),
            WorkerStreamCut,
            "without a finish reason, so the answer is not whole; try again",
            id="empty body",
        ),
        pytest.param(Reply([b": nothing\n\n"]), WorkerStreamCut, "without a finish reason", id="only a comment"),
        pytest.param(Reply([b"data: {bad\n\n"]), WorkerFailed, "not a JSON object", id="not JSON"),
        pytest.param(Reply([b"data: [1]\n\n"]), WorkerFailed, "not a JSON object", id="a list"),
        pytest.param(Reply([b"data: " + b"[" * 200_000 + b"\n\n"]), WorkerFailed, "not a JSON object", id="deep"),
        pytest.param(Reply([sse({"hello": 1})]), WorkerFailed, "does not belong to a chat completion", id="other JSON"),
        pytest.param(
            Reply([sse({"choices": [3]})]), WorkerFailed, "does not belong to a chat completion", id="odd choices"
        ),
        pytest.param(Reply([sse(delta(["x"]))]), WorkerFailed, "content that is not text", id="odd content"),  # type: ignore[arg-type]
        pytest.param(Reply([sse(delta("a"))[:-4] + b"\xff\xfe\n\n"]), WorkerFailed, "not UTF-8", id="invalid UTF-8"),
        pytest.param(
            Reply([b"<html><script>alert(1)</script></html>"], content_type="text/html"),
            WorkerRefused,
            "text/html instead of an event stream",
            id="a page",
        ),
        pytest.param(Reply([b"hi"], content_type=None), WorkerRefused, "no content type", id="no content type"),
        pytest.param(
            Reply([b"{}"], content_type="application/json"), WorkerFailed, "does not belong to", id="empty JSON"
        ),
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


async def test_what_came_before_invalid_utf_8_is_kept(provider: ScriptedProvider) -> None:
    said, broken = sse(delta("so far ü")), sse(delta("lost"))[:-6] + b"\xff\xfe\n\n"
    pieces = [said + broken], [said[:-8], said[-8:] + broken], [said, broken[:-3], broken[-3:]]
    for parts in pieces:
        provider.then(Reply(parts))
        caught, partial = await fails(provider.spec(), WorkerFailed)
        assert "not UTF-8" in str(caught)
        assert partial == "so far ü"


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
    # What the machine's own socket buffers hold, some megabytes, counts as sent.
    for parts, most in (
        (flood(many_events), 20_000_000),
        (flood(b"data: " + b"y" * 60_000), 20_000_000),
        (flood(b": " + b"z" * 60_000 + b"\n\n"), 49_000_000),
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


# Error replies: the status, the words and the wait they ask for; never a key, never a page.


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
        (202, WorkerRefused),
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
    assert not isinstance(caught, WorkerRefused) or caught.of_request == (status in (400, 413, 422))


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
    assert "Incorrect API key provided: no***" in str(caught)


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
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_read_as_seconds_or_a_date_gone_by(
    provider: ScriptedProvider, headers: dict[str, str], low: float, high: float, status: int
) -> None:
    provider.then(error(status, **headers))
    caught, _ = await fails(provider.spec(), WorkerRateLimited if status == 429 else WorkerFailed)
    assert caught.retry_after_s is not None
    assert low <= caught.retry_after_s <= high


@pytest.mark.parametrize("status", [429, 503])
async def test_a_date_to_retry_after_is_counted_from_now(provider: ScriptedProvider, status: int) -> None:
    in_an_hour = email.utils.formatdate(time.time() + 3600, usegmt=True)
    provider.then(error(status, retry_after=in_an_hour))
    caught, _ = await fails(provider.spec(), WorkerRateLimited if status == 429 else WorkerFailed)
    assert caught.retry_after_s is not None
    assert 3000 <= caught.retry_after_s <= 3601


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "99 Foo 2099", ""])
async def test_a_senseless_retry_after_is_ignored(provider: ScriptedProvider, value: str) -> None:
    provider.then(error(429, retry_after=value))
    caught, _ = await fails(provider.spec(), WorkerRateLimited)
    assert caught.retry_after_s is None


ANTHROPICS = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade"


@pytest.mark.parametrize(
    "refused",
    [
        error(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}),
        error(400, {"type": "error", "error": {"type": "invalid_request_error", "message": ANTHROPICS}}),
        error(400, {"error": {"message": "Billing hard limit reached", "code": "billing_hard_limit_reached"}}),
    ],
    ids=["quota", "credit", "hard limit"],
)
async def test_an_empty_purse_is_no_rate_limit_and_no_bad_request(provider: ScriptedProvider, refused: Reply) -> None:
    provider.then(refused)
    caught, _ = await fails(provider.spec(), WorkerRefused)
    assert "paid" in str(caught)
    assert isinstance(caught, WorkerRefused)
    assert not caught.of_request


async def test_a_filter_refuses_what_was_asked_and_no_key(provider: ScriptedProvider) -> None:
    metadata = {"reasons": ["violence"], "flagged_input": "What", "provider_name": "scripted"}
    provider.then(error(403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": metadata}}))
    caught, _ = await fails(provider.spec(), WorkerFiltered)
    assert "refused what was asked with 403 (Your input was flagged)" in str(caught)
    assert isinstance(caught, WorkerRefused)
    assert caught.of_request


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (
            error(400, {"error": {"message": "maximum context length is 8192", "code": "context_length_exceeded"}}),
            WorkerContextOverflow,
        ),
        (error(400, {"error": {"message": "the request exceeds the available context size"}}), WorkerContextOverflow),
        (
            error(400, {"error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
            WorkerContextOverflow,
        ),
        (error(402), WorkerUnpaid),
        (error(403, {"error": {"message": "Insufficient credits", "code": 403}}), WorkerUnpaid),
        (error(429, {"error": {"message": "quota", "code": "insufficient_quota"}}), WorkerUnpaid),
        (error(429, {"error": {"message": "You exceeded your current quota per minute"}}), WorkerRateLimited),
        (error(401), WorkerKeyRefused),
        (error(403), WorkerKeyRefused),
        (error(404), WorkerModelUnknown),
        (error(400, {"error": {"message": "no such model", "code": "model_not_found"}}), WorkerModelUnknown),
        (error(503, {"error": {"message": "Loading model"}}), WorkerLoading),
        (error(503), WorkerFailed),
        (error(400), WorkerRefused),
    ],
)
async def test_each_refusal_has_the_code_that_its_advice_stands_under(
    provider: ScriptedProvider, reply: Reply, kind: type[WorkerError]
) -> None:
    provider.then(reply)
    caught, _ = await fails(provider.spec(), kind)
    assert type(caught) is kind


# Streams that depart from the letter and are whole all the same.


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


async def test_a_finish_reason_or_the_end_marker_makes_an_answer_whole(provider: ScriptedProvider) -> None:
    provider.then(
        Reply([sse(delta("whole"), delta(finish="stop"))]),
        Reply([sse(delta("whole"), "[DONE]")]),
        Reply([sse(delta("not whole"))]),
    )
    for _ in range(2):
        chunks = await ask(provider.spec())
        assert (text_of(chunks), finished(chunks).finish_reason) == ("whole", "stop")
    _, partial = await fails(provider.spec(), WorkerStreamCut)
    assert partial == "not whole"


async def test_after_the_finish_reason_the_answer_is_whole_whatever_follows(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("whole"), delta(finish="stop")), Pause(0.05), Cut()]))
    assert finished(await ask(provider.spec())).finish_reason == "stop"


_USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
_WHOLE = sse(delta("whole", finish="stop"), _USAGE)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([b"data: \xff\xfe\n\n"], id="bad UTF-8"),
        pytest.param([b"data: {\n\n"], id="no JSON"),
        pytest.param([sse({"error": {"message": "too late", "code": 500}})], id="an error object"),
        pytest.param([sse({"choices": 3})], id="an event of no shape"),
        pytest.param([sse({"choices": [], "usage": {"cost": int("9" * 400)}})], id="a cost of 400 digits"),
        pytest.param([sse(_USAGE), Pause(0.1)] * 40, id="stray events"),
        pytest.param([b": still here\n\n", Pause(0.1)] * 40, id="comments"),
    ],
)
async def test_nothing_after_the_finish_reason_loses_the_answer(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, after: list[Part]
) -> None:
    monkeypatch.setattr("conductor_core.providers.client.TAIL_S", 0.3)
    monkeypatch.setattr("conductor_core.providers.client.DOUBTED_TAIL_S", 0.3)
    together = b"".join(part for part in (_WHOLE, after[0]) if isinstance(part, bytes))
    for parts in ([_WHOLE, *after], [together, *after[1:]]):
        provider.then(Reply(parts))
        async with asyncio.timeout(3):
            chunks = await ask(provider.spec())
        assert text_of(chunks) == "whole"
        assert finished(chunks).usage == Usage(input_tokens=9, output_tokens=1)


async def test_a_whole_answer_is_taken_before_the_time_limit_ends_the_attempt(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.providers.client.TAIL_S", 60.0)
    monkeypatch.setattr("conductor_core.providers.client.DOUBTED_TAIL_S", 60.0)
    monkeypatch.setattr("conductor_core.providers.client.MARGIN_S", 3.0)
    provider.then(Reply([_WHOLE, Hang()]))
    async with asyncio.timeout(3.5):
        assert text_of(await ask(provider.spec(timeout_s=4))) == "whole"


async def test_a_server_that_keeps_the_stream_open_after_the_end(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.providers.client.TAIL_S", 0.1)
    monkeypatch.setattr("conductor_core.providers.client.DOUBTED_TAIL_S", 0.1)
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
    provider.then(Reply([json.dumps(whole).encode()], content_type="application/vnd.models+json"))
    assert text_of(await ask(provider.spec())) == "42"
    provider.then(Reply([json.dumps(whole).encode()], content_type="application/json; charset=utf-8"))
    chunks = await ask(provider.spec())
    assert text_of(chunks) == "42"
    assert finished(chunks).usage == Usage(input_tokens=9, output_tokens=1)

    message = {"type": "message", "content": [{"type": "text", "text": "43"}], "stop_reason": "end_turn"}
    provider.then(Reply([json.dumps(message).encode()], content_type="application/json"))
    assert text_of(await ask(provider.spec(provider="anthropic"))) == "43"


async def test_an_answer_that_is_said_to_be_encoded_as_it_is_is_read(provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("42", finish="stop"))], headers={"content-encoding": "Identity"}))
    assert text_of(await ask(provider.spec())) == "42"

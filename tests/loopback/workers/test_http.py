"""A worker over HTTP, both dialects: what is sent, what is read, and the connections it uses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, ReasoningDelta, TextDelta, Usage
from tests.support.asking import KEY, QUESTION, ask, finished, opened, text_of
from tests.support.provider import (
    SSE,
    Answer,
    Call,
    Pause,
    Reply,
    ScriptedProvider,
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

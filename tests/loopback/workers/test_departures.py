"""Streams that depart from the letter and are whole all the same."""

import asyncio
import json
from typing import Any

import pytest

from conductor_core.chat.messages import Usage
from conductor_core.errors import (
    WorkerStreamCut,
)
from tests.support.asking import ask, fails, finished, text_of
from tests.support.provider import Cut, Hang, Part, Pause, Reply, ScriptedProvider, delta, sse


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

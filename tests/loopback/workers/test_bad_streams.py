"""Streams that are no whole answer: each becomes one clear error, and what arrived is kept."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from conductor_core.errors import (
    WorkerError,
    WorkerFailed,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
)
from tests.support.asking import fails
from tests.support.provider import Cut, Reply, ScriptedProvider, cut_after, delta, sse


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

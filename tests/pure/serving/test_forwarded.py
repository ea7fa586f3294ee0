"""The record of forwarded requests: whatever a client sends and an upstream answers, it is a whole run."""

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.trace import RunTrace, fold
from conductor_core.serving.errors import Api
from conductor_core.serving.forwarded import Forwarded, end_of, forwarded, read_question
from conductor_core.serving.pass_through import Upstream

APIS: tuple[Api, ...] = ("chat", "responses", "messages")
CALLER = Caller(actor=THE_PROGRAM, door="api")
UPSTREAM = Upstream(WorkerSpec(name="m", provider="openai", model="m", base_url="http://127.0.0.1:9/v1"), any_api=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
NAMES = st.sampled_from(
    ["model", "messages", "input", "system", "role", "content", "type", "text", "tools", "stream", "choices", "delta",
     "message", "usage", "output", "response", "object", "error", "finish_reason", "status", "index", "tool_calls"]
)  # fmt: skip
WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "text",
        "message",
        "response",
        "response.completed",
        "message_start",
        "function_call",
        "error",
    ]
)
LIKELY = st.recursive(
    JSON | WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=20
)


def asked(api: Api | None, body: bytes) -> Forwarded:
    question = read_question(api, "POST", "/v1/x", body)
    return forwarded(question, UPSTREAM.spec_for(question.model, api, question.params), "m", CALLER, None)


def run_of(made: Forwarded) -> RunTrace:
    return fold([*made.began, *end_of(made)])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*APIS, None]), st.binary(max_size=200) | LIKELY.map(lambda value: json.dumps(value).encode()))
def test_any_request_begins_a_run(api: Api | None, body: bytes) -> None:
    made = asked(api, body)
    trace = fold(made.began)
    assert trace.status == "running"
    assert trace.steps[0].status == "running"
    assert made.request.model_dump_json()


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*APIS, None]),
    st.lists(st.binary(max_size=80) | LIKELY.map(lambda value: json.dumps(value).encode()), max_size=4),
    st.booleans(),
    st.sampled_from([None, 200, 204, 302, 400, 429, 500]),
    st.sampled_from(["", "gzip", "br"]),
    st.booleans(),
)
def test_any_answer_ends_its_run(
    api: Api | None, parts: list[bytes], streamed: bool, status: int | None, encoding: str, left: bool
) -> None:
    made = asked(api, b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x"}')
    made.status = status
    kind = "text/event-stream" if streamed else "application/json"
    made.headers = httpx2.Headers({"content-type": kind, "content-encoding": encoding})
    for part in parts:
        made.keep(b"data: " + part + b"\n\n" if streamed else part)
    made.left_by = CALLER if left else None
    trace = run_of(made)
    assert trace.ended
    assert trace.steps[0].status != "running"
    assert trace.model_dump_json()


MESSAGES: Any = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("beside", [{"n": 3}, {"logprobs": True}, {"temperature": "hot"}, {"tools": "none"}])
def test_what_we_would_refuse_beside_the_messages_does_not_hide_them(beside: dict[str, Any]) -> None:
    made = asked("chat", json.dumps({"model": "m", "messages": MESSAGES, **beside}).encode())
    assert [message.text for message in made.messages] == ["Hi"]
    assert all(made.spec.params[name] == value for name, value in beside.items() if name != "tools")


def test_a_client_that_leaves_after_the_whole_answer_has_not_left() -> None:
    made = asked("chat", json.dumps({"model": "m", "messages": MESSAGES, "stream": True}).encode())
    made.status, made.headers = 200, httpx2.Headers({"content-type": "text/event-stream"})
    choice = {"index": 0, "delta": {"content": "all of it"}, "finish_reason": "stop"}
    made.keep(f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n".encode())
    made.left_by = CALLER
    assert (run_of(made).status, run_of(made).answer) == ("completed", "all of it")


def test_an_error_in_the_middle_of_a_stream_is_a_failure_with_what_came() -> None:
    made = asked("messages", json.dumps({"model": "m", "max_tokens": 9, "messages": MESSAGES}).encode())
    made.status, made.headers = 200, httpx2.Headers({"content-type": "text/event-stream"})
    for event in (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}},
    ):
        made.keep(b"data: " + json.dumps(event).encode() + b"\n\n")
    trace = run_of(made)
    assert (trace.status, trace.steps[0].output) == ("failed", "half")
    assert "too busy" in str(trace.error)

"""Both SDKs against a server that forwards what they ask: they notice nothing, and the record has it all."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.endpoint import ANY_KEY, Endpoint, started
from tests.support.eventually import eventually
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, error, sse

USED = {"input_tokens": 7, "output_tokens": 3}
RESPONSE = {
    "id": "resp_theirs", "object": "response", "created_at": 0, "status": "completed", "model": "theirs", "tools": [],
    "output": [
        {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "fine", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True, "tool_choice": "auto", "usage": {**USED, "total_tokens": 10},
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "theirs", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "fine"}], "usage": USED,
}  # fmt: skip


def _whole(document: dict[str, Any]) -> Reply:
    return Reply([json.dumps(document).encode()], content_type="application/json", headers={"request-id": "req_theirs"})


def _answer(call: Call) -> Reply | Answer:
    if call.path.startswith("/v1/responses"):
        if not call.body.get("stream"):
            return _whole(RESPONSE)
        begun = {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "output": []}}
        delta = {
            "type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": "fine", "logprobs": [],
        }  # fmt: skip
        done = {"type": "response.completed", "sequence_number": 2, "response": RESPONSE}
        return Reply([sse(event, event=str(event["type"])) for event in (begun, delta, done)])
    if call.path.startswith("/v1/messages"):
        if not call.body.get("stream"):
            return _whole(MESSAGE)
        told: tuple[dict[str, Any], ...] = (
            {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "fine"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        )
        return Reply([sse(event, event=str(event["type"])) for event in told])
    return Answer("fine", usage=(7, 3))


@pytest.fixture(scope="module")
def theirs() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("theirs",)) as provider:
        yield provider.always(_answer)


@pytest.fixture(scope="module")
def passing(
    workers: ScriptedProvider, theirs: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("passing")
    with started(workers, folder, "--pass-through", f"{theirs.url}#theirs") as running:
        yield running


@pytest.fixture
def ask(passing: Endpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=passing.url, api_key=ANY_KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(passing: Endpoint) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=passing.root_url, api_key=ANY_KEY, max_retries=0) as client:
        yield client


def last_run(passing: Endpoint) -> dict[str, Any]:
    """Returns the record of the newest forwarded request, once it has ended."""

    def ended() -> dict[str, Any] | None:
        (run,) = passing.runs("--purpose", "pass-through")[:1]
        return None if run["status"] == "running" else run

    run = eventually(ended)
    assert run is not None
    return passing.show(run["run_id"])


def recorded(passing: Endpoint, answer: str = "fine") -> None:
    run = last_run(passing)
    assert (run["status"], run["answer"], run["task"]) == ("completed", answer, "Hello")
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (7, 3)
    assert run["usage"]["estimated"] is False


HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("stream", [False, True])
def test_chat(ask: openai.OpenAI, passing: Endpoint, stream: bool) -> None:
    if stream:
        options: Any = {"include_usage": True}
        chunks = ask.chat.completions.create(model="theirs", messages=HELLO, stream=True, stream_options=options)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    else:
        text = ask.chat.completions.create(model="theirs", messages=HELLO).choices[0].message.content or ""
    assert text == "fine"
    recorded(passing)


@pytest.mark.parametrize("stream", [False, True])
def test_responses(ask: openai.OpenAI, passing: Endpoint, stream: bool) -> None:
    if stream:
        *_, last = ask.responses.create(model="theirs", input="Hello", stream=True)
        assert last.type == "response.completed"
        response = last.response
    else:
        response = ask.responses.create(model="theirs", input="Hello")
    assert (response.id, response.output_text) == ("resp_theirs", "fine")
    recorded(passing)


@pytest.mark.parametrize("stream", [False, True])
def test_messages(claude: anthropic.Anthropic, passing: Endpoint, stream: bool) -> None:
    if stream:
        with claude.messages.stream(model="theirs", max_tokens=9, messages=HELLO) as events:
            text = events.get_final_text()
    else:
        message = claude.messages.create(model="theirs", max_tokens=9, messages=HELLO)
        assert message._request_id == "req_theirs"
        text = "".join(block.text for block in message.content if block.type == "text")
    assert text == "fine"
    recorded(passing)


def test_a_limit_of_the_upstream_is_the_sdks_own_error(
    ask: openai.OpenAI, passing: Endpoint, theirs: ScriptedProvider
) -> None:
    theirs.then(error(429, retry_after="3"))
    with pytest.raises(openai.RateLimitError) as caught:
        ask.chat.completions.create(model="theirs", messages=HELLO)
    assert caught.value.response.headers["retry-after"] == "3"
    assert last_run(passing)["status"] == "failed"


def test_both_models_are_listed_and_ours_still_answers(ask: openai.OpenAI, passing: Endpoint) -> None:
    assert [model.id for model in ask.models.list()] == ["fugu", "fugu-ultra", "house", "claude-house", "theirs"]
    answer = ask.chat.completions.create(model="fugu", messages=[{"role": "user", "content": "[[say ours]]"}])
    assert answer.choices[0].message.content == "ours"

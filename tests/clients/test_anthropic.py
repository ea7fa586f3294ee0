"""Anthropic's SDK asks for messages."""

from typing import Any

import anthropic
import pytest

from tests.clients.endpoint import ANY_KEY, Endpoint, Used, plan, trace_of, used_by_message
from tests.clients.test_openai_chat import DRAFTED, PACED, png

ASKED = [{"role": "user", "content": "How many legs has a cat?"}]
SPENT = Used(150, 60, 20)
"""The usage of ``DRAFTED`` as far as Anthropic's shape tells it."""
WEATHER = {
    "name": "weather",
    "description": "Tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def client(endpoint: Endpoint) -> Any:
    return anthropic.Anthropic(base_url=endpoint.root_url, api_key=ANY_KEY)


def streamed(client: Any, **request: Any) -> tuple[list[Any], dict[str, Any], str]:
    """Returns the events of a stream, the message that the SDK put together, and the trace's id.

    The SDK's helper leaves out what is ours.
    """
    with client.messages.stream(model="fugu", max_tokens=1000, **request) as stream:
        events = list(stream)
        message: dict[str, Any] = stream.get_final_message().to_dict()
        return events, message, stream.response.headers["x-conductor-trace-id"]


def text_in(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def test_a_message_says_what_it_cost_and_where_its_trace_is(client: Any, endpoint: Endpoint) -> None:
    raw = client.messages.with_raw_response.create(
        model="fugu", max_tokens=1000, system="Be brief.", messages=ASKED, extra_body=plan(*DRAFTED)
    )
    message = raw.parse().to_dict()
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "fugu")
    assert text_in(message) == "The legs are four."
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert {block["type"] for block in message["content"]} == {"text"}
    assert used_by_message(message) == SPENT
    assert message["usage"]["input_tokens"] == 130
    trace = trace_of(endpoint, message)
    assert raw.headers["x-conductor-trace-id"] == trace["run_id"]
    assert raw.headers["x-request-id"]


def test_a_stream_is_put_together_to_the_same_message(client: Any, endpoint: Endpoint) -> None:
    events, message, run_id = streamed(client, messages=ASKED, extra_body=plan(*PACED))
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")
    pieces = [event.text for event in events if event.type == "text"]
    assert len(pieces) > 1
    assert "".join(pieces) == text_in(message) == "The legs are four."
    assert message["stop_reason"] == "end_turn"
    assert used_by_message(message) == SPENT
    assert endpoint.show(run_id)["answer"] == "The legs are four."


def test_a_streams_last_event_says_what_the_run_cost(client: Any, endpoint: Endpoint) -> None:
    events = list(
        client.messages.create(model="fugu", max_tokens=1000, messages=ASKED, stream=True, extra_body=plan(*DRAFTED))
    )
    assert [event.type for event in events][-2:] == ["message_delta", "message_stop"]
    assert used_by_message(events[-2].to_dict()) == SPENT
    trace_of(endpoint, {"type": "message"} | events[-1].to_dict())


@pytest.mark.parametrize("stream", [False, True])
def test_calls_wait_for_their_results_and_go_on_in_the_same_run(client: Any, endpoint: Endpoint, stream: bool) -> None:
    marker = f"anthropic-{stream}"

    def ask(**request: Any) -> tuple[dict[str, Any], str]:
        if stream:
            return streamed(client, tools=[WEATHER], **request)[1:]
        raw = client.messages.with_raw_response.create(model="fugu", max_tokens=1000, tools=[WEATHER], **request)
        return raw.parse().to_dict(), raw.headers["x-conductor-trace-id"]

    rules = '[[call weather {"city": "Rome"}]] [[call weather {"city": "Oslo"}]] [[usage 50 9]]'
    first, run_id = ask(messages=ASKED, extra_body=plan(("alpha", f"{marker} {rules}")))
    assert first["stop_reason"] == "tool_use"
    calls = [block for block in first["content"] if block["type"] == "tool_use"]
    assert [call["input"] for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]
    given = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": said}
        for call, said in zip(calls, ("sun", "rain"), strict=True)
    ]
    sent = [{name: call[name] for name in ("type", "id", "name", "input")} for call in calls]
    second, same = ask(messages=[*ASKED, {"role": "assistant", "content": sent}, {"role": "user", "content": given}])
    assert text_in(second) == "sun and rain"
    assert same == run_id
    if stream:
        assert endpoint.show(run_id)["answer"] == "sun and rain"
    else:
        trace_of(endpoint, first, second)
    assert len(endpoint.asked(marker)) == 2


def test_the_tool_runner_carries_calls_out(client: Any, endpoint: Endpoint) -> None:
    asked: list[str] = []

    @anthropic.beta_tool  # type: ignore[untyped-decorator, unused-ignore]
    def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: where
        """
        asked.append(city)
        return "sun"

    runner = client.beta.messages.tool_runner(
        model="fugu",
        max_tokens=1000,
        tools=[weather],
        messages=[{"role": "user", "content": "the-runner"}],
        extra_body=plan(("alpha", '{question} [[call weather {"city": "Rome"}]]')),
    )
    messages = [message.to_dict() for message in runner]
    assert asked == ["Rome"]
    assert text_in(messages[-1]) == "sun"
    trace_of(endpoint, *messages)
    assert len(endpoint.asked("the-runner")) == 2


def test_an_image_reaches_the_worker_that_gets_the_task(client: Any, endpoint: Endpoint) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": png(120).partition(",")[2]}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "image-of-messages"}]
    message = client.messages.create(
        model="fugu",
        max_tokens=1000,
        messages=[{"role": "user", "content": content}],
        extra_body=plan(("beta", "{question} [[say a square]]")),
    ).to_dict()
    assert text_in(message) == "a square"
    assert len(endpoint.asked("image-of-messages")) == 1
    trace_of(endpoint, message)


def test_a_stop_sequence_is_named(client: Any, endpoint: Endpoint) -> None:
    message = client.messages.create(
        model="fugu",
        max_tokens=1000,
        messages=ASKED,
        stop_sequences=["three"],
        extra_body=plan(("alpha", "[[say one two three four]]")),
    ).to_dict()
    assert text_in(message).strip() == "one two"
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "three")
    trace_of(endpoint, message)


def test_a_cut_answer_ends_by_its_length(client: Any, endpoint: Endpoint) -> None:
    message = client.messages.create(
        model="fugu", max_tokens=17, messages=ASKED, extra_body=plan(("alpha", "cut-message [[say one]] [[cut]]"))
    ).to_dict()
    assert (text_in(message), message["stop_reason"]) == ("one", "max_tokens")
    (call,) = endpoint.asked("cut-message")
    assert 17 in call.body.values()
    trace_of(endpoint, message)


def test_fields_without_effect_do_no_harm(client: Any, endpoint: Endpoint) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    message = client.beta.messages.create(
        model="fugu",
        max_tokens=5000,
        betas=["interleaved-thinking-2025-05-14"],
        system=[{"type": "text", "text": "Be brief.", **cached}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "harmless", **cached}]}],
        tools=[WEATHER | cached],
        thinking={"type": "enabled", "budget_tokens": 2000},
        metadata={"user_id": "someone"},
        extra_body=plan(("alpha", "{question} [[say yes]]")) | {"temperature": 1, "top_k": 3, "of_tomorrow": [1]},
    ).to_dict()
    assert text_in(message) == "yes"
    trace_of(endpoint, message)


def test_a_conversation_as_claude_code_holds_it(client: Any, endpoint: Endpoint) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    tools = [
        {"name": "Bash", "description": "Runs it", "input_schema": {"type": "object"}},
        {"name": "Read", "description": "Reads it", "input_schema": {"type": "object"}, **cached},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ]
    system = [{"type": "text", "text": "You are a coding agent."}, {"type": "text", "text": "cwd: /", **cached}]
    reminder = {"type": "text", "text": "<system-reminder>Be careful.</system-reminder>"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [reminder, {"type": "text", "text": "as-claude-code: list the files", **cached}]}
    ]
    rules = '{question} [[call Bash {"command": "ls"}]] [[call Read {"file_path": "/a"}]] [[say Two files.]]'

    def ask(given: dict[str, Any]) -> Any:
        with client.beta.messages.stream(
            model="claude-house",
            max_tokens=32_000,
            system=system,
            tools=tools,
            messages=messages,
            metadata={"user_id": "user_1"},
            thinking={"type": "enabled", "budget_tokens": 31_999},
            betas=["claude-code-20250219", "interleaved-thinking-2025-05-14"],
            extra_body=given,
        ) as stream:
            return stream.get_final_message()

    first = ask(plan(("alpha", rules)))
    assert (first.model, first.stop_reason) == ("claude-house", "tool_use")
    calls = [block.to_dict() for block in first.content if block.type == "tool_use"]
    assert [(call["name"], call["input"]) for call in calls] == [
        ("Bash", {"command": "ls"}),
        ("Read", {"file_path": "/a"}),
    ]
    listed = {"type": "tool_result", "tool_use_id": calls[0]["id"], "content": "a b", "is_error": False}
    read = {"type": "tool_result", "tool_use_id": calls[1]["id"], "content": [{"type": "text", "text": "A"}], **cached}
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": [listed, read, reminder]},
    ]
    second = ask({})
    assert text_in(second.to_dict()) == "Two files."
    asked, answered = endpoint.asked("as-claude-code")
    assert {tool["function"]["name"] for tool in asked.body["tools"]} == {"Bash", "Read"}
    assert [turn["content"] for turn in answered.messages if turn["role"] == "tool"] == ["a b", "A"]


def test_tokens_are_counted_and_no_worker_is_asked(client: Any, endpoint: Endpoint) -> None:
    few = client.messages.count_tokens(model="fugu", messages=[{"role": "user", "content": "counted-only"}])
    many = client.messages.count_tokens(
        model="fugu", system="Be brief. " * 50, messages=[{"role": "user", "content": "counted-only"}], tools=[WEATHER]
    )
    assert 0 < few.input_tokens < many.input_tokens
    assert endpoint.asked("counted-only") == []
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="claude-0", messages=ASKED)


def test_models_are_listed_in_anthropics_shape(client: Any) -> None:
    listed = list(client.models.list())
    assert {"fugu", "fugu-ultra", "house", "claude-house"} <= {model.id for model in listed}
    assert {model.type for model in listed} == {"model"}
    assert client.models.retrieve("fugu").display_name
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.models.retrieve("claude-0")
    assert unknown.value.type == "not_found_error"
    assert unknown.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude-0", max_tokens=10, messages=ASKED)


def test_a_stream_that_fails_raises_in_the_sdk(client: Any) -> None:
    given = plan(("alpha", "[[say paid]]"), ("alpha", "[[fail 500]]"))
    with pytest.raises(anthropic.APIError):
        streamed(client, messages=ASKED, extra_body=given)

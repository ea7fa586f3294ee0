"""Chat completions: what requests ask, and answers and streams that OpenAI's own SDK takes."""

import json
from typing import Any

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai import OpenAI
from openai._streaming import SSEDecoder
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from conductor_core.chat.messages import ImagePart, TextPart, ToolCallPart, ToolResultPart
from conductor_core.serving.chat import Stream, read, whole
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Beat, Called, Outcome, Text, named
from conductor_core.serving.reading import Asked
from tests.support.any_json import response
from tests.support.serving_cases import (
    CALLS,
    FAILED,
    PNG_URL,
    RUN,
    SPENT,
    WORKFLOW,
    changed,
    deep,
    outcome,
    parts,
    tried,
)

HI = {"role": "user", "content": "Hi"}
FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CUSTOM = {"type": "custom", "custom": {"name": "patch", "description": "Patches.", "format": {"type": "text"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True}}
EVERYTHING: dict[str, Any] = {
    "model": "fugu",
    "messages": [
        {"role": "system", "content": "Be brief.", "name": None},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "text", "text": "Look!"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}}]},
        {"role": "developer", "content": [{"type": "text", "text": "Use tools."}]},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "audio": None,
            "reasoning_content": "Planned.",
            "conductor": {"trace_id": RUN},
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}, "index": 0},
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "a"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "red"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "done"}]},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "stop": ["END"],
    "max_tokens": 10,
    "max_completion_tokens": 20,
    "tools": [FUNCTION, CUSTOM, {"type": "web_search"}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "response_format": SCHEMA,
    "reasoning_effort": "xhigh",
    "store": False,
    "metadata": {"who": "me"},
    "n": 1,
    "logprobs": False,
    "top_logprobs": None,
    "temperature": 0.2,
    "top_p": 1,
    "seed": -3,
    "presence_penalty": 0,
    "frequency_penalty": None,
    "user": "me",
    "logit_bias": {"5": 1},
    "parallel_tool_calls": True,
    "modalities": ["text"],
    "verbosity": "low",
    "conductor": {"exclude": ["bob"], "workflow": WORKFLOW},
}


def asked(messages: Any = (HI,), **fields: Any) -> Asked:
    return read(json.dumps({"model": "fugu", "messages": messages, **fields}).encode())


def test_everything_that_is_obeyed_is_read() -> None:
    read_ = read(json.dumps(EVERYTHING).encode())
    assert (read_.api, read_.model, read_.system) == ("chat", "fugu", "Be brief.\n\nUse tools.")
    assert [turn.role for turn in read_.turns] == ["user", "assistant", "user"]
    first = read_.turns[0].content
    assert isinstance(first, tuple)
    assert [type(part).__bases__[0] if isinstance(part, ImagePart) else type(part) for part in first] == [
        TextPart,
        TextPart,
        ImagePart,
    ]
    assert read_.turns[1].content == (
        ToolCallPart(call_id="c1", name="look", arguments="{}"),
        ToolCallPart(call_id="c2", name="patch", arguments='{"input": "a"}'),
    )
    assert read_.results == (ToolResultPart(call_id="c1", text="red"), ToolResultPart(call_id="c2", text="done"))
    assert (read_.stream, read_.include_usage, read_.store) == (True, True, False)
    assert [(tool.name, tool.custom) for tool in read_.tools] == [("look", False), ("patch", True)]
    assert read_.tool_choice == "look"
    rules = read_.rules
    assert (rules.max_tokens, rules.stop, rules.form, rules.schema_name) == (20, ("END",), "schema", "answer")
    assert (read_.effort, read_.excluded, read_.echoed) == ("xhigh", ("bob",), {"metadata": {"who": "me"}})
    assert read_.workflow is not None


def test_a_plain_request_has_the_usual_values() -> None:
    read_ = asked(stop="x", tool_choice=None, max_tokens=None, store=None, unknown={"a": [1]})
    assert (read_.stream, read_.include_usage, read_.store, read_.tool_choice) == (False, False, True, "auto")
    assert (read_.rules.stop, read_.rules.max_tokens, read_.effort, read_.summaries) == (("x",), None, None, None)


def test_allowed_tools_leave_the_others_out() -> None:
    allowed = {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "patch"}}]}
    read_ = asked(tools=[FUNCTION, CUSTOM], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool.name for tool in read_.tools] == ["patch"]
    assert read_.tool_choice == "required"


ASSISTANT = {"role": "assistant", "content": "Sure:"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"), ({"n": 0}, "n"), ({"n": "1"}, "n"), ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"), ({"model": None}, "model"), ({"model": 3}, "model"),
        ({"model": ""}, "model"), ({"temperature": "hot"}, "temperature"), ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens"), ({"max_tokens": 10**30}, "max_tokens"),
        ({"stop": 3}, "stop"), ({"stop": ["a"] * 5}, "stop"), ({"stop": ["a", 3]}, "stop[1]"), ({"stop": ""}, "stop"),
        ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": "Hi"}, "messages"),
        ({"messages": {}}, "messages"), ({"messages": [3]}, "messages[0]"), ({"messages": [HI, ASSISTANT]}, "messages"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [{**ASSISTANT, "tool_calls": {}}, HI]}, "messages[0].tool_calls"),
        ({"messages": [{**ASSISTANT, "tool_calls": [{"id": "a"}]}, HI]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.org/b"}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        ({"tools": {}}, "tools"), ({"tools": [FUNCTION] * 600}, "tools"),
        ({"tools": [{}]}, "tools[0].type"), ({"tools": [FUNCTION] * 2}, "tools"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "maybe"}, "tool_choice"), ({"tool_choice": 3}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
         "response_format.json_schema.schema"),
        ({"reasoning_effort": "hard"}, "reasoning_effort"), ({"store": "no"}, "store"),
        ({"metadata": {"a": 1}}, "metadata.a"), ({"metadata": []}, "metadata"),
        ({"stream_options": True}, "stream_options"), ({"conductor": "a"}, "conductor"),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_a_400_that_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**{"messages": [HI], **fields})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert set(caught.value.document("chat", "")["error"]) == {"message", "type", "param", "code"}


@given(changed(EVERYTHING, {**EVERYTHING, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}))
@example(json.dumps({**EVERYTHING, "messages": deep()}).encode())
@example(json.dumps({"model": "a\ud83d", "messages": [{"role": "user", "content": "\ude00"}]}).encode())
def test_no_change_of_a_request_raises_anything_but_a_400(body: bytes) -> None:
    found = tried(read, body)
    assert isinstance(found, Asked) or (found.status == 400 and json.dumps(found.document("chat", "")))


# Answers.


def test_the_specifications_example_of_usage() -> None:
    assert whole(outcome("chat"))["usage"] == {
        "prompt_tokens": 150,
        "completion_tokens": 60,
        "total_tokens": 415,
        "prompt_tokens_details": {
            "cached_tokens": 20,
            "orchestration_input_tokens": 80,
            "orchestration_input_cached_tokens": 10,
        },
        "completion_tokens_details": {"reasoning_tokens": 15, "orchestration_output_tokens": 125},
    }
    assert SPENT.total_tokens == 415


def test_a_whole_answer_is_what_the_sdk_reads() -> None:
    ended = outcome("chat", summaries=("Planned.", "Drafted."))
    answer = whole(ended)
    read_ = ChatCompletion.model_validate(answer, strict=True)
    choice = read_.choices[0]
    assert (choice.message.content, choice.finish_reason, choice.message.refusal) == ("Hello", "stop", None)
    assert "tool_calls" not in answer["choices"][0]["message"]
    assert answer["choices"][0]["message"]["reasoning_content"] == "Planned.\n\nDrafted."
    assert answer["conductor"] == ended.conductor
    assert read_.model == "fugu"
    assert named(read_.id) == (RUN, 0)
    assert "reasoning_content" not in whole(outcome("chat"))["choices"][0]["message"]


def test_calls_have_their_arguments_as_text_and_no_content_beside_them() -> None:
    custom = Called(2, "call_x", "patch", "*** Begin", custom=True)
    answer = whole(outcome("chat", text=None, finish="tool_calls", calls=(*CALLS, custom)))
    read_ = ChatCompletion.model_validate(answer, strict=True).choices[0]
    assert (read_.finish_reason, read_.message.content) == ("tool_calls", None)
    told = answer["choices"][0]["message"]["tool_calls"]
    assert [call["id"] for call in told] == [*(call.call_id for call in CALLS), "call_x"]
    assert [told[0]["function"]["arguments"], told[1]["function"]["arguments"]] == ['{"at": "x"}', "{}"]
    assert told[2]["custom"] == {"name": "patch", "input": "*** Begin"}


def test_a_refusal_is_no_content() -> None:
    message = whole(outcome("chat", text=None, finish="content_filter", refusal="No."))["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "No.")


def test_an_answer_comes_back_as_a_message() -> None:
    message = whole(outcome("chat", summaries=("Planned.",), calls=CALLS, finish="tool_calls"))["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call.call_id, "content": "r"} for call in CALLS]
    assert [result.call_id for result in asked([HI, message, *results]).results] == [call.call_id for call in CALLS]


# Streams.


def streamed(ended: Outcome, *, include_usage: bool = False) -> list[Any]:
    """Returns the data of all events of a stream, as the SDK reads them; of the last one its text."""
    stream = Stream(include_usage=include_usage)
    data: list[Any] = []
    for part in parts(ended):
        for written in stream.feed(part):
            events = list(SSEDecoder().iter_bytes(iter([written])))
            assert len(events) == 1
            assert written.endswith(b"\n\n")
            data.append(events[0].data if events[0].data == "[DONE]" else json.loads(events[0].data))
    assert data[-1] == "[DONE]"
    return data


def joined(chunks: list[Any], name: str) -> str:
    return "".join(choice["delta"].get(name) or "" for chunk in chunks for choice in chunk["choices"])


TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\n\r\x85\u2028"), min_size=1, max_size=30)


@given(TEXT, st.lists(TEXT, max_size=2), st.booleans())
def test_a_stream_is_the_whole_answer_in_pieces(text: str, summaries: list[str], include_usage: bool) -> None:
    ended = outcome("chat", text=text, summaries=tuple(summaries))
    *chunks, _ = streamed(ended, include_usage=include_usage)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    answer = whole(ended)
    message = answer["choices"][0]["message"]
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {
        (answer["id"], answer["created"], "fugu")
    }
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert joined(chunks, "content") == message["content"]
    assert joined(chunks, "reasoning_content") == message.get("reasoning_content", "")
    finished = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert finished == ["stop"]
    assert [chunk["conductor"] for chunk in chunks if "conductor" in chunk] == [ended.conductor]
    assert "conductor" in chunks[-1]
    assert [chunk["usage"] for chunk in chunks if "usage" in chunk] == ([answer["usage"]] if include_usage else [])
    if include_usage:
        assert chunks[-1]["choices"] == []


def test_the_sdk_puts_a_stream_together() -> None:
    ended = outcome("chat", text="Hello\n\n", summaries=("Planned.",), calls=CALLS, finish="tool_calls")
    stream = Stream(include_usage=True)
    body = b"".join(written for part in parts(ended) for written in stream.feed(part))
    transport = httpx2.MockTransport(lambda _: response(body, kind="text/event-stream"))
    client = OpenAI(api_key="x", base_url="http://t/v1", http_client=httpx2.Client(transport=transport))
    with client, client.chat.completions.stream(model="fugu", messages=[]) as told:
        read_ = told.get_final_completion()
    assert read_.choices[0].message.content == "Hello\n\n"
    calls = read_.choices[0].message.tool_calls or []
    assert [call.function.arguments for call in calls] == ['{"at": "x"}', "{}"]
    assert read_.usage is not None
    assert read_.usage.total_tokens == 415


def test_calls_come_by_index_with_their_arguments_after_them() -> None:
    *chunks, _ = streamed(outcome("chat", text=None, finish="tool_calls", calls=CALLS))
    told = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert told == [
        {"index": 0, "id": CALLS[0].call_id, "type": "function", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"at": "x"}'}},
        {"index": 1, "id": CALLS[1].call_id, "type": "function", "function": {"name": "list", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_failed_stream_ends_in_the_error() -> None:
    *_, last, _ = streamed(outcome("chat", status="failed", finish=None, error=FAILED), include_usage=True)
    assert last["error"]["code"] == "schema_mismatch"
    assert "choices" not in last
    assert last["conductor"]["trace_id"] == RUN


def test_a_stream_that_breaks_names_the_run_if_it_began() -> None:
    stream = Stream()
    broken, done = stream.fault(FAILED)
    assert b"schema_mismatch" in broken
    assert b"conductor" not in broken
    assert done == b"data: [DONE]\n\n"
    stream.feed(next(parts(outcome("chat"))))
    assert RUN.encode() in stream.fault(FAILED)[0]


def test_a_refusal_is_streamed_as_one() -> None:
    *chunks, _ = streamed(outcome("chat", text=None, finish="content_filter", refusal="No."))
    assert joined(chunks, "refusal") == "No."


def test_a_heartbeat_is_a_comment_and_half_a_character_breaks_nothing() -> None:
    stream = Stream()
    (beat,) = stream.feed(Beat())
    assert beat.startswith(b":")
    assert list(SSEDecoder().iter_bytes(iter([beat]))) == []
    (written,) = stream.feed(Text("a\ud83d\u2028b"))
    assert len(written.decode().strip().splitlines()) == 1

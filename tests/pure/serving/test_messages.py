"""Anthropic's Messages: what requests ask, answers, streams, and estimates of tokens."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from conductor_core.chat.messages import ImagePart, TextPart, ToolCallPart, ToolResultPart
from conductor_core.serving.errors import ApiError
from conductor_core.serving.messages import Stream, count_tokens, read, whole
from conductor_core.serving.outcome import Beat, Called, Outcome, Spending, named
from conductor_core.serving.reading import Asked
from tests.support.serving_cases import CALLS, FAILED, PNG, RUN, WORKFLOW, changed, deep, outcome, parts, tried

HI = {"role": "user", "content": "Hi"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "cache_control": {"type": "x"}}
TEXTS = [{"type": "text", "text": "F"}]
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": "x"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
EVERYTHING: dict[str, Any] = {
    "model": "claude-fugu",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "What is this?"},
        {"role": "user", "content": [{"type": "text", "text": "Look!", "citations": None}, IMAGE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}},
                {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
            ],
        },
        {"role": "system", "content": "Use tools."},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "red", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [
                        {"type": "text", "text": "done"},
                        IMAGE,
                        {"type": "tool_reference", "tool_name": "list"},
                        {"type": "search_result", "title": "T", "source": "S", "content": TEXTS},
                    ],
                },
                {"type": "document", "title": "Notes", "source": {"type": "text", "data": "written"}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "more"}]}},
            ],
        },
    ],
    "stream": True,
    "stop_sequences": ["END"],
    "tools": [TOOL, {"type": "custom", **TOOL, "name": "list"}, {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "metadata": {"user_id": "me"},
    "temperature": 1,
    "top_p": None,
    "top_k": 5,
    "conductor": {"exclude": ["bob"], "workflow": WORKFLOW},
}  # fmt: skip


def asked(messages: Any = (HI,), **fields: Any) -> Asked:
    return read(json.dumps({"model": "fugu", "max_tokens": 5, "messages": messages, **fields}).encode())


def test_everything_that_is_obeyed_is_read() -> None:
    read_ = read(json.dumps(EVERYTHING).encode())
    assert (read_.api, read_.model, read_.system) == ("messages", "claude-fugu", "Be brief.\n\nUse tools.")
    assert [turn.role for turn in read_.turns] == ["user", "assistant", "user"]
    first, second, third = (turn.content for turn in read_.turns)
    assert isinstance(first, tuple)
    assert first[:2] == (TextPart(text="What is this?"), TextPart(text="Look!"))
    assert isinstance(first[2], ImagePart)
    assert second == (
        TextPart(text="I look."),
        ToolCallPart(call_id="c1", name="look", arguments='{"at": "x"}'),
        ToolCallPart(call_id="c2", name="look", arguments="{}"),
    )
    assert read_.results[0] == ToolResultPart(call_id="c1", text="red", is_error=True)
    assert read_.results[1].text.startswith("done\n\n[image: PNG")
    assert read_.results[1].text.endswith("[tool: list]\n\nT\nS\nF")
    assert [part.text for part in third if isinstance(part, TextPart)] == ["Notes", "written", "more"]
    assert sum(isinstance(part, ImagePart) for part in third) == 1
    assert [tool.name for tool in read_.tools] == ["look", "list"]
    assert (read_.stream, read_.tool_choice, read_.effort) == (True, "required", "max")
    assert (read_.rules.max_tokens, read_.rules.stop, read_.rules.form) == (100, ("END",), "schema")
    assert (read_.summaries, read_.excluded, read_.echoed) == (False, ("bob",), {"metadata": {"user_id": "me"}})
    assert read_.workflow is not None


def test_tools_of_the_provider_leave_nothing_to_choose() -> None:
    hosted = [{"type": "web_search_20250305", "name": "web_search"}]
    assert asked(tools=hosted, tool_choice={"type": "any"}).tool_choice == "auto"
    assert asked(tools=[TOOL], tool_choice={"type": "tool", "name": "look"}).tool_choice == "look"
    assert asked(tools=[TOOL], tool_choice={"type": "none"}).tool_choice == "none"


def of_user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": "5"}, "max_tokens"),
        ({"system": 3}, "system"), ({"system": [{"type": "image"}]}, "system[0].type"), ({"messages": []}, "messages"),
        ({"messages": None}, "messages"), ({"messages": [{"role": "tool"}]}, "messages[0].role"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [HI, {"role": "assistant", "content": "{"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": [{"type": "image"}]}, HI]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "content": [CALL]}, HI]},
         "messages[0].content[0].input"),
        (of_user(3), "messages[0].content[0]"), (of_user({"type": "text", "text": 3}), "messages[0].content[0].text"),
        (of_user({"type": "tool_result", "content": "a"}), "messages[0].content[0].tool_use_id"),
        (of_user({"type": "tool_result", "tool_use_id": "a", "content": 3}), "messages[0].content[0].content"),
        (of_user({"type": "tool_result", "tool_use_id": "a", "is_error": "no"}), "messages[0].content[0].is_error"),
        (of_user({"type": "image"}), "messages[0].content[0].source"),
        (of_user({"type": "image", "source": {"type": "url", "url": "https://a.org/b"}}),
         "messages[0].content[0].source.url"),
        (of_user({"type": "image", "source": {"type": "file", "file_id": "x"}}), "messages[0].content[0].source.type"),
        (of_user({"type": "image", "source": {"type": "base64", "data": "QUJD"}}),
         "messages[0].content[0].source.data"),
        (of_user({"type": "document", "source": {"type": "base64", "data": "QUJD"}}),
         "messages[0].content[0].source.type"),
        ({"stop_sequences": "a"}, "stop_sequences"), ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"tools": [{"name": "f", "input_schema": 3}]}, "tools[0].input_schema"),
        ({"tools": [TOOL] * 600}, "tools"), ({"tools": [{}]}, "tools[0].name"),
        ({"tool_choice": "auto"}, "tool_choice"), ({"tool_choice": {}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "gone"}}, "tool_choice"),
        ({"output_config": {"effort": "hard"}}, "output_config.effort"), ({"stream": "yes"}, "stream"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "strin"}}}},
         "output_config.format.schema"),
        ({"temperature": []}, "temperature"), ({"metadata": {"user_id": 3}}, "metadata.user_id"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_a_400_that_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**{"messages": [HI], **fields})
    assert (caught.value.status, caught.value.param) == (400, param)
    document = caught.value.document("messages", "req_1")
    assert document["error"]["type"] == "invalid_request_error"
    assert param in document["error"]["message"]


@given(changed(EVERYTHING))
@example(json.dumps({**EVERYTHING, "messages": deep()}).encode())
@example(json.dumps({**EVERYTHING, "system": "\ud83d"}).encode())
def test_no_change_of_a_request_raises_anything_but_a_400(body: bytes) -> None:
    for reader in (read, count_tokens):
        found = tried(reader, body)
        assert found
        assert not isinstance(found, ApiError) or found.status == 400


def test_tokens_are_counted_with_system_and_tools() -> None:
    _, plain = count_tokens(json.dumps({"model": "fugu", "messages": [HI]}).encode())
    assert 0 < plain < 10
    longer = {"model": "fugu", "messages": [HI], "system": "a" * 400, "tools": [{**TOOL, "description": "b" * 400}]}
    _, counted = count_tokens(json.dumps(longer).encode())
    assert plain + 200 <= counted < plain + 250
    with pytest.raises(ApiError):
        count_tokens(b'{"model": "fugu", "messages": []}')


# Answers.


def test_the_specifications_example_of_usage() -> None:
    assert whole(outcome("messages"))["usage"] == {
        "input_tokens": 130,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 20,
        "output_tokens": 60,
    }


def test_a_whole_answer_has_what_the_protocol_says() -> None:
    ended = outcome("messages", summaries=("Planned.",))
    answer = whole(ended)
    assert named(answer.pop("id")) == (RUN, 0)
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "fugu",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": answer["usage"],
        "conductor": ended.conductor,
    }


@pytest.mark.parametrize(
    ("fields", "reason", "sequence"),
    [
        ({"finish": "length", "status": "incomplete"}, "max_tokens", None),
        ({"stop_sequence": "END"}, "stop_sequence", "END"),
        ({"finish": "tool_calls", "calls": CALLS}, "tool_use", None),
        ({"refusal": "No.", "text": None}, "refusal", None),
        ({"finish": "content_filter", "status": "incomplete"}, "refusal", None),
    ],
)
def test_why_an_answer_stopped(fields: dict[str, Any], reason: str, sequence: str | None) -> None:
    ended = outcome("messages", **fields)
    answer = whole(ended)
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
    told = joined(ended)
    assert {name: told[name] for name in answer} == answer
    if ended.refusal:
        assert answer["content"] == [{"type": "text", "text": "No."}]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"at": "x"}', {"at": "x"}), ("", {}), ("{", {"arguments": "{"}), ("[1]", {"arguments": "[1]"}),
        ('{"a": 1e999}', {"arguments": '{"a": 1e999}'}), ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ('{"a": ' * 5000, {"arguments": '{"a": ' * 5000}),
    ],
)  # fmt: skip
def test_the_input_of_a_call_is_an_object_whatever_a_model_wrote(arguments: str, given: dict[str, Any]) -> None:
    ended = outcome("messages", text=None, finish="tool_calls", calls=(Called(0, "call_1", "look", arguments),))
    answer = whole(ended)
    assert answer["content"] == [{"type": "tool_use", "id": "call_1", "name": "look", "input": given}]
    assert joined(ended)["content"] == answer["content"]


def test_an_answer_comes_back_as_a_message() -> None:
    answer = whole(outcome("messages", calls=CALLS, finish="tool_calls"))
    results = [{"type": "tool_result", "tool_use_id": call.call_id} for call in CALLS]
    read_ = asked([HI, answer, {"role": "user", "content": results}])
    assert [result.call_id for result in read_.results] == [call.call_id for call in CALLS]


# Streams.


def streamed(ended: Outcome) -> list[Any]:
    stream = Stream(request_id="req_1")
    data: list[Any] = []
    for part in parts(ended):
        for written in stream.feed(part):
            (one,) = SSEDecoder().iter_bytes(iter([written]))
            data.append(json.loads(one.data))
            assert one.event == data[-1]["type"]
    return data


def joined(ended: Outcome) -> dict[str, Any]:
    """Returns the message that a client makes of a stream. It holds the order of the events."""
    start, *events, last, stop = streamed(ended)
    assert (start["type"], last["type"]) == ("message_start", "message_delta")
    assert stop == {"type": "message_stop", "conductor": last["conductor"]}
    message: dict[str, Any] = start["message"]
    assert message["content"] == []
    opened = False
    pieces = ""
    for event in events:
        assert event["index"] == len(message["content"]) - opened
        if event["type"] == "content_block_start":
            assert not opened
            message["content"].append(event["content_block"])
            opened, pieces = True, ""
        elif event["type"] == "content_block_delta":
            assert opened
            pieces += event["delta"]["text" if event["delta"]["type"] == "text_delta" else "partial_json"]
        else:
            block = message["content"][-1]
            block |= {"text": pieces} if block["type"] == "text" else {"input": json.loads(pieces)}
            opened = False
    assert not opened
    return {**message, **last["delta"], "usage": last["usage"], "conductor": last["conductor"]}


@given(st.text(min_size=1, max_size=30), st.lists(st.text(min_size=1), max_size=2), st.sampled_from([(), CALLS]))
def test_a_stream_is_the_whole_answer_in_pieces(text: str, summaries: list[str], calls: tuple[Called, ...]) -> None:
    finish = "tool_calls" if calls else "stop"
    ended = outcome("messages", text=text, summaries=tuple(summaries), calls=calls, finish=finish)
    assert joined(ended) == whole(ended)


def test_a_failed_stream_ends_in_the_error_after_its_block() -> None:
    told = streamed(outcome("messages", status="failed", finish=None, error=FAILED))
    assert told[-2]["type"] == "content_block_stop"
    assert told[-1]["error"] == {"type": "invalid_request_error", "message": FAILED.message}
    assert (told[-1]["request_id"], told[-1]["conductor"]["trace_id"]) == ("req_1", RUN)


def test_a_heartbeat_is_a_ping() -> None:
    assert Stream().feed(Beat()) == [b'event: ping\ndata: {"type":"ping"}\n\n']


def test_an_answer_of_a_cache_that_says_more_than_was_read_is_not_negative() -> None:
    spent = Spending(input_tokens=5, cached_tokens=9)
    assert whole(outcome("messages", spending=spent))["usage"]["input_tokens"] == 0

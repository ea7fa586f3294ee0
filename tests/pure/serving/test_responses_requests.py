"""What a request of the Responses API asks, in all the shapes in which clients send it, and which are refused where."""

import copy
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response
from openai.types.responses.response_item import ResponseItem
from PIL import Image
from pydantic import TypeAdapter

from conductor_core.chat.messages import (
    AnswerRules,
    ImagePart,
    LoadedImage,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from conductor_core.run.request import ClientRequest
from conductor_core.serving.compaction import sealed
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Called
from conductor_core.serving.reading import Asked
from conductor_core.serving.responses import input_items, input_system, page, read, read_compact, whole
from tests.pure.serving.test_responses import BEGUN, RUN
from tests.support.any_json import ANY

KEY = Fernet.generate_key()
SEALED = sealed("Be kind.", [Message(role="user", content="Then"), Message(role="assistant", content="Yes")], KEY)


def _png() -> str:
    file = io.BytesIO()
    Image.new("RGB", (2, 3), "red").save(file, "PNG")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


PNG = _png()
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {}}}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": GRAMMAR}


def nobody(_: str) -> None:
    return None


def asked(given: Any = "Hi", **fields: Any) -> Asked:
    return read(json.dumps({"model": "fugu", "input": given, **fields}).encode(), nobody, KEY)


def refusal(given: Any = "Hi", **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        asked(given, **fields)
    assert caught.value.status == 400
    return caught.value


def user(text: str) -> Message:
    return Message(role="user", content=text)


# Conversations.


def test_a_text_is_the_users_turn() -> None:
    read_one = asked("Hi")
    assert read_one.turns == (user("Hi"),)
    assert (read_one.model, read_one.api, read_one.store, read_one.stream) == ("fugu", "responses", True, False)


def test_instructions_and_system_messages_are_told_apart_from_the_turns() -> None:
    items = [
        {"role": "system", "content": "A."},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "B."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_text", "text": "there"}]},
    ]
    read_one = asked(items, instructions="I.")
    assert read_one.system == "I.\n\nA.\n\nB."
    assert read_one.turns == (user("Hi\n\nthere"),)
    assert input_system(read_one.system, read_one.echoed) == "A.\n\nB."


def test_all_that_we_answered_comes_back_as_history() -> None:
    calls = (Called(0, "call_a", "look", '{"at": 1}'), Called(1, "call_b", "apply_patch", "*** Begin", custom=True))
    answered = whole(replace(BEGUN, status="completed", summaries=("thought",), text="Let me see.", calls=calls))
    results = [
        {"type": "function_call_output", "call_id": "call_a", "output": "7", "status": None, "id": None},
        {"type": "custom_tool_call_output", "call_id": "call_b", "output": [{"type": "input_text", "text": "Done"}]},
    ]
    read_one = asked(
        [{"role": "user", "content": "Look"}, *answered["output"], *results], conductor=answered["conductor"]
    )
    assert read_one.turns == (
        user("Look"),
        Message(
            role="assistant",
            content=(
                TextPart(text="Let me see."),
                ToolCallPart(call_id="call_a", name="look", arguments='{"at": 1}'),
                ToolCallPart(call_id="call_b", name="apply_patch", arguments='{"input": "*** Begin"}'),
            ),
        ),
        Message(
            role="user",
            content=(ToolResultPart(call_id="call_a", text="7"), ToolResultPart(call_id="call_b", text="Done")),
        ),
    )
    assert [result.call_id for result in read_one.results] == ["call_a", "call_b"]


def test_items_of_a_servers_own_tools_are_history_that_nobody_is_told() -> None:
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x", "content": None},
        {"type": "shell_call_output", "call_id": "s", "output": []},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "phase": "final_answer", "id": "m"},
        {"role": "user", "content": "Hi"},
    ]
    assert asked(items).turns == (Message(role="assistant", content="No."), user("Hi"))


def test_an_image_comes_with_the_user_and_from_a_tool() -> None:
    image = {"type": "input_image", "image_url": PNG, "detail": "auto"}
    (turn,) = asked([{"role": "user", "content": [{"type": "input_text", "text": "See"}, image]}]).turns
    assert [type(part) for part in turn.content] == [TextPart, LoadedImage]
    items = [{"role": "user", "content": "Go"}, {"type": "function_call_output", "call_id": "c", "output": [image]}]
    (turn,) = asked(items).turns
    result = turn.content[1]
    assert isinstance(result, ToolResultPart)
    assert "2 x 3 pixels" in result.text
    assert isinstance(turn.content[2], ImagePart)


def test_a_reference_is_what_was_recorded_at_its_place() -> None:
    recorded = {
        "msg_1": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}]
    }
    items = [
        {"role": "user", "content": "So?"},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": "Hm"},
    ]
    body = {"model": "fugu", "input": items}
    turns = read(json.dumps(body).encode(), recorded.get, KEY).turns
    assert turns == (user("So?"), Message(role="assistant", content="Yes"), user("Hm"))
    assert refusal(items).param == "input[1].id"
    del items[1]["type"]
    assert refusal(items).param == "input[1].id"
    with pytest.raises(ApiError):
        read(json.dumps(body).encode(), lambda name: [{"type": "item_reference", "id": name}], KEY)


def test_items_are_looked_up_once_and_not_without_end() -> None:
    asked_for: list[str] = []

    def resolve(name: str) -> list[dict[str, Any]]:
        asked_for.append(name)
        return [{"role": "assistant", "content": name}]

    def items(count: int) -> bytes:
        references = [{"type": "item_reference", "id": f"msg_{number // 2}"} for number in range(count)]
        return json.dumps({"model": "fugu", "input": [*references, {"role": "user", "content": "Hi"}]}).encode()

    read(items(8), resolve, KEY)
    assert asked_for == ["msg_0", "msg_1", "msg_2", "msg_3"]
    with pytest.raises(ApiError) as caught:
        read(items(100_000), resolve, KEY)
    assert caught.value.status == 400


def test_a_compacted_conversation_is_continued() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": SEALED}
    read_one = asked([item, {"role": "user", "content": "Now"}])
    assert read_one.system == "Be kind."
    assert [turn.text for turn in read_one.turns] == ["Then", "Yes", "Now"]
    for broken in (SEALED[:-3], "x", "é", sealed("", [], Fernet.generate_key())):
        assert refusal([{**item, "encrypted_content": broken}]).param == "input[0].encrypted_content"


# Tools.


def test_tools_of_the_client_are_offered_and_those_of_openai_left_out() -> None:
    nameless = {"type": "function", "name": "g", "strict": True, "description": None}
    read_one = asked(tools=[FUNCTION, CUSTOM, {"type": "web_search"}, nameless])
    assert [(tool.name, tool.custom) for tool in read_one.tools] == [
        ("look", False),
        ("apply_patch", True),
        ("g", False),
    ]
    assert read_one.echoed["tools"] == [
        {**FUNCTION, "description": "", "strict": False},
        CUSTOM,
        {"type": "function", "name": "g", "description": "", "parameters": {}, "strict": True},
    ]


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "look"}, "look"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "web_search_preview"}, "auto"),
    ],
)
def test_each_shape_of_tool_choice(given: Any, choice: str) -> None:
    read_one = asked(tools=[FUNCTION, CUSTOM], tool_choice=given)
    assert read_one.tool_choice == choice
    assert read_one.echoed["tool_choice"] == ("auto" if choice == "auto" else given)


def test_allowed_tools_leave_out_the_others() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}
    read_one = asked(tools=[FUNCTION, CUSTOM], tool_choice=allowed)
    assert [tool.name for tool in read_one.tools] == ["look"]
    assert read_one.tool_choice == "required"
    assert len(read_one.echoed["tools"]) == 2


# What the answer is to be.


def test_the_answer_and_its_making_follow_the_request() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    read_one = asked(
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}, "verbosity": "low"},
        max_output_tokens=50,
        reasoning={"effort": "high", "summary": "auto"},
        store=False,
        stream=True,
        previous_response_id="resp_x",
    )
    assert read_one.rules == AnswerRules(max_tokens=50, form="schema", json_schema=schema, schema_name="n")
    assert (read_one.effort, read_one.summaries) == ("high", True)
    assert (read_one.store, read_one.stream, read_one.previous_response_id) == (False, True, "resp_x")


@pytest.mark.parametrize(("summary", "told"), [(None, None), ("none", False), ("auto", True), ("detailed", True)])
def test_summaries_are_told_if_asked_for(summary: str | None, told: bool | None) -> None:
    assert asked(reasoning={"summary": summary}).summaries is told
    assert asked().summaries is None


def test_a_response_repeats_its_request_with_openais_defaults() -> None:
    read_one = asked()
    client = ClientRequest(api="responses", model="fugu", echoed=read_one.echoed)
    plain = Response.model_validate(whole(replace(BEGUN, client=client)))
    assert plain.model_dump(include={"temperature", "top_p", "truncation", "tool_choice", "tools", "metadata"}) == {
        "temperature": 1.0, "top_p": 1.0, "truncation": "disabled", "tool_choice": "auto", "tools": [], "metadata": {},
    }  # fmt: skip
    sent = {
        "instructions": "I.",
        "max_output_tokens": 9,
        "max_tool_calls": 2,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": "s",
        "temperature": 0.2,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "tools": [{**FUNCTION, "description": "See.", "strict": True}],
        "tool_choice": {"type": "function", "name": "look"},
        "truncation": "auto",
        "user": "u",
    }
    client = ClientRequest(api="responses", model="fugu", echoed=asked(service_tier="flex", **sent).echoed)
    response = whole(replace(BEGUN, client=client))
    Response.model_validate(response)
    assert {name: response[name] for name in sent} == sent
    assert response["service_tier"] == "default"


def test_fields_without_effect_and_unknown_ones_are_taken() -> None:
    asked(
        include=["reasoning.encrypted_content"], client_metadata={"a": 1}, prompt_cache_retention="24h", seed=1,
        stream_options={"include_obfuscation": False}, background=False, top_logprobs=0, n=1, metadata=None, tools=None,
        tool_choice=None, text=None, reasoning=None, max_output_tokens=None, temperature=None, whatever=[None],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 1}, "model"),
        ({"input": None}, "input"),
        ({"input": 1}, "input"),
        ({"input": []}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"type": 1}]}, "input[0].type"),
        ({"input": [{"type": "mesage", "role": "user", "content": "Hi"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "Hi"}]}, "input[0].role"),
        ({"input": [{"type": "message", "content": "Hi"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"text": "Hi"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].image_url",
        ),
        ({"input": [{"role": "system", "content": [{"type": "input_image", "image_url": PNG}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"input": [{"role": "assistant", "content": "Hi"}]}, "input"),
        ({"instructions": ["I"]}, "instructions"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"n": 2}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"store": 1}, "store"),
        ({"temperature": "hot"}, "temperature"),
        ({"truncation": "half"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "no"}}}}, "text.format.schema"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tool_choice": 1}, "tool_choice"),
        ({"conductor": {"exclude": "a"}}, "conductor.exclude"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(fields: dict[str, Any], param: str) -> None:
    body = json.dumps({"model": "fugu", "input": "Hi", **fields}).encode()
    with pytest.raises(ApiError) as caught:
        read(body, nobody, KEY)
    assert (caught.value.status, caught.value.param) == (400, param)


# Whatever the bytes.

VALID: dict[str, Any] = {
    "model": "fugu",
    "input": [
        {"role": "system", "content": "S"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": SEALED},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "x"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": PNG}]},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "y"},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_image", "image_url": PNG, "detail": "low"}]},
    ],
    "instructions": "I",
    "tools": [FUNCTION, CUSTOM, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"},
    "conductor": {"exclude": ["w"], "workflow": {"steps": []}},
    "max_output_tokens": 5,
    "temperature": 1,
    "store": True,
    "stream": False,
    "previous_response_id": "resp_1",
    "truncation": "auto",
    "top_logprobs": 0,
    "user": "u",
}
del VALID["conductor"]["workflow"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


PLACES = list(places(VALID))
MESSAGE = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}]
HOSTILE = ANY | st.sampled_from(
    ["\ud83d", "", "x" * 300, [[]], {"type": "message"}, 2**1030, -1, 0.5, "none", "custom"]
)


def reads(body: bytes) -> Asked | None:
    """Returns what is read, which can be answered and repeated, or None if it is refused as a client's fault."""
    try:
        read_one = read(body, lambda _: MESSAGE, KEY)
    except ApiError as refused:
        _refused_well(refused)
        return None
    client = ClientRequest(api="responses", model=read_one.model, echoed=read_one.echoed)
    stored = ClientRequest.model_validate_json(client.model_dump_json())
    Response.model_validate(whole(replace(BEGUN, client=stored)))
    for turn in read_one.turns:
        turn.text.encode()
    return read_one


def _refused_well(error: ApiError) -> None:
    assert error.status == 400
    json.dumps(error.document("responses", "req_1")).encode()


def test_the_valid_request_is_read() -> None:
    assert reads(json.dumps(VALID).encode()) is not None


@given(st.sampled_from(PLACES[1:]), HOSTILE)
def test_any_value_at_any_place_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(VALID)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    reads(json.dumps(changed).encode())


@given(ANY)
def test_any_json_is_read_or_refused(value: Any) -> None:
    reads(json.dumps(value).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(body: bytes) -> None:
    assert reads(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "input": ' + b"[" * 100_000,
        b'{"model": "m", "input": ' + b'[{"role": "user", "content": ' * 5_000 + b'"x"' + b"}]" * 5_000 + b"}",
        b'{"model": "m", "input": "x", "temperature": NaN}',
        b'{"model": "m", "input": "x", "temperature": 1e999}',
        b'{"model": "m", "input": "x", "max_output_tokens": ' + b"9" * 5_000 + b"}",
        b'\xff\xfe{"model": "m"}',
    ],
)
def test_deep_huge_and_broken_requests_are_refused(body: bytes) -> None:
    assert reads(body) is None


def test_half_a_character_is_replaced() -> None:
    read_one = reads(b'{"model": "m", "input": "a\\ud83d"}')
    assert read_one is not None
    assert read_one.turns == (user("a\ufffd"),)


# The input, listed.


def test_the_items_of_a_conversation_read_as_the_same_conversation() -> None:
    first = reads(json.dumps(VALID).encode())
    assert first is not None
    custom = {tool.name for tool in first.tools if tool.custom} | {"apply_patch"}
    items = input_items(RUN, 0, first.turns, input_system(first.system, first.echoed), custom)
    second = asked(json.loads(json.dumps(items)), instructions="I")
    assert second.turns == first.turns
    assert second.system == first.system


def test_items_are_as_openais_package_reads_them() -> None:
    first = reads(json.dumps(VALID).encode())
    assert first is not None
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseItem)
    items = input_items(RUN, 3, first.turns, "S", {"apply_patch"})
    kinds = [adapter.validate_python(item).type for item in items]
    assert {"message", "function_call", "custom_tool_call", "function_call_output"} <= set(kinds)
    assert len({item["id"] for item in items}) == len(items)


def test_pages_follow_each_other_in_both_orders() -> None:
    items = [{"id": f"msg_{number}"} for number in range(5)]
    first = page(items, {"limit": "2"})
    assert [item["id"] for item in first["data"]] == ["msg_4", "msg_3"]
    assert (first["first_id"], first["last_id"], first["has_more"], first["object"]) == ("msg_4", "msg_3", True, "list")
    last = page(items, {"limit": "3", "order": "asc", "after": "msg_1"})
    assert [item["id"] for item in last["data"]] == ["msg_2", "msg_3", "msg_4"]
    assert not last["has_more"]
    assert page([], {}) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", "0"), ("limit", "101"), ("limit", "٣"), ("limit", "x"), ("order", "up"), ("after", "msg_9")],
)
def test_a_page_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(ApiError) as caught:
        page([{"id": "msg_1"}], {name: value})
    assert (caught.value.status, caught.value.param) == (400, name)


def test_a_compaction_needs_a_model_and_may_end_with_the_assistant() -> None:
    body = {"model": "fugu", "input": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]}
    assert len(read_compact(json.dumps(body).encode(), nobody, KEY).turns) == 2
    earlier = json.dumps({"model": "fugu", "previous_response_id": "resp_1"}).encode()
    assert read_compact(earlier, nobody, KEY).previous_response_id == "resp_1"
    with pytest.raises(ApiError) as caught:
        read_compact(b'{"input": "Hi"}', nobody, KEY)
    assert (caught.value.status, caught.value.param) == (400, "model")

"""What the three APIs share of reading requests: whatever the bytes, what is meant, or a 400 that names the place."""

import json
import warnings
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ImagePart, TextPart, ToolResultPart
from conductor_core.serving import chat
from conductor_core.serving.errors import ApiError
from conductor_core.serving.reading import (
    Conversation,
    Fields,
    Images,
    answer_schema_fault,
    custom_tool,
    distinct,
    function_tool,
    read_effort,
    read_extension,
    read_form,
    read_json,
    result_parts,
    tool_schema_fault,
)
from tests.support.any_json import ANY
from tests.support.serving_cases import CALLS, PNG, PNG_URL, WORKFLOW, deep, outcome, tried


def refused(call: Any, *arguments: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    assert caught.value.status == 400
    return caught.value


# JSON.


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"a"', b"1", b"\xff", b"{}x", b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}", b'{"a": ' + b"9" * 4000 + b"}",
        b'{"a": ' + str(2**1024 - 1).encode() + b"}", b'{"a":' * 100_000, b"[" * 1_000_000,
        b'{"a":' + b"[" * 150 + b"]" * 150 + b"}",
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_of_sane_size_is_a_400(body: bytes) -> None:
    assert refused(read_json, body).code == "invalid_json"


def test_half_characters_are_replaced_and_whole_ones_joined() -> None:
    read = read_json(b'\xef\xbb\xbf{"\\ud83d": "a\\ud83d", "b": ["\\ud83d\\ude00"]}')
    assert read.values == {"\ufffd": "a\ufffd", "b": ["\U0001f600"]}


def test_too_many_values_are_refused_unread_and_long_texts_are_not() -> None:
    error = tried(read_json, b'{"a": [' + b"[]," * 1_000_000 + b"[]]}")
    assert (error.status, error.code) == (413, "request_too_large")
    for text in (', [{"' * 500_000, '\\",' * 500_000):
        assert read_json(json.dumps({"a": text, "b": "c"}).encode()).text("a") == text


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    assert isinstance(tried(read_json, body), Fields | ApiError)


def test_a_fault_names_its_place_as_openai_does() -> None:
    inner = read_json(b'{"messages": [{}, {"content": [{"type": 3}]}]}').tables("messages")
    assert inner is not None
    error = refused(inner[1].parts("content")[0].needed_text, "type")
    assert error.param == "messages[1].content[0].type"
    assert error.message == "messages[1].content[0].type: expected a string, got an integer"


def test_a_count_that_is_as_large_as_a_number_may_be_is_refused_in_words() -> None:
    fields = read_json(json.dumps({"n": -(2**1023 - 1)}).encode())
    assert refused(fields.count, "n").param == "n"


# Images.


def test_an_image_is_read_once_however_often_it_comes() -> None:
    images = Images()
    first = images.of_url(PNG_URL, "a")
    assert (first.width, first.height, first.media_type) == (2, 3, "image/png")
    assert images.of_base64(PNG, "b") is first


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png", "file:///etc/passwd", "", "data:", "data:image/png,abc", "data:image/png;base64,",
        "data:image/png;base64,!!", "data:image/png;base64,QUJD", PNG_URL[:-60], "data:image/png;base64,é",
        f"data:application/pdf;base64,{b64encode(b'%PDF-1.7').decode()}",
    ],
)  # fmt: skip
def test_a_remote_or_broken_image_is_refused_with_its_place(url: str) -> None:
    error = refused(Images().of_url, url, "messages[0].content[1].image_url.url")
    assert (error.param, error.code) == ("messages[0].content[1].image_url.url", "invalid_image")


# Turns.


def test_messages_of_one_side_become_one_turn_and_results_are_those_after_the_assistant() -> None:
    told = Conversation()
    told.add("user", [TextPart(text="a")])
    told.add_system("s1")
    told.add("user", [TextPart(text=""), TextPart(text="b")])
    told.add("assistant", [TextPart(text="c")])
    told.add_system("s2")
    told.add("user", result_parts("1", [TextPart(text="r")]))
    told.add("user", [TextPart(text="d")])
    assert told.system == "s1\n\ns2"
    turns = told.turns()
    assert [(turn.role, turn.content) for turn in turns[:2]] == [("user", "a\n\nb"), ("assistant", "c")]
    assert turns[2].content == (ToolResultPart(call_id="1", text="r"), TextPart(text="d"))
    assert told.results == (ToolResultPart(call_id="1", text="r"),)
    told.require_answerable("messages")


def test_results_before_the_assistants_last_turn_are_history() -> None:
    told = Conversation()
    told.add("user", result_parts("1", [TextPart(text="r")]))
    told.add("assistant", [TextPart(text="c")])
    told.add("user", [TextPart(text="d")])
    assert told.results == ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "empty"),
        ([("user", " ")], "empty"),
        ([("user", "a"), ("assistant", "Sure:")], "the last message must be the user's or a tool's result"),
        ([("user", "a"), ("assistant", "")], "the last message must be the user's or a tool's result"),
        ([("assistant", "a"), ("user", "")], "empty"),
    ],
)
def test_a_conversation_that_nobody_can_answer_is_refused(said: list[Any], why: str) -> None:
    told = Conversation()
    for role, text in said:
        told.add(role, [TextPart(text=text)])
    error = refused(told.require_answerable, "messages")
    assert why in error.message
    assert error.param == "messages"


def test_an_image_that_a_tool_gave_back_follows_its_result() -> None:
    image = Images().of_base64(PNG, "a")
    result, picture = result_parts("1", [TextPart(text="seen"), image], is_error=True)
    assert isinstance(result, ToolResultPart)
    assert result.is_error
    assert result.text.startswith("seen\n\n[image: PNG")
    assert isinstance(picture, ImagePart)


# Tools.


def test_tools_are_read_with_their_schema_and_a_grammar_in_words() -> None:
    tool = function_tool(Fields({"name": "f", "description": None, "parameters": {"type": "object"}, "strict": True}))
    assert (tool.name, tool.description, tool.parameters, tool.strict) == ("f", "", {"type": "object"}, True)
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: A"}
    custom = custom_tool(Fields({"name": "p", "description": "Patch.", "format": grammar}))
    assert custom.custom
    assert custom.description.startswith("Patch.\n\n")
    assert "start: A" in custom.description
    assert custom == custom_tool(
        Fields({"name": "p", "description": "Patch.", "format": {"type": "grammar", "grammar": grammar}})
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "name"), ({"name": ""}, "name"), ({"name": "a" * 300}, "name"), ({"name": 1}, "name"),
        ({"name": "f", "parameters": []}, "parameters"), ({"name": "f", "strict": "yes"}, "strict"),
        ({"name": "f", "parameters": {"type": "strin"}}, "parameters"),
        ({"name": "f", "parameters": {"properties": {"a": {"type": "strin"}}}}, "parameters"),
    ],
)  # fmt: skip
def test_a_tool_that_cannot_be_offered_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(function_tool, Fields(fields)).param == param


def test_two_tools_of_one_name_are_refused() -> None:
    tool = function_tool(Fields({"name": "f"}))
    assert refused(distinct, [tool, tool]).param == "tools"


# Schemas.

RECURSIVE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
ZOD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A_int_"}, "b": {"$ref": "#/$defs/a%20b~1"}, "c": {"$ref": "#c"}},
    "required": ["a", "b", "x"],
    "additionalProperties": False,
    "$defs": {"A_int_": {"type": "string"}, "a b/": {"enum": ["x"]}, "d": {"$anchor": "c", "type": "array"}},
}
DOUBLING = {"$ref": "#/$defs/0", "$defs": {"40": {}}}
for _n in range(40):
    DOUBLING["$defs"][str(_n)] = {"allOf": [{"$ref": f"#/$defs/{_n + 1}"}] * 2}  # type: ignore[index]
CHAIN = {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(1500)} | {"1500": {}}}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, RECURSIVE, ZOD, {"properties": {"$ref": {}, "$id": {}}}])
def test_a_schema_that_an_answer_can_fit_is_taken(schema: dict[str, Any]) -> None:
    assert answer_schema_fault(schema) is None
    assert tool_schema_fault(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"}, {"type": "object", "properties": []}, {"required": "a"}, {"pattern": "("},
        {"pattern": "(" * 5000}, {"pattern": "a{99999999999}"}, {"enum": []}, {"not": {}}, {"not": True},
        {"minLength": 3, "maxLength": 2}, {"allOf": [{"minimum": 1, "maximum": 0}]}, {"$ref": "#"}, {"$ref": ""},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}},
        {"$ref": "https://example.org/schema.json"}, {"$ref": "#/nowhere"}, {"$ref": "#nowhere"},
        {"$ref": "#/default", "default": {"allOf": 3}}, {"properties": {"a": {"$id": "https://example.org"}}},
        {"$dynamicRef": "#a"}, {"description": "a" * 200_000}, DOUBLING, CHAIN,
    ],
)  # fmt: skip
def test_an_impossible_schema_is_refused_at_its_field(schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    error = refused(read_form, Fields(form, "response_format"), "json_schema")
    assert error.param == "response_format.json_schema.schema"
    assert len(error.message) < 500


def test_a_pattern_that_python_warns_of_is_taken_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer_schema_fault({"pattern": "[[a]--b]"}) is None


_KEYWORD = st.sampled_from(
    [
        "type", "properties", "required", "items", "allOf", "anyOf", "not", "if", "$ref", "$defs", "enum", "const",
        "pattern", "minimum", "maximum", "minLength", "maxLength", "additionalProperties", "prefixItems",
        "dependentSchemas", "$id", "$anchor",
    ]
)  # fmt: skip
_SCHEMA = st.recursive(
    ANY | st.sampled_from(["object", "string", "#", "#/$defs/a", "#/properties/a", "a"]),
    lambda inner: st.dictionaries(_KEYWORD | st.just("a"), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.dictionaries(_KEYWORD, _SCHEMA, max_size=4))
def test_no_schema_raises_anything(schema: dict[str, Any]) -> None:
    read = tried(read_json, json.dumps(schema).encode())
    if isinstance(read, Fields):
        assert isinstance(answer_schema_fault(read.values), str | None)
        assert isinstance(tool_schema_fault(read.values), str | None)


# What the answer is to be, and our own field.


def test_an_effort_is_one_of_the_known() -> None:
    assert read_effort(Fields({"e": "xhigh"}), "e") == "xhigh"
    assert read_effort(Fields({"e": "none"}), "e") == "minimal"
    assert read_effort(Fields({"e": None}), "e") is None
    assert refused(read_effort, Fields({"e": "hard"}), "e").param == "e"


def test_our_own_field_names_workers_to_leave_out_and_a_plan() -> None:
    said = {"exclude": ["ada"], "workflow": WORKFLOW, "other": 1}
    excluded, workflow = read_extension(Fields({"conductor": said}))
    assert excluded == ("ada",)
    assert workflow is not None
    assert workflow.model_dump(mode="json") == WORKFLOW


def test_what_an_answer_said_in_it_has_no_effect() -> None:
    said = outcome("chat", calls=CALLS).conductor
    assert read_extension(Fields({"conductor": said})) == read_extension(Fields({}))


@pytest.mark.parametrize(
    "own",
    [
        [], "a", {"exclude": "ada"}, {"exclude": [1]}, {"exclude": [""]}, {"workflow": []}, {"workflow": {}},
        {"workflow": {"steps": []}}, {"workflow": {"steps": [1]}}, {"workflow": {"steps": [{"agent": "a"}]}},
        {"workflow": {"steps": [{"instruction": "a", "agent": 0, "access_list": []}]}},
        {"workflow": {"steps": WORKFLOW["steps"] * 300}}, {"workflow": {"steps": WORKFLOW["steps"], "more": 1}},
        {"workflow": deep()},
    ],
)  # fmt: skip
def test_a_wrong_one_is_refused(own: Any) -> None:
    param = refused(read_extension, Fields({"conductor": own})).param
    assert param is not None
    assert param.startswith("conductor")


def test_ten_thousand_messages_are_read_at_once() -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"turn {n}"} for n in range(10_001)]
    asked = chat.read(json.dumps({"model": "fugu", "messages": messages}).encode())
    assert len(asked.turns) == 10_001

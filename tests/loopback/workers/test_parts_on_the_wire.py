"""Messages with parts as both dialects send them, against what the providers take."""

import base64
from typing import Any

import jsonschema
import pytest

from conductor_core.chat.messages import Message, TextPart, ToolCallPart, ToolResultPart, content_of
from conductor_core.errors import WorkerRefused
from tests.support.asking import ask
from tests.support.pictures import part, picture
from tests.support.provider import ScriptedProvider
from tests.support.wire_schemas import ANTHROPIC_MESSAGES, openai_messages

RED = picture()
LOOK = content_of("What is it?", [RED])
WITH_TOOLS = (
    Message(role="system", content="Be brief."),
    Message(role="user", content=LOOK),
    Message(
        role="assistant",
        content=(TextPart(text="I look."), ToolCallPart(call_id="c1", name="zoom", arguments='{"at": [1, 2]}')),
    ),
    Message(role="user", content=(ToolResultPart(call_id="c1", text="too dark", is_error=True), TextPart(text="So?"))),
)
SCHEMAS = {"openai": openai_messages(), "anthropic": ANTHROPIC_MESSAGES}


async def sent(provider: ScriptedProvider, kind: str, *messages: Message) -> Any:
    await ask(provider.spec(provider=kind), messages)
    body = provider.calls[-1].body
    jsonschema.validate(body["messages"], SCHEMAS[kind])
    return body


async def test_an_image_to_openai(provider: ScriptedProvider) -> None:
    body = await sent(provider, "openai", Message(role="user", content=LOOK))
    image, text = body["messages"][0]["content"]
    head, _, data = image["image_url"]["url"].partition(",")
    assert (image["type"], head) == ("image_url", "data:image/png;base64")
    assert base64.b64decode(data) == RED.data
    assert text == {"type": "text", "text": "What is it?"}


async def test_an_image_to_anthropic(provider: ScriptedProvider) -> None:
    body = await sent(provider, "anthropic", Message(role="user", content=LOOK))
    image, text = body["messages"][0]["content"]
    assert image["type"] == "image"
    assert image["source"]["media_type"] == "image/png"
    assert base64.b64decode(image["source"]["data"]) == RED.data
    assert text == {"type": "text", "text": "What is it?"}


async def test_tool_calls_and_results_to_openai(provider: ScriptedProvider) -> None:
    body = await sent(provider, "openai", *WITH_TOOLS)
    assert [turn["role"] for turn in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][2] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "zoom", "arguments": '{"at": [1, 2]}'}}],
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "too dark"}


async def test_tool_calls_and_results_to_anthropic(provider: ScriptedProvider) -> None:
    body = await sent(provider, "anthropic", *WITH_TOOLS)
    assert body["system"] == "Be brief."
    assert body["messages"][1]["content"][1] == {
        "type": "tool_use",
        "id": "c1",
        "name": "zoom",
        "input": {"at": [1, 2]},
    }
    assert body["messages"][2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "too dark",
        "is_error": True,
    }


@pytest.mark.parametrize("arguments", ["[1]", "{", "null"])
async def test_arguments_that_anthropic_would_not_take(provider: ScriptedProvider, arguments: str) -> None:
    call = Message(role="assistant", content=(ToolCallPart(call_id="c1", name="zoom", arguments=arguments),))
    with pytest.raises(WorkerRefused, match="arguments of tool call c1 are not a JSON object"):
        await ask(provider.spec(provider="anthropic"), (call,))
    assert not provider.calls


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_image_that_was_not_loaded_is_never_sent(provider: ScriptedProvider, kind: str) -> None:
    with pytest.raises(ValueError, match="was not loaded"):
        await ask(provider.spec(provider=kind), (Message(role="user", content=content_of("Look", [part(RED)])),))
    assert not provider.calls

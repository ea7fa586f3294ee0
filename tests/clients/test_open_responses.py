"""The seven cases of Open Responses' compliance runner, against the types of its specification.

The runner itself needs Bun and a checkout of its repository. As it does, this checks the type of every event and of
the response.
"""

import json
from enum import Enum
from typing import Any

import httpx
import openresponses_types
import pytest
from openresponses_types import types as spec

from tests.clients.endpoint import ANY_KEY, Endpoint, trace_of
from tests.clients.test_openai_chat import png

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state"}},
        "required": ["location"],
    },
}
CALLED = 'What is the weather like? [[call get_weather {"location": "San Francisco, CA"}]]'
IMAGE = [{"type": "input_text", "text": "What do you see?"}, {"type": "input_image", "image_url": png(250)}]


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


CASES: dict[str, dict[str, Any]] = {
    "text": {"input": [said("user", "Say hello in exactly 3 words.")]},
    "system": {"input": [said("system", "You are a pirate."), said("user", "Say hello.")]},
    "image": {"input": [said("user", IMAGE)]},
    "turns": {
        "input": [said("user", "My name is Alice."), said("assistant", "Hello Alice!"), said("user", "My name?")]
    },
    "tool": {"input": [said("user", CALLED)], "tools": [WEATHER]},
}


def _by_type() -> dict[str, Any]:
    """Returns the type of each event by the name that it has in a stream."""
    found = {}
    for name, made in vars(spec).items():
        if name.endswith("StreamingEvent"):
            (member,) = made.model_fields["type"].annotation
            found[member.value if isinstance(member, Enum) else member] = made
    return found


EVENTS = _by_type()


def send(endpoint: Endpoint, request: dict[str, Any], *, stream: bool) -> httpx.Response:
    headers = {"authorization": f"Bearer {ANY_KEY}"}
    body = {"model": "fugu", "stream": stream} | request
    response = httpx.post(f"{endpoint.url}/responses", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    return response


def checked(endpoint: Endpoint, response: dict[str, Any], case: str) -> None:
    openresponses_types.ResponseResource.model_validate_json(json.dumps(response), strict=True)
    assert response["status"] == "completed"
    assert response["output"]
    if case == "tool":
        assert "function_call" in {item["type"] for item in response["output"]}
    trace_of(endpoint, response)


@pytest.mark.parametrize("case", CASES)
def test_a_response_is_of_the_specifications_type(endpoint: Endpoint, case: str) -> None:
    checked(endpoint, send(endpoint, CASES[case], stream=False).json(), case)


@pytest.mark.parametrize("case", ["text", "tool"])
def test_every_event_of_a_stream_is_of_the_specifications_type(endpoint: Endpoint, case: str) -> None:
    asked = CASES[case] | {"reasoning": {"effort": "medium", "summary": "auto"}}
    blocks = send(endpoint, asked, stream=True).text.strip().split("\n\n")
    events = []
    for block in blocks:
        named, data = block.split("\n")
        data = data.removeprefix("data:")
        event = json.loads(data)
        assert named == f"event: {event['type']}"
        EVENTS[event["type"]].model_validate_json(data, strict=True)
        events.append(event)
    assert events[-1]["type"] == "response.completed"
    checked(endpoint, events[-1]["response"], case)
    if case == "tool":
        added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
        done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
        assert "function_call" in added
        assert added == done
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= {
            event["type"] for event in events
        }

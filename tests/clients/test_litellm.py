"""LiteLLM as a client, in both shapes that it knows the endpoint by."""

import json
from typing import Any

import litellm
import pytest

from tests.clients.endpoint import ANY_KEY, Endpoint

ROUTES = pytest.mark.parametrize("route", ["openai/fugu", "anthropic/fugu"])
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(endpoint: Endpoint, route: str, messages: list[Any], **more: Any) -> Any:
    base = endpoint.url if route.startswith("openai/") else endpoint.root_url
    return litellm.completion(model=route, api_base=base, api_key=ANY_KEY, messages=messages, max_retries=0, **more)


def trace_of(endpoint: Endpoint, answer: Any) -> dict[str, Any]:
    headers = answer._hidden_params["additional_headers"]
    return endpoint.show(headers["llm_provider-x-conductor-trace-id"])


@ROUTES
def test_a_whole_answer(endpoint: Endpoint, route: str) -> None:
    answer = ask(endpoint, route, [{"role": "user", "content": "litellm [[say Four.]] [[usage 20 4 5]]"}])
    assert answer.choices[0].message.content == "Four."
    trace = trace_of(endpoint, answer)
    assert trace["answer"] == "Four."
    spent = trace["usage"]["input_tokens"] + trace["usage"]["output_tokens"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (20, 4)
    # Anthropic's shape tells of the answer alone.
    assert answer.usage.total_tokens == (spent if route.startswith("openai/") else 24)


@ROUTES
def test_a_stream(endpoint: Endpoint, route: str) -> None:
    marker = f"litellm-stream-{route}"
    asked = [{"role": "user", "content": f"{marker} [[say One two three.]] [[usage 20 4]]"}]
    chunks = list(ask(endpoint, route, asked, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks, messages=asked)
    assert whole.choices[0].message.content == "One two three."
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (20, 4)
    (run,) = endpoint.runs("--search", marker)
    assert endpoint.show(run["run_id"])["answer"] == "One two three."


@ROUTES
@pytest.mark.parametrize("stream", [False, True])
def test_tools(endpoint: Endpoint, route: str, stream: bool) -> None:
    marker = f"litellm-tools-{route}-{stream}"
    messages: list[Any] = [{"role": "user", "content": f'{marker} [[call weather {{"city": "Rome"}}]]'}]
    for _ in range(10):  # as many steps as a plan may have, each with its own call, at most
        answer = ask(endpoint, route, messages, tools=[WEATHER], stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        if not message.tool_calls:
            break
        messages.append(message.model_dump())
        for call in message.tool_calls:
            assert json.loads(call.function.arguments) == {"city": "Rome"}
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sun"})
    assert message.content == "sun"
    (run,) = endpoint.runs("--search", marker)
    trace = endpoint.show(run["run_id"])
    assert trace["status"] == "completed"
    assert len(endpoint.asked(marker)) == 2 * len(trace["steps"])

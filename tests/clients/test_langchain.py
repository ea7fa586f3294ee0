"""LangChain's ChatOpenAI, over chat completions and over responses."""

from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.clients.endpoint import ANY_KEY, Endpoint, plan
from tests.clients.test_openai_chat import DRAFTED, PACED, City

both = pytest.mark.parametrize("responses", [False, True])


class weather(BaseModel):  # the tool's name
    """Tells the weather"""

    city: str


def model(endpoint: Endpoint, *, responses: bool = False, given: dict[str, Any] | None = None) -> ChatOpenAI:
    return ChatOpenAI(
        model="fugu",
        base_url=endpoint.url,
        api_key=ANY_KEY,
        stream_usage=True,
        include_response_headers=True,
        use_responses_api=responses,
        extra_body=given,
    )


def trace_of(endpoint: Endpoint, *messages: Any) -> dict[str, Any]:
    """Returns the record of the run that gave ``messages``, whose totals add up to what it spent."""
    (run_id,) = {message.response_metadata["headers"]["x-conductor-trace-id"] for message in messages}
    trace = endpoint.show(run_id)
    total = sum(message.usage_metadata["total_tokens"] for message in messages)
    assert total == trace["usage"]["input_tokens"] + trace["usage"]["output_tokens"]
    return trace


@both
def test_invoke(endpoint: Endpoint, responses: bool) -> None:
    message = model(endpoint, responses=responses, given=plan(*DRAFTED)).invoke("How many legs has a cat?")
    assert message.text == "The legs are four."
    spent = message.usage_metadata
    assert spent is not None
    assert (spent["input_tokens"], spent["output_tokens"], spent["total_tokens"]) == (150, 60, 320)
    assert spent["input_token_details"]["cache_read"] == 20
    assert spent["output_token_details"]["reasoning"] == 15
    assert trace_of(endpoint, message)["answer"] == "The legs are four."


@both
def test_stream(endpoint: Endpoint, responses: bool) -> None:
    whole: Any = None
    pieces = 0
    for chunk in model(endpoint, responses=responses, given=plan(*PACED)).stream("How many legs has a cat?"):
        whole = chunk if whole is None else whole + chunk
        pieces += bool(chunk.text)
    assert pieces > 1
    assert whole.text == "The legs are four."
    assert whole.usage_metadata["total_tokens"] == 320
    trace_of(endpoint, whole)


@both
def test_tools(endpoint: Endpoint, responses: bool) -> None:
    marker = f"langchain-{responses}"
    rules = f'{marker} [[call weather {{"city": "Rome"}}]] [[call weather {{"city": "Oslo"}}]]'
    bound = model(endpoint, responses=responses, given=plan(("alpha", rules))).bind_tools([weather])
    history: list[Any] = [HumanMessage("What is the weather?")]
    first = bound.invoke(history)
    assert [(call["name"], call["args"]) for call in first.tool_calls] == [
        ("weather", {"city": "Rome"}),
        ("weather", {"city": "Oslo"}),
    ]
    history.append(first)
    for call, said in zip(first.tool_calls, ("sun", "rain"), strict=True):
        history.append(ToolMessage(said, tool_call_id=call["id"]))
    second = bound.invoke(history)
    assert second.text == "sun and rain"
    trace_of(endpoint, first, second)
    assert len(endpoint.asked(marker)) == 2


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(endpoint: Endpoint, method: str) -> None:
    made = '{"name": "Rome", "people": 2800000}'
    given = plan(("alpha", f"[[say {made}]] [[call City {made}]]"))
    structured = model(endpoint, given=given).with_structured_output(City, method=method, include_raw=True)  # type: ignore[arg-type, unused-ignore]
    found: Any = structured.invoke("Which city?")
    assert found["parsed"] == City(name="Rome", people=2_800_000)
    run_id = found["raw"].response_metadata["headers"]["x-conductor-trace-id"]
    assert endpoint.show(run_id)["run_id"] == run_id

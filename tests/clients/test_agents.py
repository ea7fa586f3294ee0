"""OpenAI's Agents SDK, over chat completions and over responses."""

from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from pydantic import BaseModel

from tests.clients.endpoint import ANY_KEY, Endpoint, plan

over = pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
UNTRACED = RunConfig(tracing_disabled=True)


class Legs(BaseModel):
    legs: int


class Recorded:
    """A client that keeps which traces its answers are of."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.traces: list[str] = []
        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._keep]})
        self.client = openai.AsyncOpenAI(base_url=endpoint.url, api_key=ANY_KEY, http_client=http)

    async def _keep(self, response: Any) -> None:
        self.traces.append(response.headers["x-conductor-trace-id"])


def agent(kind: Any, recorded: Recorded, given: dict[str, Any], **fields: Any) -> Any:
    model = kind(model="fugu", openai_client=recorded.client)
    # Over chat completions a stream has usage only if it is asked for.
    settings = ModelSettings(extra_body=given, include_usage=True)
    return Agent(name="Tester", instructions="Be brief.", model=model, model_settings=settings, **fields)


def spent_by(endpoint: Endpoint, recorded: Recorded) -> tuple[int, int]:
    """Returns how many requests there were, and the tokens of their one run."""
    (run_id,) = set(recorded.traces)
    trace = endpoint.show(run_id)
    return len(recorded.traces), trace["usage"]["input_tokens"] + trace["usage"]["output_tokens"]


@over
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_function_tool(endpoint: Endpoint, kind: Any, streamed: bool) -> None:
    asked: list[str] = []

    @function_tool  # type: ignore[untyped-decorator, unused-ignore]
    def weather(city: str) -> str:
        """Tells the weather"""
        asked.append(city)
        return f"sun in {city}"

    marker = f"agents-{kind.__name__}-{streamed}"
    rules = f'{marker} [[call weather {{"city": "Rome"}}]] [[call weather {{"city": "Oslo"}}]]'
    recorded = Recorded(endpoint)
    tester = agent(kind, recorded, plan(("alpha", rules)), tools=[weather])
    if streamed:
        result: Any = Runner.run_streamed(tester, "What is the weather?", run_config=UNTRACED)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(tester, "What is the weather?", run_config=UNTRACED)
    assert result.final_output == "sun in Rome and sun in Oslo"
    assert sorted(asked) == ["Oslo", "Rome"]
    requests, tokens = spent_by(endpoint, recorded)
    assert requests == 2
    assert result.context_wrapper.usage.total_tokens == tokens
    assert len(endpoint.asked(marker)) == 2


@over
async def test_an_output_type(endpoint: Endpoint, kind: Any) -> None:
    recorded = Recorded(endpoint)
    tester = agent(kind, recorded, plan(("alpha", '[[say {"legs": 4}]]')), output_type=Legs)
    result = await Runner.run(tester, "How many legs has a cat?", run_config=UNTRACED)
    assert result.final_output == Legs(legs=4)
    _, tokens = spent_by(endpoint, recorded)
    assert result.context_wrapper.usage.total_tokens == tokens

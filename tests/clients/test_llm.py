"""simonw/llm asks by its Python API: a model of its file of OpenAI-compatible models."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.endpoint import Endpoint

MODELS = """
- model_id: fugu
  model_name: fugu
  api_base: {url}
  supports_tools: true
  supports_schema: true
  vision: true
- model_id: fugu-responses
  model_name: fugu
  api_base: {url}
  responses: true
  supports_tools: true
  supports_schema: true
"""


@pytest.fixture(scope="module", autouse=True)
def _models(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("llm")
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(url=endpoint.url))
    os.environ["LLM_USER_PATH"] = str(folder)
    yield
    del os.environ["LLM_USER_PATH"]


def model(name: str) -> Any:
    import llm  # it reads the folder of models

    return llm.get_model(name)


def run_of(endpoint: Endpoint, marker: str) -> dict[str, Any]:
    """Returns the one run whose task holds ``marker``: llm passes on neither headers nor unknown fields."""
    (run,) = endpoint.runs("--search", marker)
    return endpoint.show(run["run_id"])


@pytest.mark.parametrize("name", ["fugu", "fugu-responses"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_is_answered_and_its_usage_told(endpoint: Endpoint, name: str, stream: bool) -> None:
    marker = f"llm-{name}-{stream}"
    response = model(name).prompt(f"{marker} [[say Four.]] [[usage 20 4]]", system="Be brief.", stream=stream)
    assert response.text() == "Four."
    spent = response.usage()
    assert (spent.input, spent.output) == (20, 4)
    trace = run_of(endpoint, marker)
    of_trace = trace["usage"]
    told = json.dumps(spent.details)
    assert trace["answer"] == "Four."
    assert str(of_trace["input_tokens"] - 20) in told
    assert str(of_trace["output_tokens"] - 4) in told


def test_a_conversation_holds_what_was_said_before(endpoint: Endpoint) -> None:
    conversation = model("fugu").conversation()
    assert conversation.prompt("My cat is Tom. [[say Hello Tom.]]").text() == "Hello Tom."
    assert conversation.prompt("llm-goes-on [[say Tom]]").text() == "Tom"
    sent = json.dumps(endpoint.asked("llm-goes-on")[0].messages)
    assert "My cat is Tom." in sent
    assert run_of(endpoint, "llm-goes-on")["answer"] == "Tom"


@pytest.mark.parametrize("name", ["fugu", "fugu-responses"])
def test_a_chain_calls_tools(endpoint: Endpoint, name: str) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """Tells the weather"""
        asked.append(city)
        return "sun"

    marker = f"llm-tools-{name}"
    chain = model(name).chain(f'{marker} [[call weather {{"city": "Rome"}}]]', tools=[weather])
    assert chain.text() == "sun"
    trace = run_of(endpoint, marker)
    assert asked == ["Rome"] * len(trace["steps"])
    assert len(endpoint.asked(marker)) == 2 * len(trace["steps"])


def test_a_schema_is_kept(endpoint: Endpoint) -> None:
    schema = {"type": "object", "properties": {"legs": {"type": "integer"}}, "required": ["legs"]}
    response = model("fugu").prompt('llm-schema [[say {"legs": 4}]]', schema=schema)
    assert json.loads(response.text()) == {"legs": 4}
    assert run_of(endpoint, "llm-schema")["status"] == "completed"

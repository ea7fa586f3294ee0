"""What holds over time: keys that come and go, a server that is started again, and workers that are slow."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.endpoint import ANY_KEY, Endpoint, plan, started, trace_of
from tests.clients.test_openai_chat import ASKED, DRAFTED, TOOLS, results
from tests.support.eventually import eventually
from tests.support.provider import ScriptedProvider

SLOW = plan(("alpha", "[[wait 21]] [[say At last.]]"))
"""Longer than two heartbeats."""


def test_keys_open_the_endpoint_and_what_each_made_is_its_own(workers: ScriptedProvider, tmp_path: Path) -> None:
    with started(workers, tmp_path) as endpoint:
        ada, ben = (endpoint.conductor("keys", "create", name)["key"] for name in ("ada", "ben"))
        own: Any = openai.OpenAI(base_url=endpoint.url, api_key=ada)
        made = own.responses.create(model="fugu", input="Hello", extra_body=plan(*DRAFTED))
        trace = trace_of(endpoint, made.to_dict())
        assert trace["actor"]["name"] == "ada"
        assert own.responses.retrieve(made.id).id == made.id
        foreign: Any = openai.OpenAI(base_url=endpoint.url, api_key=ben)
        with pytest.raises(openai.NotFoundError):
            foreign.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError):
            foreign.responses.create(model="fugu", input="And?", previous_response_id=made.id)
        for key in (ANY_KEY, ada[:-1]):
            with pytest.raises(openai.AuthenticationError):
                openai.OpenAI(base_url=endpoint.url, api_key=key).models.list()
            with pytest.raises(anthropic.AuthenticationError):
                anthropic.Anthropic(base_url=endpoint.root_url, api_key=key).models.list()
        claude: Any = anthropic.Anthropic(base_url=endpoint.root_url, api_key=ben)
        message = claude.messages.create(model="fugu", max_tokens=99, messages=ASKED, extra_body=plan(*DRAFTED))
        assert trace_of(endpoint, message.to_dict())["actor"]["name"] == "ben"
        endpoint.conductor("keys", "revoke", "ben")
        eventually(lambda: _is_refused(claude))
        own.models.list()


def _is_refused(claude: Any) -> bool:
    try:
        claude.models.list()
    except anthropic.AuthenticationError:
        return True
    return False


def test_a_server_that_is_started_again_takes_waiting_runs_up(workers: ScriptedProvider, tmp_path: Path) -> None:
    given = plan(("alpha", 'before-the-restart [[call weather {"city": "Rome"}]]'))
    with started(workers, tmp_path) as endpoint:
        client: Any = openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY)
        first = client.chat.completions.create(model="fugu", messages=ASKED, tools=TOOLS[:1], extra_body=given)
        kept = client.responses.create(model="fugu", input="Hello", extra_body=plan(*DRAFTED)).to_dict()
        gone = client.responses.create(model="fugu", input="Hello", extra_body=plan(*DRAFTED)).to_dict()
        client.responses.delete(gone["id"])
    with started(workers, tmp_path) as endpoint:
        client = openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY)
        asked = [*ASKED, *results(first.to_dict()["choices"][0]["message"], "sun")]
        second = client.chat.completions.create(model="fugu", messages=asked, tools=TOOLS[:1])
        assert second.choices[0].message.content == "sun"
        trace_of(endpoint, first.to_dict(), second.to_dict())
        again = client.chat.completions.create(model="fugu", messages=asked, tools=TOOLS[:1])
        assert again.to_dict() == second.to_dict()
        assert len(endpoint.asked("before-the-restart")) == 2
        assert client.responses.retrieve(kept["id"]).to_dict()["output"] == kept["output"]
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone["id"])


def test_slow_answers_keep_their_connections(endpoint: Endpoint) -> None:
    """No client waits longer than the heartbeat for the next byte."""
    patient: dict[str, Any] = {"timeout": openai.Timeout(60, read=15), "max_retries": 0}
    client: Any = openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY, **patient)
    claude: Any = anthropic.Anthropic(base_url=endpoint.root_url, api_key=ANY_KEY, **patient)

    def chat() -> str:
        with client.chat.completions.stream(model="fugu", messages=ASKED, extra_body=SLOW) as stream:
            return str(stream.get_final_completion().choices[0].message.content)

    def responses() -> str:
        with client.responses.stream(model="fugu", input="Hello", extra_body=SLOW) as stream:
            return str(stream.get_final_response().output_text)

    def messages() -> str:
        with claude.messages.stream(model="fugu", max_tokens=99, messages=ASKED, extra_body=SLOW) as stream:
            return str(stream.get_final_text())

    each: list[Callable[[], str]] = [chat, responses, messages]
    began = time.monotonic()
    with ThreadPoolExecutor(len(each)) as threads:
        said = [asking.result() for asking in [threads.submit(ask) for ask in each]]
    assert said == ["At last."] * 3
    assert time.monotonic() - began > 20, "the workers were not slow"

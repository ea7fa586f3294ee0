"""Whatever JSON a server sends, a worker, a Conductor and a check end with their own errors, and say so in one line."""

import asyncio
import json
from typing import Any

import httpx2
import pydantic_core
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor_core.chat.messages import (
    Chunk,
    Finished,
    Message,
    PlanFinished,
    PlanRequest,
    ReasoningDelta,
    TextDelta,
    WorkerSpec,
)
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.conductors.remote import RemoteConductor, Server
from conductor_core.errors import ConductorError, WorkerError
from conductor_core.providers.anthropic import AnthropicDialect
from conductor_core.providers.client import Dialect
from conductor_core.providers.errors import retry_after_s
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.settings import Settings
from conductor_core.workers import discovery
from conductor_core.workers.discovery import read_models
from conductor_core.workers.pool import HttpWorker
from tests.support import any_json
from tests.support.any_json import Answering, answered, document, events, response

SPEC = WorkerSpec(name="alpha", provider="openai", model="m", base_url="http://127.0.0.1:9/v1")
QUESTION = (Message(role="user", content="?"),)
REQUEST = PlanRequest(task="?", agents=(SPEC,))
STATUSES = st.sampled_from([400, 401, 403, 404, 422, 429, 500, 529])


async def _answer(dialect: Dialect, answer: Answering) -> tuple[list[Chunk], str | None]:
    """The chunks, and the message of the error at their end."""
    worker, chunks = HttpWorker(SPEC, dialect), list[Chunk]()
    worker.client._transport = httpx2.MockTransport(answer)
    try:
        async for chunk in worker.answer(QUESTION):
            chunks.append(chunk)
    except WorkerError as error:
        return chunks, str(error)
    finally:
        await worker.aclose()
    return chunks, None


async def _plan(answer: Answering) -> tuple[list[TextDelta | ReasoningDelta | PlanFinished], str | None]:
    spec = ConductorSpec(name="c", model="m", base_url="http://127.0.0.1:9/v1")
    conductor, pieces = RemoteConductor("c", spec, Settings()), list[TextDelta | ReasoningDelta | PlanFinished]()
    conductor._client._transport = httpx2.MockTransport(answer)
    conductor._server = Server("other")
    try:
        async for piece in conductor.write(REQUEST):
            pieces.append(piece)
    except ConductorError as error:
        return pieces, str(error)
    finally:
        await conductor.aclose()
    return pieces, None


def ask(dialect: Dialect, answer: Answering) -> None:
    chunks, told = asyncio.run(_answer(dialect, answer))
    assert [isinstance(chunk, Finished) for chunk in chunks].count(True) == (told is None)
    assert told is not None or isinstance(chunks[-1], Finished)
    one_line(told)
    for chunk in chunks:
        assert len(pydantic_core.to_json(chunk)) < 10_000


def write(answer: Answering) -> None:
    pieces, told = asyncio.run(_plan(answer))
    assert told is not None or isinstance(pieces[-1], PlanFinished)
    one_line(told)
    if told is None:
        assert len(pydantic_core.to_json(pieces[-1])) < 1000


def one_line(told: str | None) -> None:
    assert told is None or (told.isprintable() and told.encode())


@given(st.lists(any_json.CHAT_EVENTS, max_size=4))
@example([{"choices": [], "usage": {"prompt_tokens": any_json.HUGE, "completion_tokens": 1, "cost": any_json.HUGE}}])
@example([{"choices": [{"finish_reason": "stop"}]}, {"choices": [], "usage": {"cost": any_json.HUGE}}])
def test_a_workers_chat_events(found: list[Any]) -> None:
    ask(OpenAIDialect(), lambda _: events(found))


@given(st.lists(any_json.MESSAGE_EVENTS, max_size=4))
@example([{"type": "message", "message": {}, "content": 1}])
@example([{"type": "message", "content": True}])
def test_a_workers_message_events(found: list[Any]) -> None:
    ask(AnthropicDialect(), lambda _: events(found))


@pytest.mark.parametrize("dialect", [OpenAIDialect(), AnthropicDialect()])
@given(found=any_json.CHAT_EVENTS | any_json.MESSAGE_EVENTS)
def test_a_workers_document(dialect: Dialect, found: Any) -> None:
    ask(dialect, lambda _: document(found))


@given(any_json.FAILURES, STATUSES, st.text(alphabet="0123456789.eE+-_ aGMT:,JanFri\u0660", max_size=30))
@example({"error": {"message": "no"}}, 429, "9" * 400)
def test_a_workers_failure(found: Any, status: int, retry_after: str) -> None:
    try:
        ask(OpenAIDialect(), lambda _: document(found, status, retry_after=retry_after))
    except UnicodeEncodeError:
        assert not retry_after.isascii()


@given(st.text() | st.text(alphabet="0123456789 ,:+-JanFriGMT"))
@example("Fri, 31 Dec 9999999999999999999 23:59:59 GMT")
def test_any_retry_after_is_seconds_or_none(value: str) -> None:
    seconds = retry_after_s({"retry-after": value})
    assert seconds is None or 0 <= seconds < float("inf")


def test_an_error_object_of_a_thousand_levels() -> None:
    body = b'{"error":' * 900 + b"1" + b"}" * 900
    ask(OpenAIDialect(), lambda _: response(body, 500))
    write(lambda _: response(body, 500))


@given(st.lists(any_json.CHAT_EVENTS, max_size=4), any_json.MODEL_LISTS, any_json.VERSIONS)
@example([{"choices": 1}], {"data": 1}, {})
@example([{"choices": {"a": 1}}], {}, {"version": "1" * 5000 + ".0"})
@example(
    [{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": any_json.HUGE, "completion_tokens": 1}}],
    {},
    {},
)
@example([{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": True, "completion_tokens": 1}}], {}, {})
def test_a_conductors_events(found: list[Any], models: Any, version: Any) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return events(found)
        return document(models if request.url.path.endswith("/models") else version)

    write(answer)


@given(any_json.FAILURES, STATUSES)
def test_a_conductors_failure(found: Any, status: int) -> None:
    write(lambda _: document(found, status))


@given(any_json.MODEL_LISTS)
def test_any_list_of_models(found: Any) -> None:
    for name, owner in read_models(json.dumps(found).encode()) or []:
        assert name.isprintable()
        assert isinstance(owner, str)


@given(any_json.MODEL_LISTS | any_json.FAILURES, st.sampled_from([200, 401, 404, 500]))
def test_any_answer_to_a_check(found: Any, status: int) -> None:
    worker = HttpWorker(SPEC, OpenAIDialect())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "open_client", lambda _: answered(lambda _: document(found, status)))
        checked = asyncio.run(discovery.check_health(worker))
    assert "\n" not in checked.detail

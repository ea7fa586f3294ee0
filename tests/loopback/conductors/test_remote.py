import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from conductor_core.chat.messages import (
    Conductor,
    PlanFinished,
    PlanRequest,
    ReasoningDelta,
    TextDelta,
    Usage,
    WorkerSpec,
)
from conductor_core.conductors import remote
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import ConductorUnavailable, PromptOverflows
from conductor_core.providers import client
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import fold
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate
from tests.support.fakes import MemorySink, ScriptedWorker, quick_settings
from tests.support.provider import (
    Answer,
    Call,
    Cut,
    Hang,
    Part,
    Pause,
    Reply,
    ScriptedProvider,
    cut_after,
    delta,
    error,
    hang_after,
    sse,
)

OPTIONAL = {"logprobs", "response_format", "stream_options"}
PLAN = 'One worker will do.\nmodel_id = [1]\nsubtasks = ["Answer: {question}"]\naccess_list = [[]]'
AGENTS = tuple(WorkerSpec(name=name, provider="rehearsal", model="m", description="sums") for name in ("a", "b"))
REQUEST = PlanRequest(task="What is 17 * 24?", agents=AGENTS, max_steps=3)


class KnownServer(ScriptedProvider):
    """A scripted provider that says what kind of server it is, by model owner and further addresses."""

    def __init__(self, owner: str | None = "scripted", **documents: Any) -> None:
        super().__init__()
        self._documents = {f"/{name.replace('__', '/')}": document for name, document in documents.items()}
        if owner is not None:
            self._documents["/v1/models"] = {"data": [{"id": "scripted", "owned_by": owner}]}

    def _script(self, call: Call) -> Reply:
        if call.is_completion:
            return super()._script(call)
        document = self._documents.get(call.path)
        if document is None:
            return error(404)
        return Reply([json.dumps(document).encode()], content_type="application/json")


def conductor(server: ScriptedProvider, **settings: Any) -> Conductor:
    return open_conductor(f"{server.url}#scripted", Settings(**settings))


async def write(writer: Conductor, request: PlanRequest = REQUEST) -> tuple[str, PlanFinished]:
    try:
        pieces = [piece async for piece in writer.write(request)]
    finally:
        await writer.aclose()
    assert isinstance(pieces[-1], PlanFinished)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), pieces[-1]


@pytest.fixture
async def server() -> AsyncIterator[KnownServer]:
    with KnownServer() as running:
        yield running


async def test_writes_a_plan(server: KnownServer) -> None:
    server.always(Answer(PLAN, usage=(1200, 40), pieces=9))
    writer = conductor(server, plan_max_tokens=300)
    text, finished = await write(writer)
    assert text == PLAN
    assert finished.finish_reason == "stop"
    assert (finished.usage.input_tokens, finished.usage.output_tokens) == (1200, 40)
    assert not finished.usage.estimated
    (call,) = server.completions
    assert [message["content"] for message in call.messages] == [m.content for m in writer.messages(REQUEST)]
    assert call.body["max_tokens"] == 300
    assert call.headers["accept-encoding"] == "identity"
    assert "authorization" not in call.headers


async def test_a_key_comes_from_the_environment(server: KnownServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_API_KEY", "k-5f0c9a7e1d3b")
    server.always(Answer(PLAN))
    await write(conductor(server))
    assert {call.headers.get("authorization") for call in server.calls} == {"Bearer k-5f0c9a7e1d3b"}


@pytest.mark.parametrize(
    ("owner", "documents", "parameter"),
    [
        ("vllm", {"version": {"version": "0.12.1"}}, "structured_outputs"),
        ("vllm", {"version": {"version": "0.8.5.post1"}}, "guided_grammar"),
        ("vllm", {}, "structured_outputs"),
        ("llamacpp", {}, "grammar"),
        ("me", {}, "grammar"),
        ("sglang", {}, "ebnf"),
        ("library", {}, "response_format"),
        ("organization_owner", {}, "response_format"),
        (None, {"props": {"default_generation_settings": {}}}, "grammar"),
        (None, {"api__version": {"version": "0.5.1"}}, "response_format"),
        (None, {}, "response_format"),
    ],
)
async def test_each_kind_of_server_is_asked_in_its_own_way(
    owner: str | None, documents: dict[str, Any], parameter: str
) -> None:
    with KnownServer(owner, **documents) as server:
        server.always(Answer(PLAN))
        writer = conductor(server)
        await write(writer)
        body = server.completions[0].body
        known = {"structured_outputs", "guided_grammar", "grammar", "ebnf", "response_format"}
        assert known & body.keys() == {parameter}
        assert writer.info.constrained
        await write(writer)
        assert len([call for call in server.calls if call.path == "/v1/models"]) == 1


async def test_a_plan_in_the_schemas_form_is_a_plan(server: KnownServer) -> None:
    server.always(Answer('{"steps": [{"instruction": "Answer", "agent": 1, "access_list": []}]}'))
    text, _ = await write(conductor(server))
    assert not validate(parse_completion(text), ["a", "b"], max_steps=3).faults


async def test_unconstrained_asks_for_no_form(server: KnownServer) -> None:
    server.always(Answer(PLAN))
    writer = conductor(server, constrained=False)
    await write(writer)
    assert not writer.info.constrained
    assert [call.path for call in server.calls] == ["/v1/chat/completions"]
    assert "response_format" not in server.completions[0].body


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refused_form_is_given_up_and_on_the_record(server: KnownServer, status: int) -> None:
    server.then(error(status, {"error": {"message": "response_format is not supported"}}))
    server.always(Answer(PLAN))
    writer = conductor(server)
    assert (await write(writer))[0] == PLAN
    assert not writer.info.constrained
    await write(writer)
    assert ["response_format" in call.body for call in server.completions] == [True, False, False]


async def test_refused_calls_at_the_same_time_do_not_exhaust_the_alternatives(server: KnownServer) -> None:
    def picky(call: Call) -> Answer | Reply:
        return error(400, {"error": {"message": "no"}}) if "response_format" in call.body else Answer(PLAN)

    server.always(picky)
    writer = conductor(server)
    await asyncio.gather(*(_drain(writer) for _ in range(5)))
    await writer.aclose()
    assert "stream_options" in server.completions[-1].body


async def _drain(writer: Conductor) -> None:
    assert [piece async for piece in writer.write(REQUEST)]


async def test_a_server_without_usage_reports_gets_none_asked(server: KnownServer) -> None:
    server.then(error(400, {"error": {"message": "unknown field stream_options"}}))
    server.always(Answer(PLAN))
    writer = conductor(server)
    _, finished = await write(writer)
    assert finished.usage.estimated
    assert finished.usage.output_tokens > 0
    assert writer.info.constrained


async def test_a_request_refused_in_every_form_is_an_error(server: KnownServer) -> None:
    server.always(error(400, {"error": {"message": "no such parameter"}}))
    with pytest.raises(ConductorUnavailable, match=r"rejected the request with 400 \(no such parameter\)"):
        await write(conductor(server))
    assert [sorted(OPTIONAL & call.body.keys()) for call in server.completions] == [
        ["logprobs", "response_format", "stream_options"],
        ["response_format", "stream_options"],
        ["stream_options"],
        [],
    ]


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 2048 tokens. However, your request has 9000 input tokens.",
        "the request exceeds the available context size, try increasing it",
    ],
)
async def test_a_prompt_too_long_for_the_server_leaves_later_ones_as_they_were(server: KnownServer, said: str) -> None:
    server.then(error(400, {"error": {"message": said}}))
    server.always(Answer(PLAN))
    writer = conductor(server)
    with pytest.raises(PromptOverflows, match="longer than the model's context"):
        await write(writer)
    _, finished = await write(writer)
    assert writer.info.constrained
    assert not finished.usage.estimated


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (error(401), "refused the key .*CONDUCTOR_API_KEY"),
        (error(403, "<html>no</html>"), "refused the key"),
        (error(404, {"error": {"message": "model 'scripted' not found"}}), "model 'scripted' not found"),
        (error(429), "limiting requests"),
        (error(500, {"detail": [{"msg": "out of memory"}]}), r"failed with 500 \(out of memory\)"),
        (error(503, "<html>" * 1000), r"failed with 503"),
        (cut_after("model_id = [0"), "in the middle of its answer|finish reason"),
        (Reply([sse(delta("model_id"))]), "without a finish reason"),
        (Reply([]), "without a finish reason"),
        (Reply([Cut()]), "in the middle of its answer"),
        (
            Reply([sse({"error": {"message": "overloaded", "code": 500}})]),
            r"an error instead of an answer, 500 \(overloaded\)",
        ),
        (Reply([sse("not json")]), "without a finish reason"),
        (Reply([sse("[" * 100_000)]), "not a JSON object"),
        (Reply([b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n']), "not UTF-8"),
        (Reply([b"[1]"], content_type="application/json"), "not a JSON object"),
        (Reply([b"<html>"], content_type="text/html"), "text/html instead of an event stream"),
        (Reply([b"x"], headers={"content-encoding": "gzip"}), "compressed"),
    ],
)
async def test_every_fault_is_one_clear_line(server: KnownServer, reply: Reply, says: str) -> None:
    server.always(reply)
    with pytest.raises(ConductorUnavailable, match=says) as caught:
        await write(conductor(server))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


async def test_a_server_that_does_not_stream_sends_one_document(server: KnownServer) -> None:
    whole = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "the plan"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    server.always(Reply([json.dumps(whole, indent=1).encode()], content_type="application/json; charset=utf-8"))
    writer = conductor(server)
    text, finished = [piece async for piece in writer.write(REQUEST)]
    assert text == TextDelta(text="the plan")
    assert isinstance(finished, PlanFinished)
    assert finished.usage == Usage(input_tokens=7, output_tokens=2)
    await writer.aclose()


async def test_what_came_before_invalid_utf_8_is_kept(server: KnownServer) -> None:
    server.always(Reply([sse(delta("so far ü")) + b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n']))
    writer = conductor(server)
    pieces = aiter(writer.write(REQUEST))
    assert await anext(pieces) == TextDelta(text="so far ü")
    with pytest.raises(ConductorUnavailable, match="not UTF-8"):
        await anext(pieces)
    await writer.aclose()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([b"data: \xff\xfe\n\n"], id="bad UTF-8"),
        pytest.param([sse({"error": {"message": "too late"}})], id="an error object"),
        pytest.param([sse({"choices": []}), Pause(0.1)] * 40, id="stray events"),
        pytest.param([Cut()], id="cut"),
        pytest.param([Hang()], id="silence"),
    ],
)
async def test_nothing_after_the_finish_reason_loses_the_plan(
    server: KnownServer, monkeypatch: pytest.MonkeyPatch, after: list[Part]
) -> None:
    monkeypatch.setattr(client, "TAIL_S", 0.3)
    monkeypatch.setattr(client, "DOUBTED_TAIL_S", 0.3)
    server.always(Reply([sse(delta(PLAN, finish="stop")), *after]))
    async with asyncio.timeout(3):
        text, finished = await write(conductor(server))
    assert (text, finished.finish_reason) == (PLAN, "stop")


async def test_a_time_limit_bounds_the_whole_plan_and_not_each_event(
    server: KnownServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ANSWER_TIMEOUT_S", 0.5)
    server.always(Reply([sse(delta("a")), Pause(0.1)] * 100))
    with pytest.raises(ConductorUnavailable, match="took longer than"):
        await write(conductor(server))


async def test_a_key_is_never_quoted(server: KnownServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_API_KEY", "sk-very-secret")
    server.always(error(500, {"error": {"message": "bad key sk-very-secret\x1b[2J given"}}))
    with pytest.raises(ConductorUnavailable) as caught:
        await write(conductor(server))
    assert "very-secret" not in str(caught.value)


async def test_a_dead_server_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = open_conductor(f"http://127.0.0.1:{taken.getsockname()[1]}/v1#m", Settings())
        with pytest.raises(ConductorUnavailable, match="refuses connections; check that the server is running"):
            await write(dead)


async def test_an_endless_answer_is_bounded(server: KnownServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_THOUGHT_BYTES", 1000)
    server.always(Reply([sse(delta("x" * 1000))] * 400))
    with pytest.raises(ConductorUnavailable, match="bytes it may"):
        await write(conductor(server))


async def test_a_plan_cut_by_the_token_limit_says_so(server: KnownServer) -> None:
    server.always(Answer("model_id = [0", finish_reason="length"))
    _, finished = await write(conductor(server))
    assert finished.finish_reason == "length"


async def test_cancelling_closes_the_connection(server: KnownServer) -> None:
    server.always(hang_after("model_id"))
    writer = conductor(server)
    async with aclosing(writer.write(REQUEST)) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break
    assert await asyncio.to_thread(server.wait_until, lambda seen: seen.disconnects == 1)
    await writer.aclose()


async def test_reasoning_that_a_server_sends_apart_is_told_apart(server: KnownServer) -> None:
    server.always(Answer(PLAN, reasoning="Two steps will do, I think: one solves, one checks.", usage=(1200, 400)))
    writer = conductor(server)
    pieces = [piece async for piece in writer.write(REQUEST)]
    await writer.aclose()
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == PLAN
    thoughts = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta))
    assert thoughts == "Two steps will do, I think: one solves, one checks."
    assert isinstance(pieces[0], ReasoningDelta)


async def test_the_conductors_reasoning_is_on_record_and_no_part_of_its_plan(server: KnownServer) -> None:
    thought = "I might say model_id = [1], subtasks = ['no'], access_list = [[]]."
    server.always(Answer(PLAN, reasoning=thought, usage=(1200, 400)))
    sink, writer = MemorySink(), conductor(server)
    pool = Pool(name="p", workers={spec.name: ScriptedWorker(spec.name) for spec in REQUEST.agents})
    asked = RunRequest(task=REQUEST.task, plan_only=True)
    trace = await Engine(sink, quick_settings()).run(asked, writer, pool)
    await writer.aclose()
    assert trace.status == "planned"
    assert (trace.root.raw, trace.root.reasoning) == (PLAN, thought)
    assert trace.root.workflow is not None
    assert "no" not in [step.instruction for step in trace.root.workflow.steps]
    assert fold(sink.events).root.reasoning == thought

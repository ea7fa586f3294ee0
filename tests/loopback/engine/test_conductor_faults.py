"""A Conductor on a server that fails, limits, loads or answers otherwise: retried, waited for, named; nothing lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.run.events import PlanStarted
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from tests.support.completions import chat
from tests.support.fakes import MemorySink, quick_settings
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, cut_after, delta, error

PLAN = 'model_id = [0]\nsubtasks = ["Answer: {question}"]\naccess_list = [[]]'
LOADING = error(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("planner", "alpha")) as provider:
        yield provider


def planning(provider: ScriptedProvider, *replies: Reply | Answer) -> None:
    """Queues what the Conductor answers; after that it writes a plan, and the worker answers."""
    queue = list(replies)

    def answer(call: Call) -> Reply | Answer:
        if call.model == "alpha":
            return Answer("42")
        return queue.pop(0) if queue else Answer(PLAN)

    provider.always(answer)


async def run_workflow(provider: ScriptedProvider, **fields: Any) -> tuple[RunTrace, MemorySink]:
    settings = quick_settings()
    conductor = open_conductor(f"{provider.url}#planner", settings)
    worker, sink = open_worker(provider.spec(), Settings()), MemorySink()
    try:
        request = RunRequest(task="the task", **fields)
        trace = await Engine(sink, settings).run(request, conductor, Pool("loopback", {"alpha": worker}))
    finally:
        await worker.aclose()
        await conductor.aclose()
    assert fold(sink.events) == trace
    return trace, sink


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (error(429, retry_after="0.01"), "ConductorRateLimited"),
        (error(500), "ConductorFailed"),
        (error(502), "ConductorFailed"),
        (error(503), "ConductorFailed"),
        (cut_after("model_id = ["), "ConductorStreamCut"),
    ],
)
async def test_a_conductors_failed_call_is_made_again(provider: ScriptedProvider, reply: Reply, code: str) -> None:
    planning(provider, reply, reply)
    trace, _ = await run_workflow(provider)
    assert (trace.status, trace.answer) == ("completed", "42")
    assert [retry.error_code for retry in trace.root.retries] == [code, code]
    assert trace.root.rejected == [], "no attempt at a plan was used up"


async def test_a_conductors_calls_end_with_the_attempts(provider: ScriptedProvider) -> None:
    planning(provider, *[error(500)] * 9)
    trace, _ = await run_workflow(provider)
    assert (trace.status, trace.error_code, len(provider.completions)) == ("failed", "ConductorFailed", 3)


async def test_a_wait_that_the_run_has_no_time_for_is_not_begun(provider: ScriptedProvider) -> None:
    planning(provider, error(429, retry_after="3600"))
    trace, _ = await run_workflow(provider, limits=Limits(max_seconds=60))
    assert (trace.error_code, len(provider.completions)) == ("ConductorRateLimited", 1)
    assert trace.error is not None
    assert "asking to wait 3600 s" in trace.error
    assert trace.duration_ms is not None
    assert trace.duration_ms < 30_000


async def test_a_server_that_loads_its_model_is_waited_for_and_that_is_said_once(provider: ScriptedProvider) -> None:
    planning(provider, *[LOADING] * 9)
    trace, sink = await run_workflow(provider)
    assert trace.status == "completed"
    (retry,) = trace.root.retries
    assert (retry.error_code, retry.loading) == ("ConductorLoading", True)
    assert "is loading its model, 503 (Loading model)" in retry.error
    assert len([event for event in sink.events if isinstance(event, PlanStarted)]) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        {"error": "Model tiiuae/falcon-7b is currently loading", "estimated_time": 20.0},
        {"error": "llm server loading model"},
        {"message": "The model is not ready yet", "object": "error"},
    ],
)
async def test_a_worker_that_loads_its_model_is_waited_for(provider: ScriptedProvider, said: dict[str, Any]) -> None:
    replies: list[Reply | Answer] = [*[error(503, said)] * 9, Answer("42")]
    provider.always(lambda call: replies.pop(0) if call.model == "alpha" else Answer(PLAN))
    trace, _ = await run_workflow(provider)
    (step,) = trace.steps
    assert (step.status, trace.answer) == ("completed", "42")
    (attempt,) = step.attempts
    assert (attempt.error_code, attempt.loading, attempt.then) == ("WorkerLoading", True, "again")


@pytest.mark.parametrize(
    ("reply", "code", "raw"),
    [
        (chat(delta(refusal="I will not plan that."), delta(finish="stop")), "plan_refused", "I will not plan that."),
        (chat(delta("model_id"), delta(finish="content_filter")), "plan_filtered", "model_id"),
        (
            error(400, {"error": {"code": "content_filter", "message": "The prompt was filtered."}}),
            "plan_filtered",
            "The prompt was filtered.",
        ),
        (chat(delta(reasoning_content=PLAN), delta(finish="stop")), "plan_in_reasoning", PLAN),
        (
            chat(
                delta(tool_calls=[{"index": 0, "function": {"name": "plan", "arguments": '{"steps": []}'}}]),
                delta(finish="tool_calls"),
            ),
            "tool_call_for_a_plan",
            'plan({"steps": []})',
        ),
        (chat(delta(reasoning_content="Let me"), delta(finish="length")), "plan_cut", "Let me"),
        (chat(delta(finish="stop")), "empty_completion", ""),
    ],
)
async def test_what_comes_instead_of_a_plan_is_named_and_kept(
    provider: ScriptedProvider, reply: Reply, code: str, raw: str
) -> None:
    planning(provider, reply)
    trace, _ = await run_workflow(provider)
    assert trace.status == "completed", "it was asked again"
    (rejected,) = trace.root.rejected
    assert [fault.code for fault in rejected.faults] == [code]
    assert rejected.raw == raw


async def test_a_broken_off_plan_is_kept_and_paid(provider: ScriptedProvider) -> None:
    planning(provider, cut_after("model_id = ["))
    trace, _ = await run_workflow(provider)
    (retry,) = trace.root.retries
    assert retry.partial == "model_id = ["
    assert retry.usage.estimated
    assert retry.usage.output_tokens == 3
    assert trace.usage.output_tokens == 3 + 3 + 3

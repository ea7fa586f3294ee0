"""Every kind of completion over a real wire: what becomes of the step and of the run, and what is kept."""

from collections.abc import Iterator
from typing import Any

import pytest

from conductor_core.chat.messages import Worker
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from tests.support.completions import COMPLETIONS, Completion
from tests.support.fakes import MemorySink, quick_settings, workflow_of
from tests.support.provider import Answer, ScriptedProvider, error


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


async def run_one(provider: ScriptedProvider, kind: Completion) -> RunTrace:
    provider.reset()
    provider.always(kind.reply)
    return await run_with(open_worker(provider.spec(provider=kind.provider), Settings()))


async def run_with(worker: Worker, **fields: Any) -> RunTrace:
    sink = MemorySink()
    request = RunRequest(task="the task", workflow=workflow_of(("alpha", "Answer {question}", ())), **fields)
    try:
        trace = await Engine(sink, quick_settings()).run(request, None, Pool("loopback", {"alpha": worker}))
    finally:
        await worker.aclose()
    assert fold(sink.events) == trace
    return trace


@pytest.mark.parametrize("kind", COMPLETIONS, ids=lambda kind: kind.said)
async def test_what_becomes_of_a_completion(provider: ScriptedProvider, kind: Completion) -> None:
    trace = await run_one(provider, kind)
    (step,) = trace.steps
    assert (step.status, trace.status) == (kind.becomes, kind.becomes)
    assert step.output == kind.output
    assert kind.refusal in step.refusal
    assert bool(kind.refusal) == bool(step.refusal)
    assert tuple((call.name, call.arguments) for call in step.tool_calls) == kind.tool_calls
    assert trace.answer == (None if kind.becomes == "failed" else kind.output)
    assert step.incomplete == (kind.becomes != "completed")


async def test_a_cut_answer_is_asked_for_again_with_more_tokens(provider: ScriptedProvider) -> None:
    provider.reset()
    provider.then(Answer("The le", (7, 16), finish_reason="length"), Answer("The legs are ten", (7, 20)))
    worker = open_worker(provider.spec(params={"max_tokens": 16, "seed": 3}), Settings())
    trace = await run_with(worker, on_incomplete="more_tokens")
    assert [call.body["max_tokens"] for call in provider.completions] == [16, 64]
    assert [call.body["seed"] for call in provider.completions] == [3, 3]
    (step,) = trace.steps
    assert (step.status, step.output, trace.status) == ("completed", "The legs are ten", "completed")
    (attempt,) = step.attempts
    assert (attempt.error_code, attempt.then, attempt.then_max_tokens, attempt.partial) == (
        "AnswerCut",
        "more_tokens",
        64,
        "The le",
    )
    assert (step.usage.input_tokens, step.usage.output_tokens) == (14, 36)
    assert trace.cost_usd == pytest.approx((14 * 1.0 + 36 * 10.0) / 1e6)


async def test_more_tokens_than_the_provider_allows_leaves_what_there_is(provider: ScriptedProvider) -> None:
    provider.reset()
    provider.then(Answer("The le", (7, 16), finish_reason="length"), error(400, "max_tokens is too large"))
    worker = open_worker(provider.spec(params={"max_completion_tokens": 16}), Settings())
    trace = await run_with(worker, on_incomplete="more_tokens")
    assert [call.body["max_completion_tokens"] for call in provider.completions] == [16, 64]
    (step,) = trace.steps
    assert (step.status, step.output, trace.status, step.passed_on) == ("cut", "The le", "cut", False)
    assert [attempt.then for attempt in step.attempts] == ["more_tokens", "kept"]


async def test_more_tokens_end_with_the_attempts(provider: ScriptedProvider) -> None:
    provider.reset()
    provider.always(Answer("on and on", (7, 16), finish_reason="length"))
    trace = await run_with(open_worker(provider.spec(), Settings()), on_incomplete="more_tokens")
    assert [call.body.get("max_tokens") for call in provider.completions] == [None, 64, 256]
    assert (trace.status, trace.usage.output_tokens) == ("cut", 48)

"""Whole runs against a real server on loopback: what is called, what is reused, what is closed."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from conductor_core.workflow.model import Workflow
from tests.support.fakes import MemorySink, quick_settings, workflow_of
from tests.support.provider import Answer, Call, ScriptedProvider, cut_after, deterministic_answer, error, hang_after
from tests.support.workflows import AGENTS, edits, questions, workflows

TASK = "what is {question}?"


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(AGENTS) as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: ScriptedProvider) -> ScriptedProvider:
    shared_provider.reset()
    return shared_provider


def pool_of(provider: ScriptedProvider, **fields: Any) -> Pool:
    specs: list[WorkerSpec] = [provider.spec(name, **fields) for name in AGENTS]
    return Pool(name="loopback", workers={spec.name: open_worker(spec, Settings()) for spec in specs})


async def run_workflow(
    provider: ScriptedProvider,
    workflow: Workflow,
    *,
    options: Settings | None = None,
    reuse_from: RunTrace | None = None,
    overrides: Overrides | None = None,
    **worker: Any,
) -> tuple[RunTrace, MemorySink]:
    pool, sink = pool_of(provider, **worker), MemorySink()
    try:
        earlier = {} if reuse_from is None else {reuse_from.run_id: reuse_from}
        parent = next(iter(earlier), None)
        asked = RunRequest(task=TASK, workflow=workflow, limits=Limits(max_steps=12), parent_run_id=parent)
        asked = asked if overrides is None else asked.model_copy(update={"overrides": overrides})
        engine = Engine(sink, options or quick_settings(), earlier.__getitem__)
        trace = await engine.run(asked, None, pool)
    finally:
        await pool.aclose()
    return trace, sink


def told(name: str, messages: Sequence[Message]) -> str:
    """What the provider answers, by its own rule."""
    body = {"model": name, "messages": [message.model_dump() for message in messages]}
    return deterministic_answer(Call("POST", "/v1/chat/completions", {}, body, 0)).text


async def test_a_steps_own_seed_reaches_the_server_that_takes_seeds(provider: ScriptedProvider) -> None:
    plan = workflow_of((AGENTS[0], "one", ()), (AGENTS[0], "two", (0,)))
    await run_workflow(provider, plan, overrides=Overrides().with_seeds({1: 7}), params={"seed": 3, "top_p": 0.5})
    assert [(call.body["seed"], call.body["top_p"]) for call in provider.completions] == [(3, 0.5), (7, 0.5)]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_rerun_calls_the_provider_for_exactly_what_changed(
    shared_provider: ScriptedProvider, data: st.DataObject
) -> None:
    before = data.draw(workflows())
    after = data.draw(edits(before))

    async def first_and_again() -> tuple[RunTrace, RunTrace, RunTrace]:
        shared_provider.reset()
        first, _ = await run_workflow(shared_provider, before)
        shared_provider.calls.clear()
        again, _ = await run_workflow(shared_provider, after, reuse_from=first)
        called.update(asked_of(shared_provider))
        return first, again, (await run_workflow(shared_provider, after))[0]

    called: Counter[Any] = Counter()
    first, again, anew = asyncio.run(first_and_again())
    known = set(questions(before, TASK, told)[0])
    wanted, outputs = questions(after, TASK, told)
    assert called == Counter(question for question in wanted if question not in known)
    assert again.answer == anew.answer == outputs[-1]
    assert [step.output for step in again.steps] == outputs
    by_identity = {step.identity: step for step in first.steps}
    for step in again.steps:
        assert (step.status == "reused") == (step.identity in by_identity)
        if step.identity in by_identity:
            assert step.output.encode() == by_identity[step.identity].output.encode()


def asked_of(provider: ScriptedProvider) -> list[Any]:
    return [
        (call.model, tuple((message["role"], message["content"]) for message in call.messages))
        for call in provider.completions
    ]


CHAIN = workflow_of(("a", "x {question}", ()), ("b", "y", (0,)), ("c", "z", (1,)))


async def test_only_the_messages_of_the_access_list_leave_this_machine(provider: ScriptedProvider) -> None:
    provider.always(lambda call: Answer(f"<<secret of {call.messages[-1]['content']}>>"))
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()), ("c", "z", (1,)))
    trace, _ = await run_workflow(provider, workflow)
    assert trace.status == "completed"
    (last,) = (call for call in provider.completions if call.model == "c")
    assert [message["content"] for message in last.messages] == ["y", "<<secret of y>>", "z"]
    assert "secret of x" not in str(last.body)


async def test_figures_are_the_providers(provider: ScriptedProvider) -> None:
    trace, _ = await run_workflow(provider, CHAIN)
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.estimated) == (21, 9, False)
    assert trace.cost_usd == pytest.approx(3 * (7 * 1.0 + 3 * 10.0) / 1e6)


async def test_a_cut_stream_keeps_its_partial_text_and_is_asked_again(provider: ScriptedProvider) -> None:
    provider.then(cut_after("Half an ans"))
    trace, sink = await run_workflow(provider, CHAIN)
    (attempt,) = trace.steps[0].attempts
    assert (attempt.error_code, attempt.partial) == ("WorkerStreamCut", "Half an ans")
    assert attempt.usage.estimated
    assert trace.status == "completed"
    assert fold(sink.events) == trace
    assert len(provider.completions) == 4


async def test_a_busy_provider_is_asked_again_when_it_says(provider: ScriptedProvider) -> None:
    provider.then(error(429, retry_after="0"), error(503))
    trace, _ = await run_workflow(provider, CHAIN)
    assert [attempt.error_code for attempt in trace.steps[0].attempts] == ["WorkerRateLimited", "WorkerFailed"]
    assert trace.steps[0].attempts[0].wait_ms == 0
    assert trace.status == "completed"


async def test_a_refused_key_fails_the_step_and_is_not_asked_again(provider: ScriptedProvider) -> None:
    provider.always(lambda call: error(401) if call.model == "b" else Answer("fine"))
    trace, _ = await run_workflow(provider, CHAIN)
    assert [step.status for step in trace.steps] == ["completed", "failed", "skipped"]
    assert (trace.status, trace.error_code) == ("failed", "WorkerKeyRefused")
    assert len(provider.completions) == 2


async def test_a_dead_server_fails_the_step_in_one_clear_line(provider: ScriptedProvider) -> None:
    pool = pool_of(provider, base_url="http://127.0.0.1:9/v1")
    trace = await Engine(MemorySink(), quick_settings()).run(RunRequest(task=TASK, workflow=CHAIN), None, pool)
    await pool.aclose()
    assert (trace.error_code, trace.steps[0].attempts[0].error_code) == ("WorkerUnreachable", "WorkerUnreachable")
    assert "\n" not in (trace.error or "\n")


async def test_a_silent_provider_meets_the_time_limit_and_is_hung_up_on(provider: ScriptedProvider) -> None:
    provider.always(hang_after("thinking"))
    pool = pool_of(provider, timeout_s=0.3)
    engine = Engine(MemorySink(), quick_settings(step_attempts=1))
    trace = await engine.run(RunRequest(task=TASK, workflow=CHAIN), None, pool)
    assert (trace.steps[0].error_code, trace.steps[0].output) == ("WorkerTimedOut", "thinking")
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 1)
    await pool.aclose()


async def test_cancelling_closes_every_connection_at_once(provider: ScriptedProvider) -> None:
    provider.always(hang_after("half"))
    workflow = workflow_of(*((name, "x", ()) for name in AGENTS * 2))
    pool, sink = pool_of(provider), MemorySink()
    request = RunRequest(task=TASK, workflow=workflow, limits=Limits(max_steps=6))
    task = asyncio.create_task(Engine(sink, quick_settings()).run(request, None, pool))
    assert await asyncio.to_thread(provider.wait_until, lambda it: len(it.completions) == 6)
    task.cancel("page")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(provider.wait_until, lambda it: it.disconnects == 6)
    assert sink.kinds()[-1] == "run.cancelled"
    await pool.aclose()


async def test_a_workers_own_limit_holds_across_runs(provider: ScriptedProvider) -> None:
    provider.always(Answer("x", pause_s=0.005))
    pool, engine = pool_of(provider, max_concurrency=2), Engine(MemorySink(), quick_settings())
    workflow = workflow_of(*(("a", f"part {index}", ()) for index in range(3)))
    runs = [engine.run(RunRequest(task=f"task {n}", workflow=workflow), None, pool) for n in range(4)]
    traces = await asyncio.gather(*runs)
    assert {trace.status for trace in traces} == {"completed"}
    assert provider.most_at_once == 2
    await pool.aclose()


@pytest.mark.parametrize(
    ("answer", "thought"),
    [
        (Answer("<think>\nsay 2 + 2\n</think>\n\nIt is 4.", usage=(10, 400), pieces=17), "\nsay 2 + 2\n"),
        (Answer("It is 4.", reasoning="say 2 + 2", usage=(10, 400)), "say 2 + 2"),
    ],
)
async def test_reasoning_is_kept_apart_and_passed_on_only_where_the_pool_file_says_so(
    provider: ScriptedProvider, answer: Answer, thought: str
) -> None:
    workflow = workflow_of((AGENTS[0], "solve", ()), (AGENTS[1], "check", (0,)))
    provider.always(answer)
    trace, _ = await run_workflow(provider, workflow)
    first, second = trace.root.steps
    assert (first.output, first.reasoning) == ("It is 4.", thought)
    assert [message.content for message in second.messages] == ["solve", "It is 4.", "check"]
    assert second.granted[0].tokens < 10, "reasoning was paid and not granted"
    specs = [provider.spec(name, pass_reasoning=True) for name in AGENTS]
    pool = Pool(name="p", workers={spec.name: open_worker(spec, Settings()) for spec in specs})
    try:
        asked = RunRequest(task=TASK, workflow=workflow)
        passing = await Engine(MemorySink(), quick_settings()).run(asked, None, pool)
    finally:
        await pool.aclose()
    first, second = passing.root.steps
    assert first.reasoning == ""
    assert first.output == second.messages[1].content
    assert first.output.startswith("<think>\nsay 2 + 2\n</think>\n\n")
    assert first.output.endswith("It is 4.")
    assert first.identity != trace.root.steps[0].identity


async def test_reasoning_that_never_ends_is_kept_and_is_no_answer(provider: ScriptedProvider) -> None:
    provider.always(Answer("<think>first I", finish_reason="length", usage=(10, 400), pieces=5))
    trace, _ = await run_workflow(provider, workflow_of((AGENTS[0], "solve", ())))
    (step,) = trace.root.steps
    assert (step.output, step.reasoning) == ("", "first I")
    assert step.status != "completed"

"""What an attempt costs, what a retry repeats and what it does not, what a cancelled or broken one leaves behind."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, Usage
from conductor_core.engine import recorder, runner
from conductor_core.engine.runner import Engine
from conductor_core.errors import WorkerFailed, WorkerRateLimited, WorkerUnreachable
from conductor_core.run.events import StepCompleted, StepDelta, StepRetried, StepStarted
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import StepTrace, fold
from conductor_core.run.values import Limits
from tests.support.fakes import MemorySink, Reply, ScriptedWorker, pool_of, quick_settings, run, workflow_of

ONE = workflow_of(("a", "do it", ()))
PROMPT_TOKENS = 6
"""By estimate: two for "do it", four for the frame of its message."""
PROMPT_USD = PROMPT_TOKENS * 1.0 / 1e6
SILENT = [
    pytest.param(Reply(hang=True), "WorkerTimedOut", id="timed out"),
    pytest.param(Reply(finish_reason=None), "WorkerStreamCut", id="cut"),
]


async def step_of(worker: ScriptedWorker, **fields: Any) -> tuple[StepTrace, MemorySink]:
    trace, sink = await run(worker, workflow=ONE, **fields)
    return trace.steps[0], sink


async def test_a_retry_is_the_same_step_it_starts_once_and_counts_once() -> None:
    # Two calls are all this run may make: two steps, of which the first needs three attempts.
    worker = ScriptedWorker("a").then(WorkerUnreachable("1"), WorkerFailed("2"), "first", "second")
    trace, sink = await run(
        worker,
        workflow=workflow_of(("a", "x", ()), ("a", "y", (0,))),
        limits=Limits(max_steps=2, max_depth=0),
    )
    assert (trace.status, len(worker.calls)) == ("completed", 4)
    assert [event.path for event in sink.events if isinstance(event, StepStarted)] == [(0,), (1,)]
    assert len(trace.steps[0].attempts) == 2


async def test_the_wait_before_a_retry_is_recorded_and_kept() -> None:
    worker = ScriptedWorker("a").then(WorkerRateLimited("429", retry_after_s=0.05), "whole")
    step, sink = await step_of(worker, settings=quick_settings(retry_max_s=1.0))
    assert [attempt.wait_ms for attempt in step.attempts] == [50.0]
    retried = next(event for event in sink.events if isinstance(event, StepRetried))
    completed = next(event for event in sink.events if isinstance(event, StepCompleted))
    assert completed.at_ms - retried.at_ms >= 50.0
    assert (completed.attempts, retried.attempt) == (2, 1)


@pytest.mark.parametrize(("silence", "code"), SILENT)
async def test_an_attempt_that_was_read_but_never_answered_is_paid_for(silence: Reply, code: str) -> None:
    worker = ScriptedWorker("a", timeout_s=0.2).then(silence, Reply(text="whole", cost_usd=1.0))
    step, _ = await step_of(worker)
    (lost,) = step.attempts
    assert (lost.error_code, lost.partial) == (code, "")
    # The provider took the prompt and may have answered it: so much is charged, by estimate.
    assert lost.usage == Usage(input_tokens=PROMPT_TOKENS, estimated=True)
    assert lost.cost_usd == pytest.approx(PROMPT_USD)
    assert step.cost_usd == pytest.approx(1.0 + PROMPT_USD)


@pytest.mark.parametrize(("silence", "code"), SILENT)
async def test_the_last_attempt_is_paid_for_in_the_same_way(silence: Reply, code: str) -> None:
    worker = ScriptedWorker("a", lambda _: silence, timeout_s=0.1)
    step, _ = await step_of(worker, settings=quick_settings(step_attempts=1))
    assert (step.status, step.error_code, step.output) == ("failed", code, "")
    assert step.usage == Usage(input_tokens=PROMPT_TOKENS, estimated=True)
    assert step.cost_usd == pytest.approx(PROMPT_USD)
    assert step.at_list_price


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of a run: ``s`` seconds, and never more by itself."""
    pinned = SimpleNamespace(s=0.0)
    for module in (runner, recorder):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: pinned.s))
    return pinned


async def test_the_first_token_is_the_first_and_not_the_last(now: SimpleNamespace) -> None:
    class Slow(ScriptedWorker):
        async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
            for piece in ("one ", "two ", "three"):
                yield TextDelta(text=piece)
                now.s += 0.1
            yield Finished(finish_reason="stop", usage=Usage(input_tokens=1, output_tokens=3), model="a-model")

    step, _ = await step_of(Slow("a"))
    assert step.output == "one two three"
    assert (step.first_token_ms, step.duration_ms) == (0, 300)


async def test_after_a_retry_the_first_token_is_of_the_answer_that_counts(now: SimpleNamespace) -> None:
    def answer(_: object) -> Reply:
        now.s += 0.1
        return Reply(text="kept") if now.s > 0.15 else Reply(text="lost", error=WorkerFailed("500"))

    step, _ = await step_of(ScriptedWorker("a", answer))
    assert (step.output, step.first_token_ms) == ("kept", 200)


async def test_text_that_no_event_held_yet_when_the_run_was_cancelled_is_in_its_record() -> None:
    first_kept, second_read = asyncio.Event(), asyncio.Event()

    class Waiting(ScriptedWorker):
        async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
            yield TextDelta(text="written, ")
            await first_kept.wait()
            yield TextDelta(text="still to be written")
            second_read.set()
            await asyncio.Event().wait()

    class Watching(MemorySink):
        def append(self, *events: Any) -> "asyncio.Future[None]":
            if any(isinstance(event, StepDelta) for event in events):
                first_kept.set()
            return super().append(*events)

    sink = Watching()
    engine = Engine(sink, quick_settings(delta_interval_ms=60_000))
    task = asyncio.create_task(engine.run(RunRequest(task="t", workflow=ONE), None, pool_of(Waiting("a"))))
    async with asyncio.timeout(10):
        await second_read.wait()
    # The next delta is due in a minute: what came last is in no event yet.
    assert fold(sink.events).steps[0].output == "written, "
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fold(sink.events).steps[0].output == "written, still to be written"

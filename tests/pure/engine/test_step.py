"""One step against scripted workers: attempts, time limits, usage, cost, what is kept of what fails."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, Usage
from conductor_core.engine import recorder, runner
from conductor_core.engine.calls import wait_before_retry_s
from conductor_core.engine.estimates import preview
from conductor_core.engine.runner import Engine
from conductor_core.errors import WorkerError, WorkerFailed, WorkerRateLimited, WorkerRefused, WorkerUnreachable
from conductor_core.run.events import (
    FINAL_KINDS,
    Event,
    RunInterrupted,
    StepCompleted,
    StepDelta,
    StepFailed,
    StepRetried,
    StepStarted,
)
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, StepTrace, fold
from conductor_core.run.values import Limits
from tests.support.eventually import eventually_async
from tests.support.fakes import MemorySink, Reply, ScriptedWorker, pool_of, quick_settings, run, workflow_of

ONE = workflow_of(("a", "do it", ()))


async def one_step(worker: ScriptedWorker, **fields: Any) -> tuple[StepTrace, RunTrace, MemorySink]:
    trace, sink = await run(worker, workflow=ONE, **fields)
    return trace.steps[0], trace, sink


async def test_a_step_is_recorded_before_it_is_called() -> None:
    sink = MemorySink(delay_s=0.005)
    seen: list[list[str]] = []

    def answer(_: object) -> str:
        seen.append(sink.kinds())
        return "done"

    step, _, _ = await one_step(ScriptedWorker("a", answer), sink=sink)
    assert seen == [["run.created", "plan.completed", "step.started"]]
    assert step.status == "completed"


async def test_the_providers_own_figures_are_kept() -> None:
    usage = Usage(input_tokens=100, output_tokens=7)
    worker = ScriptedWorker("a").then(Reply(text="x", usage=usage, cost_usd=0.5))
    step, trace, _ = await one_step(worker)
    assert (step.usage, step.cost_usd, step.at_list_price, step.model) == (usage, 0.5, False, "a-model")
    assert (trace.usage, trace.cost_usd) == (usage, 0.5)


async def test_without_figures_usage_is_estimated_and_says_so() -> None:
    step, _, _ = await one_step(ScriptedWorker("a").then(Reply(text="x" * 40, reasoning="y" * 8, usage=None)))
    assert step.usage == Usage(input_tokens=6, output_tokens=12, estimated=True)
    assert step.cost_usd == pytest.approx((6 * 1.0 + 12 * 10.0) / 1e6)
    assert step.at_list_price


async def test_without_a_price_the_cost_is_unknown_not_zero() -> None:
    step, trace, _ = await one_step(ScriptedWorker("a", usd_per_mtok=None))
    assert (step.cost_usd, trace.cost_usd) == (None, None)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("length", "cut"),
        ("content_filter", "filtered"),
        ("refusal", "refused"),
        ("tool_calls", "cut"),
        ("other", "cut"),
    ],
)
async def test_an_answer_that_ended_for_another_reason_is_no_completed_one(reason: Any, status: str) -> None:
    step, trace, _ = await one_step(ScriptedWorker("a").then(Reply(text="half", finish_reason=reason)))
    assert (step.status, step.incomplete, step.finish_reason, trace.answer) == (status, True, reason, "half")
    assert trace.status == status


async def test_a_failed_attempt_is_retried_and_keeps_its_partial_text() -> None:
    worker = ScriptedWorker("a").then(Reply(text="half an ans", error=WorkerFailed("500")), "whole")
    step, trace, sink = await one_step(worker)
    (retried,) = (event for event in sink.events if isinstance(event, StepRetried))
    assert (retried.attempt, retried.error_code, retried.error, retried.partial) == (
        1,
        "WorkerFailed",
        "500",
        "half an ans",
    )
    assert (step.output, trace.answer, len(worker.calls)) == ("whole", "whole", 2)
    # What the provider had begun to answer is counted, by estimate.
    assert step.attempts[0].usage == Usage(input_tokens=6, output_tokens=3, estimated=True)
    assert trace.usage == Usage(input_tokens=16, output_tokens=8, estimated=True)


async def test_an_attempt_that_brought_nothing_costs_nothing() -> None:
    step, trace, _ = await one_step(ScriptedWorker("a").then(WorkerUnreachable("no route"), "whole"))
    assert step.attempts[0].usage == Usage()
    assert trace.cost_usd == pytest.approx(10 / 1e6 + 50 / 1e6)


async def test_a_stream_without_a_finish_reason_was_cut() -> None:
    step, _, _ = await one_step(ScriptedWorker("a").then(Reply(text="cut of", finish_reason=None), "whole"))
    assert [attempt.error_code for attempt in step.attempts] == ["WorkerStreamCut"]
    assert step.output == "whole"


async def test_attempts_are_bounded_and_the_partial_text_of_the_last_is_kept() -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="partial", error=WorkerFailed("still 500")))
    step, trace, sink = await one_step(worker)
    assert len(worker.calls) == 3
    assert (step.status, step.output, step.error_code, step.error) == ("failed", "partial", "WorkerFailed", "still 500")
    (failed,) = (event for event in sink.events if isinstance(event, StepFailed))
    assert failed.attempts == 3
    assert (trace.status, trace.error_code) == ("failed", "WorkerFailed")
    assert trace.error == "step 0 (a) failed: still 500"


async def test_what_asking_again_cannot_help_is_not_asked_again() -> None:
    worker = ScriptedWorker("a").then(WorkerRefused("401: key refused"))
    step, _, _ = await one_step(worker)
    assert (len(worker.calls), step.status, step.attempts) == (1, "failed", [])


async def test_a_worker_that_breaks_fails_its_step_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        step, trace, _ = await one_step(ScriptedWorker("a").then(ZeroDivisionError("division by zero")))
    assert (step.error_code, trace.status) == ("ZeroDivisionError", "failed")
    assert step.error == "worker a broke unexpectedly, see the log: ZeroDivisionError: division by zero"
    assert caplog.records[0].exc_info is not None


async def test_the_time_limit_holds_for_each_attempt() -> None:
    worker = ScriptedWorker("a", timeout_s=0.2).then(Reply(text="slow", hang=True), "in time")
    step, _, _ = await one_step(worker)
    assert [attempt.error_code for attempt in step.attempts] == ["WorkerTimedOut"]
    assert step.attempts[0].error == "worker a gave no complete answer within 0.2 s"
    assert step.attempts[0].partial == "slow"
    assert (step.output, worker.closed) == ("in time", 1)


async def test_a_timeout_of_the_workers_own_is_not_taken_for_the_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    step, _, _ = await one_step(ScriptedWorker("a").then(TimeoutError("inside")))
    assert step.error_code == "TimeoutError"
    assert "inside" in caplog.text


async def test_a_worker_that_cancels_itself_fails_its_step_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            async for chunk in super().answer(messages):
                yield chunk
            raise asyncio.CancelledError

    odd = Odd("odd").then(Reply(text="half", finish_reason=None))
    trace, _ = await run(odd, ScriptedWorker("a"), workflow=workflow_of(("odd", "x", ()), ("a", "y", ())))
    assert [step.status for step in trace.steps] == ["failed", "completed"]
    assert trace.steps[0].error_code == "CancelledError"
    assert "worker odd broke" in caplog.text


async def test_half_a_character_is_replaced_so_that_it_can_be_kept() -> None:
    step, _, _ = await one_step(ScriptedWorker("a").then("a\ud83d--\U0001f600"))
    assert step.output == "a\ufffd--\U0001f600"


async def test_reasoning_is_logged_and_not_passed_on() -> None:
    workflow = workflow_of(("a", "think", ()), ("b", "use it", (0,)))
    reader = ScriptedWorker("b")
    trace, _ = await run(
        ScriptedWorker("a").then(Reply(text="out", reasoning="secret thought")), reader, workflow=workflow
    )
    assert (trace.steps[0].reasoning, trace.steps[0].output) == ("secret thought", "out")
    assert "secret thought" not in str(reader.calls)


async def test_streamed_text_is_logged_whole() -> None:
    worker = ScriptedWorker("a").then(Reply(text="abcdefgh", reasoning="hm"))
    _, _, sink = await one_step(worker, settings=quick_settings(delta_interval_ms=75))
    deltas = [event for event in sink.events if isinstance(event, StepDelta)]
    assert "".join(delta.text for delta in deltas if not delta.reasoning) == "abcdefgh"
    assert "".join(delta.text for delta in deltas if delta.reasoning) == "hm"
    assert [delta.output_tokens for delta in deltas] == sorted(delta.output_tokens for delta in deltas)


async def test_a_slow_log_does_not_hold_up_the_stream() -> None:
    read: list[int] = []

    one_at_a_time = asyncio.Lock()

    class Counting(MemorySink):
        def append(self, *events: Event) -> "asyncio.Future[None]":
            return asyncio.ensure_future(self._slowly(events))

        async def _slowly(self, events: Sequence[Event]) -> None:
            async with one_at_a_time:
                if isinstance(events[0], StepDelta):
                    await eventually_async(lambda: len(worker_texts) == 3)
                    read.append(len(worker_texts))
                await super().append(*events)

    worker_texts: list[str] = []

    class Talking(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            async for chunk in super().answer(messages):
                worker_texts.append("x")
                yield chunk

    step, _, _ = await one_step(Talking("a").then("abcd"), sink=Counting())
    assert step.output == "abcd"
    # While the first piece was being written, the whole stream was read.
    assert read[0] == 3


async def test_figures_of_time_are_in_order() -> None:
    _, _, sink = await one_step(ScriptedWorker("a").then(Reply(text="x", wait_s=0.01)))
    started = next(event for event in sink.events if isinstance(event, StepStarted))
    completed = next(event for event in sink.events if isinstance(event, StepCompleted))
    assert completed.first_token_ms is not None
    assert 0 < completed.first_token_ms <= completed.duration_ms
    assert completed.at_ms == pytest.approx(started.at_ms + completed.duration_ms)


def test_waits_double_with_jitter_and_are_bounded() -> None:
    settings = quick_settings(retry_initial_s=1.0, retry_max_s=6.0)
    error = WorkerError("x")
    for attempt, least in ((1, 1.0), (2, 2.0), (3, 4.0)):
        waits = {wait_before_retry_s(error, attempt, settings, None) for _ in range(20)}
        assert all(wait is not None and least <= wait <= min(least + 1.0, 6.0) for wait in waits)
        assert len(waits) > 1
    assert wait_before_retry_s(error, 9, settings, None) == 6.0


@pytest.mark.parametrize(
    ("asked", "left", "waits"),
    [
        (3.0, 60.0, 3.0),
        (59.0, 60.0, 59.0),
        (61.0, 60.0, None),
        (3600.0, None, 3600.0),
    ],
)
def test_retry_after_is_honoured_up_to_the_end_of_the_run(
    asked: float, left: float | None, waits: float | None
) -> None:
    settings = quick_settings(retry_initial_s=1.0, retry_max_s=6.0)
    assert wait_before_retry_s(WorkerRateLimited("429", retry_after_s=asked), 1, settings, left) == waits


@pytest.mark.parametrize("asked", [0.0, -1.0])
def test_a_retry_after_of_no_time_does_not_spend_all_attempts_at_once(asked: float) -> None:
    settings = quick_settings(retry_initial_s=1.0, retry_max_s=6.0)
    wait_s = wait_before_retry_s(WorkerRateLimited("429", retry_after_s=asked), 2, settings, 60.0)
    assert wait_s is not None
    assert 2.0 <= wait_s <= 3.0


async def test_a_wait_beyond_the_runs_time_limit_names_the_limit() -> None:
    worker = ScriptedWorker("a").then(WorkerRateLimited("busy, 429", retry_after_s=90.0))
    step, _, _ = await one_step(worker, limits=Limits(max_seconds=30))
    assert step.error is not None
    assert step.error.startswith("busy, 429; it asks to wait 90 s, and this run may take 30 s in all")


async def test_a_worker_answers_no_more_calls_at_once_than_it_may() -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="x", wait_s=0.01), max_concurrency=2)
    workflow = workflow_of(*(("a", f"part {index}", ()) for index in range(5)))
    trace, _ = await run(worker, workflow=workflow)
    assert (worker.most_at_once, trace.status) == (2, "completed")


async def test_a_step_that_waits_for_its_turn_has_not_started() -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="x", wait_s=0.01), max_concurrency=1)
    _, sink = await run(worker, workflow=workflow_of(("a", "x", ()), ("a", "y", ())))
    assert [kind for kind in sink.kinds() if kind in ("step.started", "step.completed")] == [
        "step.started",
        "step.completed",
    ] * 2


async def test_a_step_that_waits_before_a_retry_lets_others_call() -> None:
    worker = ScriptedWorker("a", max_concurrency=1).then(
        WorkerRateLimited("429", retry_after_s=0.05), "second", "first"
    )
    trace, sink = await run(
        worker, workflow=workflow_of(("a", "x", ()), ("a", "y", ())), settings=quick_settings(retry_max_s=1.0)
    )
    ends = [event.path for event in sink.events if isinstance(event, StepCompleted)]
    assert ends == [(1,), (0,)]
    assert trace.status == "completed"


# What an attempt costs, what a retry repeats and what it does not, what a cancelled or broken one leaves behind.


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
        async def answer(self, messages: Sequence[Message], terms: Any = None) -> AsyncGenerator[Chunk]:
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
        async def answer(self, messages: Sequence[Message], terms: Any = None) -> AsyncGenerator[Chunk]:
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


# Answers that are no whole ones: what a run does about them, by its setting, and what its record says.


CUT = Reply(text="half", finish_reason="length")
REFUSED = Reply(text="", finish_reason="refusal")
CHAIN = workflow_of(("a", "x", ()), ("b", "y", (0,)))


@pytest.mark.parametrize(
    ("reply", "was"),
    [
        (Reply(text="cut by its limit", finish_reason="length"), "cut"),
        (Reply(text="half", finish_reason="content_filter"), "filtered"),
        (Reply(text="no", finish_reason="refusal"), "refused"),
        (Reply(text=" "), "empty"),
    ],
)
async def test_an_answer_that_is_no_whole_one_is_asked_for_again(reply: Reply, was: str) -> None:
    worker = ScriptedWorker("a").then(reply, "whole")
    first, _ = await run(worker, workflow=workflow_of(("a", "x", ())))
    assert first.root.workflow is not None
    (forecast,) = preview(first, first.root.workflow, pool_of(worker).specs).will_run
    assert forecast.reason == f"its answer was {was} in run {first.run_id}, so it is asked again"
    second, _ = await run(worker, workflow=workflow_of(("a", "x", ())), reuse_from=first)
    assert (second.steps[0].status, second.answer, len(worker.calls)) == ("completed", "whole", 2)


async def test_a_run_that_is_taken_up_pays_for_no_answer_again_whole_or_not() -> None:
    worker = ScriptedWorker("a").then(Reply(text="half", finish_reason="length"), Reply(text="", hang=True), "whole")
    workflow = workflow_of(("a", "x", ()), ("a", "y", (0,)))
    first, sink = await run(worker, workflow=workflow, limits=Limits(max_seconds=0.2))
    begun = [event for event in sink.events if event.kind not in FINAL_KINDS]
    interrupted = fold([*begun, RunInterrupted(run_id=first.run_id)])
    second, _ = await run(worker, workflow=workflow, reuse_from=interrupted, resumed=True)
    step = second.steps[0]
    assert (step.status, step.output, step.ending, step.passed_on) == ("cut", "half", "cut", True)
    assert step.reused_from is not None
    assert (second.status, second.answer, len(worker.calls)) == ("completed", "whole", 3)


async def test_by_default_a_cut_answer_goes_on_and_the_run_is_completed() -> None:
    reader = ScriptedWorker("b")
    trace, _ = await run(ScriptedWorker("a").then(CUT), reader, workflow=CHAIN)
    assert [step.status for step in trace.steps] == ["cut", "completed"]
    assert (trace.status, trace.on_incomplete, trace.steps[0].passed_on) == ("completed", "allow", True)
    assert reader.calls[0][1].content == "half"


@pytest.mark.parametrize("reply", [CUT, REFUSED, Reply(text=""), Reply(text="h", finish_reason="content_filter")])
async def test_where_it_is_to_stop_nobody_reads_it_and_the_rest_goes_on(reply: Reply) -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", (0,)), ("b", "alone", ()), ("b", "z", (1,)))
    reader = ScriptedWorker("b")
    trace, _ = await run(ScriptedWorker("a").then(reply), reader, workflow=workflow, on_incomplete="stop")
    status = trace.steps[0].status
    assert [step.status for step in trace.steps] == [status, "skipped", "completed", "skipped"]
    assert trace.steps[1].because == trace.steps[3].because == ((0,),)
    assert not trace.steps[0].passed_on
    assert (trace.status, trace.error_code) == ("failed", f"Answer{status.capitalize()}")
    assert trace.error is not None
    assert trace.error.startswith("step 0 (a): ")
    assert len(reader.calls) == 1


async def test_a_last_step_without_a_whole_answer_gives_the_run_its_status_whatever_the_setting() -> None:
    trace, _ = await run(ScriptedWorker("a").then(CUT), workflow=workflow_of(("a", "x", ())), on_incomplete="stop")
    assert (trace.status, trace.answer, trace.error) == ("cut", "half", None)


async def test_a_fallback_answers_for_one_that_refuses_and_both_are_paid() -> None:
    a = ScriptedWorker("a", fallback="spare").then(REFUSED)
    spare, reader = ScriptedWorker("spare").then("whole"), ScriptedWorker("b")
    trace, _ = await run(a, spare, reader, workflow=CHAIN, on_incomplete="fallback")
    first = trace.steps[0]
    assert (first.status, first.output, first.answered_by, trace.status) == ("completed", "whole", "spare", "completed")
    (attempt,) = first.attempts
    assert (attempt.error_code, attempt.then, attempt.then_agent, attempt.agent) == (
        "AnswerRefused",
        "fallback",
        "spare",
        None,
    )
    assert first.usage.total_tokens == 30
    assert first.cost_usd == pytest.approx(2 * 60 / 1e6)
    assert spare.calls == a.calls
    assert [shared.agent for shared in trace.steps[1].granted] == ["spare"]


async def test_a_fallback_serves_a_worker_that_failed_for_good_whatever_the_setting() -> None:
    a = ScriptedWorker("a", lambda _: WorkerFailed("500"), fallback="spare")
    spare = ScriptedWorker("spare", usd_per_mtok=None)
    trace, _ = await run(a, spare, workflow=workflow_of(("a", "x", ())))
    assert (trace.status, trace.steps[0].answered_by) == ("completed", "spare")
    assert (len(a.calls), len(spare.calls)) == (3, 1)
    assert [(each.then, each.then_agent) for each in trace.steps[0].attempts] == [
        ("again", None),
        ("again", None),
        ("fallback", "spare"),
    ]
    assert trace.cost_usd is None, "the spare one's price is unknown"


async def test_a_long_wait_is_not_waited_out_where_a_fallback_can_be_asked() -> None:
    a = ScriptedWorker("a", fallback="spare").then(WorkerRateLimited("429", retry_after_s=200))
    spare = ScriptedWorker("spare")
    trace, _ = await run(a, spare, workflow=workflow_of(("a", "x", ())), limits=Limits(max_seconds=400))
    assert (trace.steps[0].answered_by, len(a.calls)) == ("spare", 1)


async def test_fallbacks_that_name_each_other_end() -> None:
    a = ScriptedWorker("a", lambda _: WorkerRefused("no"), fallback="b")
    b = ScriptedWorker("b", lambda _: WorkerRefused("nor I"), fallback="a")
    trace, _ = await run(a, b, workflow=workflow_of(("a", "x", ())))
    assert (trace.status, trace.error, len(a.calls), len(b.calls)) == ("failed", "step 0 (a) failed: nor I", 1, 1)


async def test_where_the_fallback_fails_what_the_first_one_brought_stands() -> None:
    a = ScriptedWorker("a", fallback="spare").then(CUT)
    spare = ScriptedWorker("spare").then(WorkerRefused("401"))
    trace, _ = await run(a, spare, workflow=workflow_of(("a", "x", ())), on_incomplete="fallback")
    step = trace.steps[0]
    assert (step.status, step.output, step.answered_by, trace.status) == ("cut", "half", None, "cut")
    assert [(each.error_code, each.then, each.agent) for each in step.attempts] == [
        ("AnswerCut", "fallback", None),
        ("WorkerRefused", "kept", "spare"),
    ]
    assert step.usage.total_tokens == 15, "paid once"


async def test_a_fallback_counts_against_the_budget() -> None:
    a = ScriptedWorker("a", fallback="spare").then(REFUSED)
    spare = ScriptedWorker("spare")
    limits = Limits(max_tokens=12)
    trace, _ = await run(a, spare, workflow=workflow_of(("a", "x", ())), on_incomplete="fallback", limits=limits)
    assert (trace.error_code, len(spare.calls)) == ("LimitReached", 0)


async def test_a_fallback_that_the_run_excludes_is_not_asked() -> None:
    a, spare = ScriptedWorker("a", fallback="spare").then(REFUSED), ScriptedWorker("spare")
    trace, _ = await run(a, spare, workflow=workflow_of(("a", "x", ())), on_incomplete="fallback", excluded=("spare",))
    assert (trace.status, spare.calls) == ("refused", [])


async def test_a_rerun_goes_by_the_setting_of_the_run_it_was_made_from_and_reuses_a_fallbacks_answer() -> None:
    a = ScriptedWorker("a", fallback="spare").then(REFUSED)
    spare, reader = ScriptedWorker("spare"), ScriptedWorker("b")
    first, _ = await run(a, spare, reader, workflow=CHAIN, on_incomplete="fallback")
    second, _ = await run(a, spare, reader, workflow=CHAIN, reuse_from=first)
    assert [step.status for step in second.steps] == ["reused", "reused"]
    assert (second.steps[0].answered_by, len(a.calls), len(spare.calls)) == ("spare", 1, 1)

"""A run's end: budgets, cancellation, a log that fails. Whatever happens, what is finished is kept."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from conductor_core.chat.messages import Usage
from conductor_core.engine.approvals import Stop
from conductor_core.engine.runner import Engine, RoundRunner
from conductor_core.errors import StoreError, StoreFull
from conductor_core.run.events import Event, RunCancelled, RunFailed
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow
from tests.support.eventually import eventually_async
from tests.support.fakes import (
    MemorySink,
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    pool_of,
    quick_settings,
    run,
    workflow_of,
)
from tests.support.run_events import PAGE

CHAIN = workflow_of(("a", "x", ()), ("a", "y", (0,)), ("a", "z", (1,)))
HANGING = Reply(text="half a word", hang=True)


async def begin(
    *workers: ScriptedWorker, sink: MemorySink, conductor: ScriptedConductor | None = None, **request: Any
) -> "asyncio.Task[RunTrace]":
    asked = RunRequest(**({"task": "the task", "door": "page"} | request))
    return asyncio.create_task(Engine(sink, quick_settings()).run(asked, conductor, pool_of(*workers)))


async def turns(count: int = 20) -> None:
    """Lets the loop go round: enough for all that is due now."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_cancelling_closes_the_connection_and_is_written_with_totals() -> None:
    sink = MemorySink()
    worker = ScriptedWorker("a").then("done", HANGING)
    task = await begin(worker, sink=sink, workflow=CHAIN)
    await eventually_async(lambda: len(worker.calls) == 2 and sink.kinds().count("step.delta") >= 2)
    task.cancel(Stop(PAGE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert worker.closed == 1
    last = sink.events[-1]
    assert isinstance(last, RunCancelled)
    assert last.caller == PAGE
    # What the broken call had cost so far is in the totals, by estimate.
    assert last.usage.estimated
    assert last.usage.total_tokens > 15
    trace = fold(sink.events)
    assert [step.status for step in trace.steps] == ["completed", "cancelled", "skipped"]
    assert trace.steps[1].output == "half a word"
    assert (trace.status, trace.ended_by, trace.usage) == ("cancelled", PAGE, last.usage)


async def test_text_still_to_be_written_when_a_run_is_cancelled_is_not_lost() -> None:
    sink = MemorySink()
    worker = ScriptedWorker("a").then(HANGING)
    engine = Engine(sink, quick_settings(delta_interval_ms=60_000))
    task = asyncio.create_task(engine.run(RunRequest(task="t", workflow=CHAIN), None, pool_of(worker)))
    await eventually_async(lambda: "step.delta" in sink.kinds())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fold(sink.events).steps[0].output == "half a word"


async def test_planning_can_be_cancelled() -> None:
    sink = MemorySink()
    conductor = ScriptedConductor("thinking " * 1000, pause_s=0.001)
    task = await begin(ScriptedWorker("a"), sink=sink, conductor=conductor)
    await eventually_async(lambda: "plan.delta" in sink.kinds())
    task.cancel(Stop(PAGE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert conductor.closed == 1
    trace = fold(sink.events)
    assert trace.status == "cancelled"
    assert trace.root.raw.startswith("thinking ")


async def test_a_second_cancel_does_not_lose_the_end() -> None:
    sink = MemorySink(delay_s=0.05)
    worker = ScriptedWorker("a").then(HANGING)
    task = await begin(worker, sink=sink, workflow=CHAIN)
    await eventually_async(lambda: worker.calls)
    task.cancel(Stop(PAGE))
    await turns()
    task.cancel(Stop(PAGE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.kinds()[-1] == "run.cancelled"


async def test_a_connection_that_does_not_close_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    class Stuck(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            try:
                async for chunk in super().answer(messages):
                    yield chunk
            finally:
                await release.wait()

    sink = MemorySink()
    worker = Stuck("a").then(HANGING)
    task = await begin(worker, sink=sink, workflow=CHAIN)
    await eventually_async(lambda: "step.delta" in sink.kinds())
    with caplog.at_level(logging.WARNING):
        task.cancel(Stop(PAGE))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sink.kinds()[-1] == "run.cancelled"
    assert "did not close" in caplog.text
    release.set()
    await turns()
    assert sink.kinds()[-1] == "run.cancelled"


async def test_the_time_limit_ends_the_run_and_keeps_what_is_finished() -> None:
    worker = ScriptedWorker("a").then("first", HANGING)
    trace, sink = await run(worker, workflow=CHAIN, limits=Limits(max_seconds=0.5))
    assert (trace.status, trace.error_code) == ("failed", "LimitReached")
    assert trace.error == "the time limit of this run is reached: 0.5 s, planning included"
    assert [(step.status, step.output) for step in trace.steps] == [
        ("completed", "first"),
        ("cancelled", "half a word"),
        ("skipped", ""),
    ]
    assert worker.closed == 1
    assert sink.kinds()[-1] == "run.failed"


async def test_the_time_limit_covers_planning() -> None:
    conductor = ScriptedConductor("thinking " * 1000, pause_s=0.005)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor, limits=Limits(max_seconds=0.05))
    assert (trace.error_code, conductor.closed) == ("LimitReached", 1)


async def test_tokens_are_counted_before_each_step() -> None:
    worker = ScriptedWorker("a")
    trace, _ = await run(worker, workflow=CHAIN, limits=Limits(max_tokens=15))
    assert (trace.status, trace.error_code, len(worker.calls)) == ("failed", "LimitReached", 1)
    assert trace.error == "the token limit of this run is reached: 15 of 15 tokens"
    assert trace.steps[0].status == "completed"


async def test_a_call_that_a_limit_forbids_is_not_made_and_does_not_count() -> None:
    worker = ScriptedWorker("a")
    trace, _ = await run(worker, workflow=CHAIN, limits=Limits(max_tokens=1))
    assert (trace.error_code, worker.calls, trace.usage.total_tokens) == ("LimitReached", [], 0)


async def test_tokens_are_estimated_while_an_answer_streams() -> None:
    worker = ScriptedWorker("a").then(Reply(text="x" * 4000, hang=True))
    trace, _ = await run(worker, workflow=CHAIN, limits=Limits(max_tokens=300))
    assert (trace.error_code, worker.closed) == ("LimitReached", 1)
    assert trace.usage.estimated
    assert trace.usage.output_tokens == 500
    assert trace.steps[0].output == "x" * 2000


async def test_the_usage_of_one_step_stops_the_others_that_run() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()), ("a", "z", "all"))
    a = ScriptedWorker("a").then(Reply(text="x", usage=Usage(input_tokens=5000, output_tokens=1)))
    b = ScriptedWorker("b").then(Reply(wait_s=60))
    trace, _ = await run(a, b, workflow=workflow, limits=Limits(max_tokens=1000))
    assert [step.status for step in trace.steps] == ["completed", "cancelled", "skipped"]
    assert (trace.error_code, b.closed) == ("LimitReached", 1)


async def test_an_answer_that_is_there_is_not_failed_for_what_it_cost() -> None:
    workflow = workflow_of(("a", "x", ()))
    worker = ScriptedWorker("a").then(Reply(text="x", usage=Usage(input_tokens=5000, output_tokens=1)))
    trace, _ = await run(worker, workflow=workflow, limits=Limits(max_tokens=1000, max_usd=0.001))
    assert trace.status == "completed"


async def test_dollars_are_counted() -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="x", cost_usd=0.3))
    trace, _ = await run(worker, workflow=CHAIN, limits=Limits(max_usd=0.5))
    assert (trace.status, len(worker.calls)) == ("failed", 2)
    assert trace.error == "the cost limit of this run is reached: 0.600000 USD spent, the limit is 0.5 USD"
    assert trace.cost_usd == pytest.approx(0.6)


async def test_a_limit_of_no_dollars_allows_what_is_free() -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="x", cost_usd=0.0), usd_per_mtok=None)
    trace, _ = await run(worker, workflow=CHAIN, limits=Limits(max_usd=0.0))
    assert trace.status == "completed"


async def test_calls_of_a_whole_run_are_bounded() -> None:
    inner = workflow_of(("a", "1", ()), ("a", "2", ()))
    workflow = workflow_of(("conductor", "x", ()), ("conductor", "y", ()), ("conductor", "z", ()))
    worker = ScriptedWorker("a")
    trace, _ = await run(
        worker,
        workflow=workflow,
        conductor=ScriptedConductor(lists_of(inner, ("a",))),
        limits=Limits(max_steps=3, max_depth=1, max_tokens=None),
    )
    assert len(worker.calls) == 6
    assert trace.status == "completed"
    worker = ScriptedWorker("a")
    trace, _ = await run(
        worker,
        workflow=workflow,
        conductor=ScriptedConductor(lists_of(workflow_of(*(("a", str(n), ()) for n in range(3))), ("a",))),
        limits=Limits(max_steps=3, max_depth=1),
    )
    assert len(worker.calls) == 6
    assert (trace.status, trace.error_code) == ("failed", "LimitReached")
    assert "6 of 6 calls" in (trace.error or "")


@pytest.mark.parametrize("kind", ["plan.completed", "step.started", "step.delta", "step.completed", "run.completed"])
async def test_a_log_that_fails_stops_the_run_and_the_caller_is_told(kind: str) -> None:
    sink = MemorySink()
    sink.error, sink.failing = StoreFull("the disk is full: free some space"), frozenset({kind})
    worker = ScriptedWorker("a").then(Reply(text="some words", wait_s=0.0), *[Reply(text="z", wait_s=0.01)] * 2)
    with pytest.raises(StoreFull, match="the disk is full"):
        await run(worker, workflow=CHAIN, sink=sink)
    # The one event that says so is written where the log takes it; nothing says that the run completed.
    assert "run.completed" not in sink.kinds()
    last = sink.events[-1]
    assert isinstance(last, RunFailed)
    assert (last.error_code, last.error) == ("StoreFull", "the disk is full: free some space")
    calls = {"plan.completed": 0, "step.started": 0, "step.completed": 1}
    if kind in calls:
        assert len(worker.calls) == calls[kind]


class SlowLog(MemorySink):
    """A log that answers in order, each time only after a while. ``durable``: the kinds of events that it has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[str] = []
        self._turn = asyncio.Lock()

    def append(self, *events: Event) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._slowly(events))

    async def _slowly(self, events: Sequence[Event]) -> None:
        async with self._turn:
            await asyncio.sleep(0.005)
            await super().append(*events)
            self.durable += [event.kind for event in events]


async def test_nothing_leaves_before_all_that_it_rests_on_is_durable() -> None:
    sink = SlowLog()
    durable: list[list[str]] = []

    def answer(_: object) -> Reply:
        durable.append([kind for kind in sink.durable if kind != "step.delta"])
        return Reply(text="words")

    trace, _ = await run(ScriptedWorker("a", answer), workflow=CHAIN, sink=sink)
    assert trace.status == "completed"
    begun, step = ["run.created", "plan.completed"], ["step.started", "step.completed"]
    assert durable == [[*begun, *step * before, "step.started"] for before in range(3)]


@pytest.mark.parametrize("workflow", [CHAIN, workflow_of(("a", "x", ()))], ids=["read by a step", "the last"])
async def test_an_answer_that_is_lost_on_its_way_to_the_disk_reaches_nobody(workflow: Workflow) -> None:
    """The log answers late, and takes what comes after: the run is failed all the same."""
    sink = SlowLog()
    sink.error, sink.failing = StoreFull("the disk is full"), frozenset({"step.completed"})
    worker = ScriptedWorker("a")
    with pytest.raises(StoreFull):
        await run(worker, workflow=workflow, sink=sink)
    assert len(worker.calls) == 1
    assert "run.completed" not in sink.kinds()
    assert sink.kinds()[-1] == "run.failed"


async def test_a_log_that_takes_nothing_any_more_leaves_the_run_without_an_end() -> None:
    sink = MemorySink()

    def answer(_: object) -> Reply:
        sink.error = StoreError("the database is gone")
        return HANGING

    worker = ScriptedWorker("a", answer)
    with pytest.raises(StoreError, match="the database is gone"):
        await run(worker, workflow=CHAIN, sink=sink)
    assert worker.closed == 1
    assert not any(kind.startswith(("run.c", "run.f")) for kind in sink.kinds()[1:])


async def test_a_log_that_refuses_the_first_event_makes_no_run() -> None:
    sink = MemorySink()
    sink.error = StoreFull("full")
    worker = ScriptedWorker("a")
    with pytest.raises(StoreFull):
        await run(worker, workflow=CHAIN, sink=sink)
    assert (sink.events, worker.calls) == ([], [])


async def test_a_log_that_breaks_is_reported_as_such(caplog: pytest.LogCaptureFixture) -> None:
    sink = MemorySink()
    sink.error, sink.failing = RuntimeError("bug"), frozenset({"step.completed"})
    with pytest.raises(StoreError, match="the log broke: bug"):
        await run(ScriptedWorker("a"), workflow=CHAIN, sink=sink)
    assert "bug" in caplog.text


async def test_a_simulated_worker_makes_the_run_simulated() -> None:
    simulated, _ = await run(ScriptedWorker("a", provider="rehearsal", base_url=None), workflow=CHAIN)
    real, _ = await run(ScriptedWorker("a"), workflow=CHAIN)
    assert (simulated.simulated, simulated.steps[0].simulated) == (True, True)
    assert (real.simulated, real.steps[0].simulated) == (False, False)


async def test_an_error_of_the_engines_own_ends_the_run_under_its_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: RoundRunner) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(RoundRunner, "run", broken)
    trace, _ = await run(ScriptedWorker("a"), workflow=CHAIN)
    assert (trace.status, trace.error_code) == ("failed", "ZeroDivisionError")
    assert trace.error == "the engine broke unexpectedly, see the log: ZeroDivisionError: oops"
    assert caplog.records[-1].exc_info is not None

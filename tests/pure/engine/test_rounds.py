"""A workflow carried out: who starts when, what a failure takes with it, recursion."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.engine.prompts import digest_text
from conductor_core.errors import ConductorUnavailable, WorkerRefused
from conductor_core.run.events import (
    Event,
    RecursionEntered,
    RecursionLeft,
    RunCompleted,
    StepCompleted,
    StepReused,
    StepSkipped,
    StepStarted,
)
from conductor_core.run.values import Limits
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.fakes import (
    MemorySink,
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    quick_settings,
    run,
    workflow_of,
)

STOP = "model_id = []\nsubtasks = []\naccess_list = []"


def started(events: Iterable[Event]) -> list[tuple[int, ...]]:
    return [event.path for event in events if isinstance(event, StepStarted)]


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps = []
    for index in range(draw(st.integers(1, 6))):
        reads = st.lists(st.integers(0, index - 1), max_size=3, unique=True).map(tuple) if index else st.just(())
        access = draw(st.one_of(st.just("all"), reads))
        steps.append(Step(instruction=f"do {index}", agent=draw(st.sampled_from(["a", "b"])), access_list=access))
    return Workflow(steps=tuple(steps))


@settings(max_examples=60, deadline=None)
@given(workflows())
def test_order_of_events_and_of_calls(workflow: Workflow) -> None:
    sink = MemorySink()
    kept_at_call: list[int] = []

    def answer(messages: Any) -> str:
        # The call is made after its step.started is durable, and before anything else of that step.
        kept_at_call.append(sum(isinstance(event, StepStarted) for event in sink.events))
        return f"<<{messages[-1].content}>>"

    workers = (ScriptedWorker("a", answer), ScriptedWorker("b", answer))
    limits = Limits(max_steps=6)
    trace, _ = asyncio.run(run(*workers, workflow=workflow, sink=sink, limits=limits))
    assert trace.status == "completed"
    assert trace.answer == f"<<do {len(workflow.steps) - 1}>>"
    assert all(kept > calls for calls, kept in enumerate(kept_at_call))
    done: set[int] = set()
    begun: set[int] = set()
    for event in sink.events:
        if isinstance(event, StepStarted):
            assert set(workflow.reads(event.path[0])) <= done
            begun.add(event.path[0])
        elif isinstance(event, StepCompleted):
            assert event.path[0] in begun
            done.add(event.path[0])
    assert sink.kinds()[0] == "run.created"
    assert sink.kinds()[-1] == "run.completed"
    stamps = [event.at_ms for event in sink.events]
    assert stamps == sorted(stamps)


async def test_a_step_starts_the_moment_its_reads_are_there() -> None:
    # Step 2 reads only step 0; step 1 does not answer before step 2 has been asked.
    asked = asyncio.Event()

    class Slow(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            await asyncio.wait_for(asked.wait(), 5)
            async for chunk in super().answer(messages):
                yield chunk

    def answer(messages: Any) -> str:
        if messages[-1].content == "z":
            asked.set()
        return "done"

    quick = ScriptedWorker("quick", answer)
    workflow = workflow_of(("quick", "x", ()), ("slow", "y", ()), ("quick", "z", (0,)), ("quick", "w", (1, 2)))
    trace, _ = await run(Slow("slow"), quick, workflow=workflow)
    assert trace.status == "completed"


async def test_independent_steps_run_at_once() -> None:
    gate = asyncio.Barrier(3)

    class Meeting(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            # Passes only when three calls are on at the same time.
            await asyncio.wait_for(gate.wait(), 5)
            async for chunk in super().answer(messages):
                yield chunk

    workflow = workflow_of(("a", "x", ()), ("a", "y", ()), ("a", "z", ()))
    trace, _ = await run(Meeting("a"), workflow=workflow)
    assert trace.status == "completed"


async def test_a_failed_step_takes_only_its_descendants_with_it() -> None:
    bad = ScriptedWorker("bad", lambda _: WorkerRefused("401: no key"))
    workflow = workflow_of(
        ("a", "x", ()), ("bad", "y", (0,)), ("a", "z", (1,)), ("a", "w", (2,)), ("a", "v", (0,)), ("a", "u", (3, 4))
    )
    trace, sink = await run(ScriptedWorker("a"), bad, workflow=workflow, limits=Limits(max_steps=6))
    statuses = [step.status for step in trace.steps]
    assert statuses == ["completed", "failed", "skipped", "skipped", "completed", "skipped"]
    skipped = [event for event in sink.events if isinstance(event, StepSkipped)]
    assert [(event.path, event.because) for event in skipped] == [((2,), ((1,),)), ((3,), ((1,),)), ((5,), ((1,),))]
    assert (trace.status, trace.error_code, trace.answer) == ("failed", "WorkerRefused", None)
    assert trace.error == "step 1 (bad) failed: 401: no key"


async def test_a_step_below_two_that_fail_at_once_is_skipped_once_for_the_first_of_them() -> None:
    both = asyncio.Barrier(2)

    class Bad(ScriptedWorker):
        async def answer(self, messages: Any, terms: Any = None) -> Any:
            await asyncio.wait_for(both.wait(), 5)
            async for chunk in super().answer(messages):
                yield chunk

    bad = Bad("bad", lambda _: WorkerRefused("401"))
    workflow = workflow_of(("bad", "x", ()), ("bad", "y", ()), ("a", "own", (1,)), ("a", "shared", (0, 1, 2)))
    trace, sink = await run(bad, ScriptedWorker("a"), workflow=workflow)
    assert [step.status for step in trace.steps] == ["failed", "failed", "skipped", "skipped"]
    skipped = [event for event in sink.events if isinstance(event, StepSkipped)]
    assert [(event.path, event.because) for event in skipped] == [((3,), ((0,),)), ((2,), ((1,),))]
    assert trace.error == "step 0 (bad) failed: 401"


async def test_a_run_whose_last_step_answered_is_completed_though_a_side_step_failed() -> None:
    bad = ScriptedWorker("bad", lambda _: WorkerRefused("401"))
    trace, _ = await run(ScriptedWorker("a"), bad, workflow=workflow_of(("bad", "x", ()), ("a", "y", ())))
    assert (trace.status, trace.steps[0].status, trace.steps[1].status) == ("completed", "failed", "completed")


async def test_the_partial_text_of_a_failed_step_reaches_no_one() -> None:
    bad = ScriptedWorker("bad", lambda _: Reply(text="half-said", error=WorkerRefused("cut")))
    reader = ScriptedWorker("a")
    trace, _ = await run(bad, reader, workflow=workflow_of(("bad", "x", ()), ("a", "y", (0,)), ("a", "z", ())))
    assert trace.steps[0].output == "half-said"
    assert "half-said" not in str(reader.calls)


def recursive(*access: int) -> Workflow:
    return workflow_of(
        ("a", "solve {question}", ()), ("b", "secret side step", ()), (CONDUCTOR_AGENT, "improve it", access)
    )


async def test_a_recursion_runs_an_inner_round() -> None:
    inner = workflow_of(("b", "look again", ()), ("a", "conclude", (0,)))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    a, b = ScriptedWorker("a"), ScriptedWorker("b")
    trace, sink = await run(a, b, workflow=recursive(0), conductor=conductor)
    step = trace.steps[2]
    assert step.round is not None
    assert [inner_step.path for inner_step in step.round.steps] == [(2, 0), (2, 1)]
    assert (step.status, step.output, trace.answer) == ("completed", step.round.steps[1].output, step.output)
    # The inner plan and its steps count themselves.
    assert step.usage.total_tokens == 0
    assert trace.usage.total_tokens == 4 * 15 + step.round.usage.total_tokens
    (request,) = conductor.requests
    assert request.parent is not None
    assert request.parent.last_response == trace.steps[0].output
    assert "improve it" in request.parent.plan
    assert (request.task, request.allow_recursion) == ("the task", False)
    # Only the last response is granted, and the side step's output is in no inner message.
    assert [shared.path for shared in step.granted] == [(0,)]
    assert [shared.path for shared in step.withheld] == [(1,)]
    assert trace.steps[1].output not in str(a.calls + b.calls) + request.parent.plan
    kinds = [event.kind for event in sink.events if getattr(event, "path", None) == (2,)]
    assert kinds == ["step.started", "recursion.entered", "recursion.left", "step.completed"]


async def test_inner_steps_see_inner_outputs_alone() -> None:
    inner = workflow_of(("b", "look again", ()), ("a", "conclude", "all"))
    a = ScriptedWorker("a")
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    trace, _ = await run(a, ScriptedWorker("b"), workflow=recursive(0), conductor=conductor)
    assert trace.steps[2].round is not None
    look = trace.steps[2].round.steps[0]
    assert [message.content for message in a.calls[-1]] == ["look again", look.output, "conclude"]


async def test_what_is_withheld_inside_a_recursion_is_named_by_its_own_path() -> None:
    inner = workflow_of(("b", "look again", ()), ("a", "alone", ()), ("b", "conclude", (1,)))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    trace, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), workflow=recursive(0), conductor=conductor)
    look, alone, conclude = trace.round_at((2,)).steps
    # Of the first round nothing is listed: its outputs are out of reach for every inner step.
    assert (look.granted, look.withheld) == ((), ())
    assert [(shared.path, shared.agent) for shared in alone.withheld] == [((2, 0), "b")]
    assert [shared.path for shared in conclude.granted] == [(2, 1)]
    assert [(shared.path, shared.sha256) for shared in conclude.withheld] == [((2, 0), look.output_sha256)]


async def test_the_answer_of_a_recursion_keeps_its_digest_and_that_it_is_incomplete() -> None:
    inner = workflow_of(("b", "look again", ()))
    workflow = workflow_of(("a", "x", ()), (CONDUCTOR_AGENT, "improve it", (0,)), ("a", "use it", (1,)))
    b = ScriptedWorker("b").then(Reply(text="cut by its limit", finish_reason="length"))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    trace, _ = await run(ScriptedWorker("a"), b, workflow=workflow, conductor=conductor)
    outer = trace.steps[1]
    assert (outer.output, outer.output_sha256) == ("cut by its limit", digest_text("cut by its limit"))
    assert (outer.incomplete, outer.finish_reason) == (True, "length")
    (shared,) = trace.steps[2].granted
    assert (shared.path, shared.sha256, shared.characters) == ((1,), outer.output_sha256, 16)


async def test_a_recursion_that_returns_the_last_response_returns_it_as_it_is() -> None:
    b = ScriptedWorker("b").then(Reply(text="cut by its limit", finish_reason="length"))
    trace, _ = await run(ScriptedWorker("a"), b, workflow=recursive(1), conductor=ScriptedConductor(STOP))
    outer, returned = trace.steps[2], trace.steps[1]
    assert (outer.output, outer.output_sha256) == (returned.output, returned.output_sha256)
    assert (outer.incomplete, outer.finish_reason) == (True, "length")


async def test_three_empty_lists_return_the_last_response() -> None:
    trace, sink = await run(
        ScriptedWorker("a"), ScriptedWorker("b"), workflow=recursive(1, 0), conductor=ScriptedConductor(STOP)
    )
    # The last of the steps it reads, whatever their order in the list.
    assert trace.answer == trace.steps[1].output
    assert trace.steps[2].round is not None
    assert trace.steps[2].round.status == "stopped"
    assert [event.how for event in sink.events if isinstance(event, RecursionLeft)] == ["stopped"]


async def test_a_stop_with_nothing_to_return_fails_its_step() -> None:
    trace, _ = await run(
        ScriptedWorker("a"), ScriptedWorker("b"), workflow=recursive(), conductor=ScriptedConductor(STOP)
    )
    assert (trace.status, trace.error_code) == ("failed", "NothingToReturn")
    assert "give it an access list" in (trace.error or "")


async def test_recursions_nest_to_the_depth_limit_and_no_deeper() -> None:
    again = workflow_of(("a", "once more", ()), (CONDUCTOR_AGENT, "deeper", (0,)))
    last = workflow_of(("a", "enough", ()))
    conductor = ScriptedConductor(*[lists_of(again, ("a",))] * 2, lists_of(last, ("a",)))
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor, limits=Limits(max_depth=2))
    assert trace.status == "completed"
    entered = [(event.path, event.depth) for event in sink.events if isinstance(event, RecursionEntered)]
    times = {event.path: event.at_ms for event in sink.events if isinstance(event, StepStarted)}
    assert all(event.at_ms == times[event.path] for event in sink.events if isinstance(event, RecursionEntered))
    assert entered == [((1,), 1), ((1, 1), 2)]
    assert [request.allow_recursion for request in conductor.requests] == [True, True, False]
    assert [step.path for step in trace.walk()] == [(0,), (1,), (1, 0), (1, 1), (1, 1, 0)]


async def test_at_the_depth_limit_a_plan_that_recurses_is_rejected() -> None:
    again = workflow_of(("a", "once more", ()), (CONDUCTOR_AGENT, "deeper", (0,)))
    trace, _ = await run(
        ScriptedWorker("a"), conductor=ScriptedConductor(lists_of(again, ("a",))), limits=Limits(max_depth=1)
    )
    assert (trace.status, trace.error_code) == ("failed", "PlanRejected")
    assert trace.steps[1].round is not None
    assert [fault.code for fault in trace.steps[1].round.rejected[0].faults] == ["unknown_agent"]


async def test_a_failed_inner_step_fails_the_recursion_and_is_named() -> None:
    inner = workflow_of(("bad", "try", ()))
    bad = ScriptedWorker("bad", lambda _: WorkerRefused("401"))
    workflow = workflow_of(("a", "x", ()), (CONDUCTOR_AGENT, "again", (0,)), ("a", "z", (1,)))
    conductor = ScriptedConductor(lists_of(inner, ("a", "bad")))
    trace, sink = await run(ScriptedWorker("a"), bad, workflow=workflow, conductor=conductor)
    assert [step.status for step in trace.walk()] == ["completed", "failed", "failed", "skipped"]
    assert trace.error == "step 1 (conductor) failed: step 1.0 (bad) failed: 401"
    assert [event.how for event in sink.events if isinstance(event, RecursionLeft)] == ["failed"]


async def test_a_conductor_that_cannot_be_reached_fails_the_recursion_only() -> None:
    workflow = workflow_of((CONDUCTOR_AGENT, "again", ()), ("a", "z", ()))
    conductor = ScriptedConductor(ConductorUnavailable("not there"))
    trace, _ = await run(ScriptedWorker("a"), workflow=workflow, conductor=conductor)
    assert [(step.status, step.error) for step in trace.steps] == [("failed", "not there"), ("completed", None)]
    assert trace.status == "completed"


async def test_an_unchanged_recursion_is_reused_whole() -> None:
    inner = workflow_of(("b", "look again", ()))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    a, b = ScriptedWorker("a"), ScriptedWorker("b")
    first, _ = await run(a, b, workflow=recursive(0), conductor=conductor)
    second, sink = await run(a, b, workflow=recursive(0), conductor=conductor, reuse_from=first)
    assert (len(conductor.requests), len(a.calls), len(b.calls)) == (1, 1, 2)
    assert second.answer == first.answer
    assert [event.source_path for event in sink.events if isinstance(event, StepReused)] == [(0,), (1,), (2,)]


@pytest.mark.parametrize(("cost_usd", "estimated"), [(None, True), (0.25, False)])
async def test_a_reused_step_says_as_its_source_did_whether_its_cost_is_an_estimate(
    cost_usd: float | None, estimated: bool
) -> None:
    one = workflow_of(("a", "x", ()))
    first, _ = await run(ScriptedWorker("a").then(Reply(text="x", cost_usd=cost_usd)), workflow=one)
    assert first.steps[0].at_list_price is estimated
    second, _ = await run(ScriptedWorker("a"), workflow=one, reuse_from=first)
    reused, source = second.steps[0], first.steps[0]
    assert (reused.status, reused.at_list_price, reused.cost_usd) == ("reused", estimated, source.cost_usd)
    assert (reused.model, reused.usage, reused.duration_ms) == (source.model, source.usage, source.duration_ms)


async def test_an_edit_anywhere_in_the_plan_runs_the_recursion_again_because_the_conductor_sees_the_plan() -> None:
    inner = workflow_of(("b", "look again", ()))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    a, b = ScriptedWorker("a"), ScriptedWorker("b")
    first, _ = await run(a, b, workflow=recursive(0), conductor=conductor)
    edited = Workflow(steps=(first.root.workflow.steps[0], Step(instruction="other", agent="b"), recursive(0).steps[2]))  # type: ignore[union-attr]
    second, _ = await run(a, b, workflow=edited, conductor=conductor, reuse_from=first)
    assert len(conductor.requests) == 2
    assert [step.status for step in second.walk()] == ["reused", "completed", "completed", "reused"]


async def test_a_recursion_cut_short_is_taken_up_without_asking_the_conductor_again() -> None:
    inner = workflow_of(("b", "look again", ()), ("a", "conclude", (0,)))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    a, b = ScriptedWorker("a"), ScriptedWorker("b")
    a.then("first answer", WorkerRefused("401"))
    first, _ = await run(a, b, workflow=recursive(0), conductor=conductor)
    assert first.status == "failed"
    second, _ = await run(a, b, workflow=recursive(0), conductor=conductor, reuse_from=first, resumed=True)
    assert second.status == "completed"
    assert len(conductor.requests) == 1
    assert [step.status for step in second.walk()] == ["reused", "reused", "completed", "reused", "completed"]


@pytest.mark.parametrize("copies", [1, 20])
async def test_runs_at_once_do_not_disturb_each_other(copies: int) -> None:
    workflow = workflow_of(("a", "{question}", ()), ("b", "y", (0,)), ("a", "z", (0,)), ("b", "w", (1, 2)))
    sink = MemorySink(delay_s=0.001)
    a, b = ScriptedWorker("a", max_concurrency=100), ScriptedWorker("b", max_concurrency=100)
    results = await asyncio.gather(
        *(run(a, b, workflow=workflow, sink=sink, task=f"task {number}") for number in range(copies))
    )
    assert len({trace.answer for trace, _ in results}) == copies
    assert sum(isinstance(event, RunCompleted) for event in sink.events) == copies


async def test_settings_of_coalescing_do_not_change_what_is_recorded() -> None:
    for interval_ms in (0, 1000):
        trace, _ = await run(
            ScriptedWorker("a", lambda _: "abcdef"),
            workflow=workflow_of(("a", "x", ())),
            settings=quick_settings(delta_interval_ms=interval_ms),
        )
        assert trace.answer == "abcdef"

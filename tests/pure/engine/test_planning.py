"""How a round gets its plan: asked of the Conductor, with its attempts on the record, or given."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

from conductor_core.chat.messages import PlanFinished, PlanRequest, Price, TextDelta, TokenChoice, Usage
from conductor_core.engine import planner
from conductor_core.errors import BadInput, ConductorRateLimited, ConductorUnavailable
from conductor_core.run.events import (
    PlanCompleted,
    PlanDelta,
    PlanEdited,
    PlanRejected,
    PlanRetried,
    PlanStarted,
    RunCreated,
)
from conductor_core.run.trace import fold
from conductor_core.run.values import Limits
from conductor_core.workflow.model import CONDUCTOR_AGENT
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.validation import WorkflowInvalid
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
from tests.support.run_events import PAGE

PLAN = workflow_of(("a", "plan {question}", ()), ("a", "solve", (0,)))
LISTS = lists_of(PLAN, ("a",))


async def test_the_conductor_writes_the_plan_and_every_part_is_recorded() -> None:
    conductor = ScriptedConductor(LISTS)
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor, seed=3)
    (request,) = conductor.requests
    assert (request.task, request.max_steps, request.seed, request.allow_recursion) == ("the task", 5, 3, True)
    assert [spec.name for spec in request.agents] == ["a"]
    started = next(event for event in sink.events if isinstance(event, PlanStarted))
    assert started.messages == conductor.messages(request)
    assert "".join(event.text for event in sink.events if isinstance(event, PlanDelta)) == LISTS
    completed = next(event for event in sink.events if isinstance(event, PlanCompleted))
    assert (completed.source, completed.raw, completed.workflow, completed.topology) == (
        "conductor",
        LISTS,
        PLAN,
        "chain",
    )
    assert completed.usage.output_tokens == len(LISTS) // 4
    assert completed.first_token_ms is not None
    assert 0 <= completed.first_token_ms <= completed.duration_ms
    assert 0 < started.at_ms <= completed.at_ms
    assert trace.status == "completed"


async def test_half_a_character_of_a_conductor_is_replaced_so_that_it_can_be_kept() -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor("\ud800" + LISTS))
    assert (trace.status, trace.root.raw) == ("completed", "\ufffd" + LISTS)


async def test_repairs_and_warnings_are_on_the_record() -> None:
    sloppy = "model_id = [0, 0,]\nsubtasks = ['x', 'y',]\naccess_list = [None, None]"
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(sloppy))
    assert trace.status == "completed"
    assert trace.root.repairs
    assert "unread_output" in [fault.code for fault in trace.root.warnings]


async def test_a_rejected_plan_is_kept_and_the_next_attempt_is_told_why() -> None:
    conductor = ScriptedConductor('model_id = [7]\nsubtasks = ["x"]\naccess_list = [[]]', LISTS)
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor)
    (rejected,) = (event for event in sink.events if isinstance(event, PlanRejected))
    assert rejected.will_retry
    assert [fault.code for fault in rejected.faults] == ["unknown_agent"]
    assert conductor.requests[1].rejected == tuple(fault.message for fault in rejected.faults)
    assert trace.status == "completed"
    assert trace.root.rejected[0].raw == rejected.raw


async def test_a_conductor_that_is_asked_once_is_said_to_be_asked_once() -> None:
    once = quick_settings(plan_attempts=1)
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor("no lists here"), settings=once)
    assert (trace.error or "").startswith("Conductor scripted was asked once and wrote no usable workflow: ")


async def test_after_all_attempts_the_run_fails_and_nothing_is_lost() -> None:
    worker = ScriptedWorker("a")
    trace, sink = await run(
        worker, conductor=ScriptedConductor("no lists here"), settings=quick_settings(plan_attempts=3)
    )
    assert [event.will_retry for event in sink.events if isinstance(event, PlanRejected)] == [True, True, False]
    assert (trace.status, trace.error_code, worker.calls) == ("failed", "PlanRejected", [])
    assert trace.error is not None
    why = trace.root.rejected[-1].faults[0].message
    assert trace.error == f"Conductor scripted was asked 3 times and wrote no usable workflow: {why}"
    assert trace.usage.total_tokens == 3 * (20 + len("no lists here") // 4)
    assert len(trace.root.rejected) == 3


@pytest.mark.parametrize("raw", ["model_id = []\nsubtasks = []\naccess_list = []"])
async def test_the_first_round_cannot_be_stopped(raw: str) -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(raw))
    assert (trace.status, trace.error_code) == ("failed", "PlanRejected")
    assert [fault.code for fault in trace.root.rejected[0].faults] == ["empty_workflow"]


async def test_an_unavailable_conductor_fails_the_run_with_its_own_words() -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(ConductorUnavailable("no such folder")))
    assert (trace.status, trace.error_code, trace.error) == ("failed", "ConductorUnavailable", "no such folder")
    assert (trace.usage.total_tokens, trace.cost_usd) == (0, 0.0), "nobody was asked"


async def test_a_conductor_that_breaks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(ZeroDivisionError("oops")))
    assert trace.error == "conductor scripted broke unexpectedly, see the log: ZeroDivisionError: oops"
    assert caplog.records[0].exc_info is not None


async def test_plan_only_ends_after_the_plan() -> None:
    worker = ScriptedWorker("a")
    trace, sink = await run(worker, conductor=ScriptedConductor(LISTS), plan_only=True)
    assert (trace.status, trace.answer, worker.calls) == ("planned", None, [])
    assert sink.kinds()[-1] == "run.completed"
    assert [step.status for step in trace.steps] == ["waiting", "waiting"]


async def test_a_given_workflow_is_carried_out_as_given() -> None:
    trace, sink = await run(ScriptedWorker("a"), workflow=PLAN)
    (completed,) = (event for event in sink.events if isinstance(event, PlanCompleted))
    assert (completed.source, completed.raw, completed.workflow) == ("file", "", PLAN)
    assert completed.at_ms > 0
    assert trace.status == "completed"


async def test_an_edited_workflow_says_what_it_was() -> None:
    first, _ = await run(ScriptedWorker("a"), workflow=PLAN)
    edited = workflow_of(("a", "plan {question}", ()), ("a", "solve differently", ()))
    trace, sink = await run(ScriptedWorker("a"), workflow=edited, reuse_from=first, door="page")
    (event,) = (event for event in sink.events if isinstance(event, PlanEdited))
    assert (event.door, event.before, event.after, event.topology) == ("page", PLAN, edited, "mixed")
    assert (trace.root.edited_by, trace.root.before_edit, trace.root.workflow) == (PAGE, PLAN, edited)
    assert trace.root.topology == "mixed"
    assert [fault.code for fault in trace.root.warnings] == ["unread_output", "answer_reads_nothing", "task_untold"]


async def test_an_edit_keeps_which_step_is_which() -> None:
    first, _ = await run(ScriptedWorker("a"), workflow=PLAN)
    edited = workflow_of(("a", "new words", ()), ("a", "others", ()))
    trace, _ = await run(ScriptedWorker("a"), workflow=edited, reuse_from=first, origins=(1, None))
    assert trace.root.edits == (
        "step 0: instruction edited, no longer reads the removed step 0",
        "step 1 (a) added",
        "step 0 (a) removed",
    )
    with pytest.raises(BadInput, match="do not fit"):
        await run(ScriptedWorker("a"), workflow=edited, reuse_from=first, origins=(0, 2))


async def test_an_unchanged_workflow_is_not_called_edited() -> None:
    first, _ = await run(ScriptedWorker("a"), workflow=PLAN)
    _, sink = await run(ScriptedWorker("a"), workflow=PLAN, reuse_from=first)
    assert "plan.edited" not in sink.kinds()


async def test_a_rerun_is_an_edit_of_its_parents_plan() -> None:
    first, _ = await run(ScriptedWorker("a"), workflow=PLAN)
    edited = workflow_of(("a", "other", ()))
    second, sink = await run(ScriptedWorker("a"), workflow=edited, reuse_from=first)
    assert second.root.source == "parent"
    assert second.root.before_edit == PLAN
    created = sink.events[0]
    assert isinstance(created, RunCreated)
    assert created.request.parent_run_id == first.run_id


@pytest.mark.parametrize(
    ("workflow", "limits", "code"),
    [
        (workflow_of(("nobody", "x", ())), Limits(), "unknown_agent"),
        (workflow_of(("a", "x", (0,))), Limits(), "self_reference"),
        (workflow_of(("a", "x", ()), ("a", "y", ())), Limits(max_steps=1), "too_many_steps"),
        (workflow_of(), Limits(), "empty_workflow"),
        (workflow_of((CONDUCTOR_AGENT, "x", ())), Limits(max_depth=0), "unknown_agent"),
    ],
)
async def test_a_given_workflow_with_faults_makes_no_run(workflow: object, limits: Limits, code: str) -> None:
    sink = MemorySink()
    with pytest.raises(WorkflowInvalid) as caught:
        await run(ScriptedWorker("a"), workflow=workflow, limits=limits, sink=sink, conductor=ScriptedConductor(LISTS))  # type: ignore[arg-type]
    assert [fault.code for fault in caught.value.faults] == [code]
    assert str(caught.value).startswith("the workflow cannot be run: ")
    assert sink.events == []


async def test_recursion_without_a_conductor_is_a_fault_that_says_so() -> None:
    with pytest.raises(WorkflowInvalid, match="recursion is off"):
        await run(ScriptedWorker("a"), workflow=workflow_of((CONDUCTOR_AGENT, "x", ())))


async def test_neither_workflow_nor_conductor_is_bad_input() -> None:
    with pytest.raises(BadInput, match="a run needs a workflow, or a Conductor"):
        await run(ScriptedWorker("a"))


async def test_an_empty_task_is_bad_input() -> None:
    with pytest.raises(BadInput, match="the task is empty"):
        await run(ScriptedWorker("a"), task="  \n", conductor=ScriptedConductor(LISTS))


async def test_a_task_that_is_no_text_is_bad_input() -> None:
    with pytest.raises(BadInput, match="unpaired surrogate"):
        await run(ScriptedWorker("a"), task="\ud800", workflow=PLAN)
    with pytest.raises(BadInput, match="unpaired surrogate"):
        await run(ScriptedWorker("a"), workflow=workflow_of(("a", "x\udfff", ())))


async def test_excluded_workers_are_offered_to_no_one() -> None:
    conductor = ScriptedConductor(lists_of(workflow_of(("b", "x", ())), ("b",)))
    trace, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), conductor=conductor, excluded=("a",))
    assert [spec.name for spec in conductor.requests[0].agents] == ["b"]
    assert [spec.name for spec in trace.pool.workers] == ["b"]
    assert trace.steps[0].agent == "b"


async def test_a_plan_may_be_as_long_as_the_setting_and_no_longer() -> None:
    prose = "é" * ((2048 - len(LISTS.encode())) // 2)
    fits = prose + " " * (2048 - len((prose + LISTS).encode())) + LISTS
    assert len(fits.encode()) == 2048
    settings = quick_settings(plan_max_bytes=2048)
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(fits), settings=settings)
    assert (trace.status, trace.root.raw) == ("completed", fits)

    conductor = ScriptedConductor("é" + fits, LISTS)
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor, settings=settings)
    assert trace.status == "completed"
    assert conductor.closed == 1
    (rejected,) = trace.root.rejected
    assert rejected.raw == ("é" + fits).encode()[:2048].decode()
    assert [(fault.code, fault.line) for fault in rejected.faults] == [("too_large", rejected.raw.count("\n") + 1)]
    assert conductor.requests[1].rejected == (rejected.faults[0].message,)
    assert "longer than 2,048 bytes" in rejected.faults[0].message
    (event,) = (event for event in sink.events if isinstance(event, PlanRejected))
    assert (event.usage.estimated, event.usage.output_tokens) == (True, -(-len(rejected.raw) // 4))
    deltas = [event.text for event in sink.events if isinstance(event, PlanDelta)]
    assert "".join(deltas) == rejected.raw + LISTS


async def test_a_conductor_is_told_the_first_faults_and_how_many_more() -> None:
    bad = "model_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]".format(
        *(", ".join([x] * 30) for x in ("9", "''", "[]"))
    )
    conductor = ScriptedConductor(bad, LISTS)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor)
    told = conductor.requests[1].rejected
    assert len(told) == 11
    assert told[-1] == "And 51 more."
    assert len(trace.root.rejected[0].faults) == 61


async def test_one_fault_more_than_a_conductor_is_told_is_told_as_such() -> None:
    bad = "model_id = [9, 9, 9, 9, 9]\nsubtasks = ['', '', '', '', '']\naccess_list = [[7], [], [], [], []]"
    conductor = ScriptedConductor(bad, LISTS)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor)
    assert len(trace.root.rejected[0].faults) == 11
    assert (len(conductor.requests[1].rejected), conductor.requests[1].rejected[-1]) == (11, "And 1 more.")


async def test_a_plan_that_ends_in_the_middle_of_a_character_is_cut_before_it() -> None:
    conductor = ScriptedConductor("x" + "é" * 2048, LISTS)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor, settings=quick_settings(plan_max_bytes=2048))
    assert (trace.status, trace.root.rejected[0].raw) == ("completed", "x" + "é" * 1023)


class Breaking(ScriptedConductor):
    """A Conductor whose first call breaks off after ``part``, at a server that then asks for a wait of 50 ms."""

    def __init__(self, part: str, **fields: Any) -> None:
        super().__init__(LISTS, **fields)
        self._part = part

    async def write(self, request: PlanRequest) -> AsyncGenerator[TextDelta | PlanFinished]:
        if self.requests:
            async for item in super().write(request):
                yield item
            return
        self.requests.append(request)
        for piece in (self._part[:3], self._part[3:]):
            yield TextDelta(text=piece)
        raise ConductorRateLimited("429 slow down", retry_after_s=0.05)


async def test_a_plans_call_that_broke_off_is_on_the_record_with_what_was_written_and_the_wait() -> None:
    trace, sink = await run(ScriptedWorker("a"), conductor=Breaking("model_id"))
    assert trace.status == "completed"
    (retried,) = (event for event in sink.events if isinstance(event, PlanRetried))
    started, again = (event for event in sink.events if isinstance(event, PlanStarted))
    assert (retried.error_code, retried.error, retried.partial) == ("ConductorRateLimited", "429 slow down", "model_id")
    assert (retried.wait_ms, retried.duration_ms) == (50.0, retried.at_ms - started.at_ms)
    assert again.at_ms >= retried.at_ms + retried.wait_ms


async def test_a_plans_call_that_broke_off_counts_against_the_limit_of_the_run() -> None:
    one_usd_a_token = Price(input=0, output=1e6)
    limits = Limits(max_usd=1.5 * len(LISTS) / 4)
    trace, _ = await run(ScriptedWorker("a"), conductor=Breaking(LISTS, usd_per_mtok=one_usd_a_token), limits=limits)
    assert (trace.status, trace.error_code) == ("failed", "LimitReached")
    assert "the cost limit of this run is reached" in (trace.error or "")
    assert trace.known_usd >= limits.max_usd  # type: ignore[operator]  # it has one


async def test_a_plans_first_token_is_the_first_and_not_the_last() -> None:
    pieces, pause_s = -(-len(LISTS) // 16), 0.01
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(LISTS, pause_s=pause_s))
    assert trace.root.first_token_ms is not None
    assert trace.root.duration_ms is not None
    assert trace.root.duration_ms - trace.root.first_token_ms > (pieces - 2) * pause_s * 1000


async def test_what_else_a_conductor_considered_is_recorded_with_its_plan() -> None:
    agent = TokenChoice(at=LISTS.index("model_id = [") + 12, picked="0", options=(("0", 0.75), ("1", 0.25)))

    class Telling(ScriptedConductor):
        async def write(self, request: PlanRequest) -> AsyncGenerator[TextDelta | PlanFinished]:
            yield TextDelta(text=LISTS)
            usage = Usage(input_tokens=1, output_tokens=1)
            yield PlanFinished(finish_reason="stop", usage=usage, choices=(agent,))

    trace, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), conductor=Telling(LISTS))
    (told,) = trace.root.considered
    assert (told.step, told.field) == (0, "agent")
    assert [(option.value, option.probability) for option in told.options] == [("a", 0.75), ("b", 0.25)]


@pytest.mark.parametrize("length", [100, 50_000])
async def test_a_run_cancelled_while_its_plan_is_read_keeps_what_was_written(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " " * length + LISTS
    reading = asyncio.Event()
    loop = asyncio.get_running_loop()
    let_go = threading.Event()

    def slow(raw: str) -> Parsed:
        loop.call_soon_threadsafe(reading.set)
        if threading.current_thread() is not threading.main_thread():
            let_go.wait(10)
        return parse_completion(raw)

    monkeypatch.setattr(planner, "parse_completion", slow)
    sink = MemorySink()
    going = asyncio.create_task(
        run(
            ScriptedWorker("a").then(Reply(hang=True)),
            conductor=ScriptedConductor(text),
            sink=sink,
            settings=quick_settings(plan_max_tokens=100_000),
        )
    )
    await reading.wait()
    going.cancel("page")
    with suppress(asyncio.CancelledError):
        await going
    let_go.set()
    trace = fold(sink.events)
    assert trace.status == "cancelled"
    assert "".join(event.text for event in sink.events if isinstance(event, PlanDelta)) == text
    assert trace.usage.output_tokens >= len(text) // 4

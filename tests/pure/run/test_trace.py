"""The fold of a run's events, event by event."""

import pytest

from conductor_core.chat.messages import ConductorInfo, Message, Usage
from conductor_core.chat.progress import Progress
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.trace import RunTrace, apply, begin, fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Fault, Step, Workflow
from tests.support.run_events import (
    PAGE,
    TWO_STEPS,
    answered,
    created,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)

RECURSIVE = Workflow(
    steps=(Step(instruction="Begin.", agent="solver"), Step(instruction="Go on.", agent=CONDUCTOR_AGENT))
)


def running(*events: Event) -> RunTrace:
    """A run with its plan of two steps, after ``events``."""
    return fold([created("r"), *planned("r"), *events])


def test_a_trace_begins_with_the_request() -> None:
    event = created("r", "Why?", seed=7, parent_run_id="q", resumed=True, plan_only=True)
    trace = begin(event)
    assert (trace.run_id, trace.task, trace.seed, trace.parent_run_id) == ("r", "Why?", 7, "q")
    assert (trace.resumed, trace.plan_only, trace.simulated, trace.status) == (True, True, True, "running")
    assert (trace.created_at_utc, trace.pool, trace.limits) == (event.at_utc, event.pool, event.request.limits)


def test_what_does_not_begin_with_the_request_is_no_trace() -> None:
    with pytest.raises(ValueError, match="begins with"):
        fold([])
    with pytest.raises(ValueError, match=r"not run\.interrupted"):
        begin(ev.RunInterrupted(run_id="r"))
    with pytest.raises(ValueError, match="only valid at the beginning"):
        fold([created("r"), created("r")])


def test_the_plan_appears_as_it_is_written() -> None:
    started, first, second, completed = planned("r")
    trace = fold([created("r"), started, first])
    assert (trace.root.status, trace.root.raw, trace.root.first_token_ms) == ("planning", "model_id = ", 5)
    apply(trace, second)
    assert (trace.root.raw, trace.steps) == ("model_id = [0, 1]", [])
    apply(trace, completed)
    assert (trace.root.status, trace.root.topology, trace.root.source) == ("planned", "chain", "conductor")
    assert [(step.agent, step.reads, step.status) for step in trace.steps] == [
        ("solver", (), "waiting"),
        ("checker", (0,), "waiting"),
    ]
    assert all(step.simulated for step in trace.steps)
    assert (trace.usage, trace.root.duration_ms) == (Usage(input_tokens=10, output_tokens=5), 15)


def test_a_rejected_plan_is_kept_and_the_next_begins_anew() -> None:
    fault = Fault(code="x", message="wrong")
    rejected = ev.PlanRejected(
        run_id="r", raw="nonsense", faults=(fault,), usage=Usage(output_tokens=4), duration_ms=8, will_retry=True
    )
    first = [created("r"), *planned("r")[:2], rejected]
    trace = fold(first)
    assert (trace.root.status, trace.root.rejected[0].raw, trace.root.rejected[0].faults) == (
        "rejected",
        "nonsense",
        (fault,),
    )
    trace = fold([*first, *planned("r")])
    assert (trace.root.status, trace.root.raw) == ("planned", "model_id = [0, 1]")
    assert (trace.usage.output_tokens, trace.root.duration_ms) == (9, 23)


def test_an_edit_replaces_the_steps() -> None:
    after = Workflow(steps=(Step(instruction="Only this.", agent="checker"),))
    trace = running(ev.PlanEdited(run_id="r", **dict(PAGE), before=TWO_STEPS, after=after, topology="one shot"))
    assert (trace.root.edited_by, trace.root.before_edit, trace.root.workflow) == (PAGE, TWO_STEPS, after)
    assert (trace.root.topology, [step.instruction for step in trace.steps]) == ("one shot", ["Only this."])


def test_three_empty_lists_stop() -> None:
    trace = fold([created("r"), *planned("r", Workflow(steps=()))])
    assert (trace.root.status, trace.steps) == ("stopped", [])


def test_a_step_streams_and_completes() -> None:
    started, delta, completed = answered("r", 0)
    trace = running(started)
    assert (trace.steps[0].status, trace.steps[0].messages[0].content) == ("running", "step 0")
    apply(trace, ev.StepDelta(run_id="r", at_ms=30.5, path=(0,), text="hm", reasoning=True))
    apply(trace, delta)
    step = trace.steps[0]
    assert (step.output, step.reasoning, step.first_token_ms) == ("42", "hm", 0.5)
    apply(trace, completed)
    assert (step.status, step.output, step.duration_ms, step.answered) == ("completed", "42", 10, True)
    assert (step.usage, trace.usage.input_tokens, trace.cost_usd) == (Usage(input_tokens=7, output_tokens=3), 17, 0.5)


def test_a_retry_keeps_the_partial_text_and_its_price() -> None:
    trace = running(
        step_started("r", 0, 30),
        ev.StepDelta(run_id="r", path=(0,), text="4"),
        ev.StepRetried(
            run_id="r",
            path=(0,),
            attempt=1,
            error_code="WorkerStreamCut",
            error="cut",
            wait_ms=9,
            partial="4",
            usage=Usage(output_tokens=1),
            cost_usd=0.25,
        ),
    )
    step = trace.steps[0]
    assert (step.output, step.attempts[0].partial, step.attempts[0].error_code) == ("", "4", "WorkerStreamCut")
    apply(trace, step_completed("r", 0, "42", 50))
    assert (step.usage.output_tokens, step.cost_usd, trace.cost_usd) == (4, 0.75, 0.75)
    assert step.at_list_price, "no provider tells what a broken call cost"


def test_a_failed_step_keeps_its_partial_text_and_those_below_are_skipped() -> None:
    trace = running(
        step_started("r", 0, 30),
        ev.StepFailed(run_id="r", path=(0,), error_code="WorkerRefused", error="401", partial="4", duration_ms=5),
        ev.StepSkipped(run_id="r", path=(1,), because=((0,),)),
        ev.RunFailed(run_id="r", at_ms=50, error_code="WorkerRefused", error="step 0: 401", duration_ms=50),
    )
    first, second = trace.steps
    assert (first.status, first.output, first.incomplete, first.error) == ("failed", "4", True, "401")
    assert (second.status, second.because) == ("skipped", ((0,),))
    assert (trace.status, trace.error, trace.ended) == ("failed", "step 0: 401", True)


def test_an_unknown_price_is_never_counted_as_nothing() -> None:
    trace = running(step_started("r", 0, 30), step_completed("r", 0, "42", 40, cost_usd=None), *answered("r", 1))
    assert (trace.steps[0].cost_usd, trace.cost_usd) == (None, None)


def test_a_reused_step_costs_nothing_here() -> None:
    reused = ev.StepReused(
        run_id="r",
        at_ms=30,
        path=(0,),
        agent="solver",
        identity="i",
        messages=(Message(role="user", content="step 0"),),
        source_run_id="q",
        source_path=(3,),
        source_imported=True,
        output="42",
        output_sha256="ab",
        finish_reason="stop",
        usage=Usage(input_tokens=70, output_tokens=30),
        cost_usd=5.0,
        cost_estimated=True,
        duration_ms=10,
    )
    trace = running(reused)
    step = trace.steps[0]
    assert (step.status, step.output, step.answered, step.cost_usd) == ("reused", "42", True, 5.0)
    assert step.at_list_price
    assert step.reused_from is not None
    assert (step.reused_from.run_id, step.reused_from.path, step.reused_from.imported) == ("q", (3,), True)
    assert (trace.cost_usd, trace.usage.total_tokens) == (0.0, 15)


def inner(path: tuple[int, ...]) -> list[Event]:
    """A round below the step at ``path`` with one step that answers."""
    return [
        ev.RecursionEntered(run_id="r", path=path, depth=len(path)),
        ev.PlanStarted(run_id="r", round=path, messages=()),
        ev.PlanDelta(run_id="r", round=path, text="inner"),
        ev.PlanCompleted(
            run_id="r",
            round=path,
            source="conductor",
            raw="inner",
            workflow=Workflow(steps=(Step(instruction="Deeper.", agent="checker"),)),
            topology="one shot",
        ),
        step_started("r", 0, 60).model_copy(update={"path": (*path, 0)}),
        step_completed("r", 0, "deep", 70).model_copy(update={"path": (*path, 0)}),
    ]


def test_an_inner_round_hangs_below_its_step() -> None:
    trace = fold([created("r"), *planned("r", RECURSIVE), *answered("r", 0), step_started("r", 1, 55), *inner((1,))])
    assert trace.steps[1].round is not None
    assert (trace.round_at((1,)).raw, trace.step_at((1, 0)).output) == ("inner", "deep")
    assert [step.path for step in trace.walk()] == [(0,), (1,), (1, 0)]
    assert trace.cost_usd == 1.0


@pytest.mark.parametrize(
    "event",
    [
        step_started("r", 2, 30),
        ev.StepDelta(run_id="r", path=(), text="x"),
        ev.StepDelta(run_id="r", path=(-1,), text="x"),
        ev.StepDelta(run_id="r", path=(0, 0), text="x"),
        ev.PlanDelta(run_id="r", round=(1,), text="x"),
        ev.PlanStarted(run_id="r", round=(5,), messages=()),
    ],
)
def test_an_event_of_a_step_or_round_that_is_not_there(event: Event) -> None:
    with pytest.raises(KeyError):
        running(event)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ev.RunCancelled(run_id="r", at_ms=50, door="page", duration_ms=50), "cancelled"),
        (ev.RunFailed(run_id="r", at_ms=50, error_code="LimitReached", error="time", duration_ms=50), "failed"),
        (ev.RunInterrupted(run_id="r", at_ms=50), "interrupted"),
    ],
)
def test_a_run_that_ends_early_leaves_no_step_open(end: Event, status: str) -> None:
    trace = running(step_started("r", 0, 30), ev.StepDelta(run_id="r", at_ms=40, path=(0,), text="4"), end)
    assert (trace.status, trace.duration_ms, trace.ended) == (status, 50, True)
    assert [(step.status, step.output, step.incomplete) for step in trace.steps] == [
        ("cancelled", "4", True),
        ("skipped", "", False),
    ]


def test_a_plan_alone_leaves_its_steps_waiting() -> None:
    trace = fold([created("r", plan_only=True), *planned("r"), run_completed("r", None)])
    assert (trace.status, trace.answer, [step.status for step in trace.steps]) == ("planned", None, ["waiting"] * 2)


@pytest.mark.parametrize("kept", range(1, len(whole_run("r")) + 1))
def test_a_trace_is_read_as_it_was_written_after_every_event(kept: int) -> None:
    events = whole_run("r")
    trace = fold(events[:kept])
    read = RunTrace.model_validate_json(trace.model_dump_json())
    assert read == trace
    for event in events[kept:]:
        apply(read, event)
    assert read == fold(events), "a snapshot and the tail give what all the events give"


def test_the_precision_of_a_plan_becomes_known_with_the_plan() -> None:
    here = ConductorInfo(name="big", kind="local", model="big", device="cpu", dtype="bfloat16")
    *before, plan = planned("r")
    trace = fold([created("r", conductor=here), *before, plan.model_copy(update={"precision": "int8"})])
    assert trace.conductor == here.model_copy(update={"precision": "int8"})
    assert trace.conductor is not None
    assert trace.conductor.runs_in == "on cpu (bfloat16, weights in int8)"
    assert trace.root.precision == "int8"


@pytest.mark.parametrize(
    "end",
    [ev.RunCancelled(run_id="r"), ev.RunInterrupted(run_id="r"), ev.RunFailed(run_id="r", error_code="X", error="")],
)
def test_nothing_is_being_planned_or_written_in_a_run_that_is_over(end: Event) -> None:
    started, first, *_ = planned("r")
    still = Progress(phase="writing", done=1, total=2)
    trace = fold([created("r"), started, first, ev.PlanProgress(run_id="r", progress=still), end])
    assert (trace.root.status, trace.root.raw, trace.root.progress) == ("unfinished", "model_id = ", None)
    inner = ev.PlanStarted(run_id="r", round=(1,), messages=())
    recursive = planned("r", RECURSIVE)
    trace = fold([created("r"), *recursive, *answered("r", 0), step_started("r", 1, 50), inner, end])
    assert trace.steps[1].round is not None
    assert (trace.steps[1].status, trace.steps[1].round.status) == ("cancelled", "unfinished")

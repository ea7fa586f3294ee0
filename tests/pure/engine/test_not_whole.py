"""Answers that are no whole ones: what a run does about them, by its setting, and what its record says."""

import pytest

from conductor_core.engine.estimates import preview
from conductor_core.errors import WorkerFailed, WorkerRateLimited, WorkerRefused
from conductor_core.run.events import FINAL_KINDS, RunInterrupted
from conductor_core.run.trace import fold
from conductor_core.run.values import Limits
from tests.support.fakes import Reply, ScriptedWorker, pool_of, run, workflow_of

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

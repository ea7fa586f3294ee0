"""Edit and re-run: exactly what changed is asked again, the rest is reused byte for byte, and the preview says so."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, Price
from conductor_core.engine.estimates import edit_step, preview
from conductor_core.engine.request import EarlierAnswers, limits_from, origin, rerun_of, resume_of
from conductor_core.errors import WorkerRefused
from conductor_core.run.events import StepReused, now_utc
from conductor_core.run.request import Overrides, StepSeed
from conductor_core.run.trace import ReusedFrom, RunTrace
from conductor_core.run.values import Imported, Limits
from conductor_core.settings import Settings
from conductor_core.workflow.edits import add_step, move_step, remove_step
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.fakes import (
    MemorySink,
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    pool_of,
    pure_answer,
    run,
    workflow_of,
)
from tests.support.workflows import AGENTS, Question, edits, questions, workflows

TASK = "what is {question}?"


def workers_of(answer: Any) -> list[ScriptedWorker]:
    return [ScriptedWorker(name, partial(answer, name)) for name in AGENTS]


def unlike(name: str, messages: Sequence[Message]) -> str:
    """Different for every question."""
    return pure_answer(name)(messages)


def alike(name: str, messages: Sequence[Message]) -> str:
    """One of three, so that a changed question often brings the same answer."""
    return ["yes", "no", "perhaps"][hashlib.sha256(unlike(name, messages).encode()).digest()[0] % 3]


def called(workers: Sequence[ScriptedWorker]) -> Counter[Question]:
    return Counter(
        (worker.spec.name, tuple((message.role, message.text) for message in messages))
        for worker in workers
        for messages in worker.calls
    )


async def run_and_rerun(
    before: Workflow, after: Workflow, answer: Any
) -> tuple[RunTrace, RunTrace, list[ScriptedWorker], MemorySink]:
    limits = Limits(max_steps=12)
    first, _ = await run(*workers_of(answer), workflow=before, task=TASK, limits=limits)
    workers, sink = workers_of(answer), MemorySink()
    second, _ = await run(*workers, workflow=after, task=TASK, limits=limits, reuse_from=first, sink=sink)
    return first, second, workers, sink


@pytest.mark.parametrize("answer", [unlike, alike])
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_exactly_what_changed_is_called_and_the_rest_is_reused(answer: Any, data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(edits(before))
    first, second, workers, sink = asyncio.run(run_and_rerun(before, after, answer))

    asked_before, _ = questions(before, TASK, answer)
    asked, outputs = questions(after, TASK, answer)
    known = set(asked_before)
    assert called(workers) == Counter(question for question in asked if question not in known)

    assert second.status == "completed"
    assert second.answer == outputs[-1]
    assert [step.output for step in second.steps] == outputs
    for step, question in zip(second.steps, asked, strict=True):
        assert step.status == ("reused" if question in known else "completed")
        assert tuple((message.role, message.content) for message in step.messages) == question[1]
    for event in sink.events:
        if isinstance(event, StepReused):
            source = first.step_at(event.source_path)
            assert (event.source_run_id, event.output, event.identity) == (first.run_id, source.output, source.identity)
            assert event.output_sha256 == source.output_sha256
    assert second.usage.total_tokens == 15 * sum(called(workers).values())


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_preview_says_what_then_happens(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(edits(before))
    first, second, _, _ = asyncio.run(run_and_rerun(before, after, unlike))
    told = preview(first, after, pool_of(*workers_of(unlike)).specs)
    assert [each.index for each in told.will_run] == [s.index for s in second.steps if s.status == "completed"]
    assert [each.index for each in told.will_reuse] == [s.index for s in second.steps if s.status == "reused"]
    assert all(each.reason for each in (*told.will_run, *told.will_reuse))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_where_answers_may_come_out_the_same_the_preview_never_promises_too_much(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(edits(before))
    first, second, _, _ = asyncio.run(run_and_rerun(before, after, alike))
    told = preview(first, after, pool_of(*workers_of(alike)).specs)
    reused = {step.index for step in second.steps if step.status == "reused"}
    assert {each.index for each in told.will_reuse} <= reused
    for each in told.will_run:
        assert each.index not in reused or "if that comes out the same, this is reused" in each.reason


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_run_taken_up_again_pays_for_no_finished_step_twice(data: st.DataObject) -> None:
    workflow = data.draw(workflows())
    broken = data.draw(st.sampled_from(INSTRUCTION_ENDS))

    def failing(name: str, messages: Sequence[Message]) -> Any:
        return WorkerRefused("401") if messages[-1].text.startswith(broken) else unlike(name, messages)

    async def twice() -> tuple[RunTrace, RunTrace, Counter[Question], Counter[Question]]:
        limits = Limits(max_steps=12)
        early, late = workers_of(failing), workers_of(unlike)
        first, _ = await run(*early, workflow=workflow, task=TASK, limits=limits)
        request = resume_of(first, door="page")
        second, _ = await run(
            *late, workflow=request.workflow, task=TASK, limits=limits, reuse_from=first, resumed=request.resumed
        )
        return first, second, called(early), called(late)

    first, second, early, late = asyncio.run(twice())
    assert second.resumed
    assert second.parent_run_id == first.run_id
    assert second.answer == questions(workflow, TASK, unlike)[1][-1]
    answered = {step.identity for step in first.steps if step.answered}
    for step in second.steps:
        assert (step.status == "reused") == (step.identity in answered)
    refused = {question for question in early if question[1][-1][1].startswith(broken)}
    assert not (set(early) - refused) & set(late)


INSTRUCTION_ENDS = ["plan", "solve", "check"]

DIAMOND = workflow_of(
    ("a", "plan", ()), ("b", "one", (0,)), ("b", "two", (0,)), ("c", "three", ()), ("a", "join", (1, 2, 3))
)


async def run_again(
    after: Workflow, before: Workflow = DIAMOND, **changed: Any
) -> tuple[RunTrace, RunTrace, list[ScriptedWorker]]:
    first, _ = await run(*workers_of(unlike), workflow=before)
    workers = workers_of(unlike)
    second, _ = await run(*workers, workflow=after, reuse_from=first, **changed)
    return first, second, workers


async def test_two_of_five_steps_run_again() -> None:
    first, second, _ = await run_again(edit_step(DIAMOND, 1, instruction="one, but briefly"))
    assert [step.status for step in second.steps] == ["reused", "completed", "reused", "reused", "completed"]
    assert first.answer != second.answer
    reused = second.steps[0]
    assert reused.reused_from is not None
    assert (reused.reused_from.run_id, reused.reused_from.path) == (first.run_id, (0,))
    # Nothing is paid for what is reused; what it cost where it ran is still shown.
    assert reused.usage.total_tokens == 15
    assert second.usage.total_tokens == 30
    assert second.cost_usd == pytest.approx(2 * 6e-5)


async def test_the_source_run_is_never_touched() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    before = first.model_dump_json()
    await run(*workers_of(unlike), workflow=edit_step(DIAMOND, 0, agent="b"), reuse_from=first)
    assert first.model_dump_json() == before


async def test_a_reused_step_names_where_it_ran_not_where_it_was_reused() -> None:
    first, second, _ = await run_again(DIAMOND)
    third, _ = await run(*workers_of(unlike), workflow=DIAMOND, reuse_from=second)
    assert {step.reused_from.run_id for step in third.steps if step.reused_from} == {first.run_id}
    assert third.answer == first.answer
    assert third.usage.total_tokens == 0


async def test_changed_parameters_of_a_worker_make_its_steps_run_again() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    hotter = ScriptedWorker("c", params={"temperature": 1.0})
    a, b, _ = workers_of(unlike)
    told = preview(first, DIAMOND, pool_of(a, b, hotter).specs)
    assert [(each.index, each.reason) for each in told.will_run] == [
        (3, "its agent's model or parameters changed"),
        (4, "reads step 3, which runs (if that comes out the same, this is reused)"),
    ]
    second, _ = await run(a, b, hotter, workflow=DIAMOND, reuse_from=first)
    # This worker answers as before all the same, so its reader is not asked again.
    assert [step.status for step in second.steps] == ["reused", "reused", "reused", "completed", "reused"]


async def test_another_price_or_time_limit_does_not() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    dearer = [ScriptedWorker(name, timeout_s=1.0, usd_per_mtok=Price(input=9, output=9)) for name in AGENTS]
    second, _ = await run(*dearer, workflow=DIAMOND, reuse_from=first)
    assert {step.status for step in second.steps} == {"reused"}


async def test_another_task_runs_only_the_steps_that_say_it() -> None:
    workflow = workflow_of(("a", "solve {question}", ()), ("b", "say hello", ()))
    first, _ = await run(*workers_of(unlike), workflow=workflow)
    second, _ = await run(*workers_of(unlike), workflow=workflow, task="another task", reuse_from=first)
    assert [step.status for step in second.steps] == ["completed", "reused"]


async def test_independent_attempts_stay_independent_when_moved() -> None:
    """Two samples of one question are two answers; moved up by one, each is reused once."""
    samples = iter(["first sample", "second sample"])
    judged = workflow_of(("a", "try", ()), ("a", "try", ()), ("b", "judge", (0, 1)))
    worker = ScriptedWorker("a", lambda _: next(samples))
    first, _ = await run(worker, ScriptedWorker("b"), workflow=judged)
    moved = Workflow(
        steps=(
            Step(instruction="new", agent="b"),
            *judged.steps[:2],
            Step(instruction="judge", agent="b", access_list=(1, 2)),
        )
    )
    second, _ = await run(worker, ScriptedWorker("b"), workflow=moved, reuse_from=first)
    assert sorted(step.output for step in second.steps[1:3]) == ["first sample", "second sample"]


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        (edit_step(DIAMOND, 3, instruction="x"), {3: "instruction changed"}),
        (edit_step(DIAMOND, 3, agent="b"), {3: "agent changed"}),
        (edit_step(DIAMOND, 3, access=(0,)), {3: "also reads step 0"}),
        (edit_step(DIAMOND, 3, agent="b", instruction="x"), {3: "agent and instruction changed"}),
        (Workflow(steps=(*DIAMOND.steps, Step(instruction="x", agent="a"))), {5: "new step"}),
        (edit_step(DIAMOND, 1, access=()), {1: "no longer reads step 0"}),
        (add_step(DIAMOND, 1, Step(instruction="x", agent="a")), {1: "new step"}),
        (
            remove_step(DIAMOND, 0)[0],
            {0: "no longer reads the removed step 0", 1: "no longer reads the removed step 0"},
        ),
        (move_step(DIAMOND, 1, 0)[0], {0: "moved, no longer reads step 1"}),
        (move_step(DIAMOND, 2, 1)[0], {4: "reads its steps in another order"}),
    ],
)
async def test_each_step_that_runs_has_its_reason(after: Workflow, reasons: dict[int, str]) -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    told = preview(first, after, pool_of(*workers_of(unlike)).specs)
    own = {each.index: each.reason for each in told.will_run if not each.reason.startswith("reads step")}
    assert own == reasons
    for each in told.will_reuse:
        assert each.before is not None
        assert "unchanged" in each.reason
        assert (f"was step {each.before}" in each.reason) == (each.before != each.index)
        assert (each.reused_run_id, each.reused_path) == (first.run_id, (each.before,))


async def test_what_is_reused_from_another_place_says_from_which() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    pool = pool_of(*workers_of(unlike))
    moved = {each.index: each.reason for each in preview(first, move_step(DIAMOND, 3, 0)[0], pool.specs).will_reuse}
    assert moved[0] == "moved, else unchanged, was step 3"
    assert moved[1] == "unchanged, was step 0"


async def test_a_recorded_answer_was_there_before_the_steps_that_may_not_read_it() -> None:
    before = workflow_of(("a", "one: {question}", ()), ("b", "two: {question}", ()), ("c", "three: {question}", ()))
    after = edit_step(before, 0, instruction="another: {question}")
    first, second, *_ = await run_and_rerun(before, edit_step(after, 2, instruction="third: {question}"), unlike)
    assert [step.status for step in second.steps] == ["completed", "reused", "completed"]
    last = {shared.path: shared for shared in second.steps[2].withheld}
    assert not last[0,].there
    assert last[1,].there
    assert last[1,].sha256 == first.steps[1].output_sha256


async def test_a_changed_step_below_a_changed_one_says_both() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    after = edit_step(edit_step(DIAMOND, 0, instruction="x"), 1, agent="c")
    told = {each.index: each.reason for each in preview(first, after, pool_of(*workers_of(unlike)).specs).will_run}
    assert told[1] == "agent changed; reads step 0, which runs"
    assert told[2] == "reads step 0, which runs (if that comes out the same, this is reused)"


async def test_a_new_step_that_asks_what_another_asked_says_which() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    after = add_step(DIAMOND, 5, DIAMOND.steps[3])
    told = preview(first, after, pool_of(*workers_of(unlike)).specs)
    assert told.will_run == ()
    assert told.will_reuse[5].reason == "asks what step 3 asked"


async def test_reasons_go_by_what_is_known_of_the_steps_and_not_by_place() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    moved, _ = move_step(DIAMOND, 3, 0)
    after = edit_step(moved, 0, agent="b", instruction="quite other words")
    pool = pool_of(*workers_of(unlike))
    assert preview(first, after, pool.specs).will_run[0].reason == "new step"
    known = preview(first, after, pool.specs, origins=(3, 0, 1, 2, 4)).will_run[0]
    assert (known.before, known.reason) == (3, "moved, agent and instruction changed")


async def test_the_preview_names_steps_without_an_answer() -> None:
    bad = ScriptedWorker("c", lambda _: WorkerRefused("401"))
    a, b, _ = workers_of(unlike)
    first, _ = await run(a, b, bad, workflow=DIAMOND)
    told = preview(first, DIAMOND, pool_of(*workers_of(unlike)).specs)
    assert told.will_run[0].reason == f"has no answer in run {first.run_id}: it ended failed there"


async def test_the_preview_estimates_from_the_source() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    pool = pool_of(*workers_of(unlike))
    told = preview(first, edit_step(DIAMOND, 1, instruction="x"), pool.specs)
    assert told.estimated_tokens == 30
    assert told.estimated_usd == pytest.approx(2 * 6e-5)
    unpriced = pool_of(ScriptedWorker("a", usd_per_mtok=None), *workers_of(unlike)[1:])
    told = preview(first, edit_step(DIAMOND, 3, agent="a"), unpriced.specs)
    assert told.estimated_usd is None
    assert preview(first, DIAMOND, pool.specs).estimated_usd == 0


async def test_the_estimate_follows_the_access_list() -> None:
    """In both directions: by the tokens of the outputs that are granted or withheld now."""
    plan = workflow_of(("a", "x", ()), ("b", "y", ()), ("c", "z", (0,)))
    workers = workers_of(unlike)
    first, _ = await run(*workers, workflow=plan)
    specs = pool_of(*workers).specs
    turns = 2 * 4 + 1  # what each output costs besides its own tokens: roles, and the instruction before it

    def estimated(after: Workflow) -> tuple[int, float]:
        (only,) = preview(first, after, specs).will_run
        assert only.estimated_usd is not None
        return only.estimated_tokens, only.estimated_usd

    own, read_x, read_y = first.steps[2].usage.total_tokens, *(each.usage.output_tokens for each in first.steps[:2])
    more, dearer = estimated(edit_step(plan, 2, access=(0, 1)))
    assert more == own + read_y + turns
    less, cheaper = estimated(edit_step(plan, 2, access=()))
    assert less == max(0, first.steps[2].usage.input_tokens - read_x - turns) + first.steps[2].usage.output_tokens
    assert cheaper < (first.steps[2].cost_usd or 0.0) < dearer
    added = add_step(plan, 3, Step(instruction="z", agent="c", access_list=(0, 1, 2)))
    alone = add_step(plan, 3, Step(instruction="z", agent="c", access_list=()))
    assert estimated(added)[0] - estimated(alone)[0] == sum(each.usage.output_tokens + turns for each in first.steps)


async def test_the_preview_knows_recursions() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()), (CONDUCTOR_AGENT, "again", (0,)))
    conductor = ScriptedConductor(lists_of(workflow_of(("c", "inner", ())), AGENTS))
    first, _ = await run(*workers_of(unlike), workflow=workflow, conductor=conductor)
    pool = pool_of(*workers_of(unlike))
    assert preview(first, workflow, pool.specs).will_run == ()
    told = preview(first, edit_step(workflow, 1, instruction="z"), pool.specs)
    assert [(each.index, each.reason) for each in told.will_run] == [
        (1, "instruction changed"),
        (2, "the plan around it changed, which the Conductor sees"),
    ]
    inner = first.steps[2].round
    assert inner is not None
    assert told.estimated_tokens == 15 + 15 + inner.usage.total_tokens


async def test_the_preview_counts_what_recursions_below_recursions_cost() -> None:
    again = workflow_of(("a", "once more", ()), (CONDUCTOR_AGENT, "deeper", (0,)))
    last = workflow_of(("b", "enough", ()), ("c", "done", (0,)))
    conductor = ScriptedConductor(lists_of(again, AGENTS), lists_of(last, AGENTS))
    workflow = workflow_of(("a", "x", ()), ("b", "side", ()), (CONDUCTOR_AGENT, "again", (0,)))
    a, b, c = workers_of(unlike)
    # Each its own cost, so that none can stand in for another: x 1, once more 2, side 4, enough 8, done 16.
    costs = {"x": 1.0, "once more": 2.0, "side": 4.0, "enough": 8.0, "done": 16.0}
    for worker in (a, b, c):
        worker._answer = lambda messages: Reply(text=messages[-1].text, cost_usd=costs[messages[-1].text])
    limits = Limits(max_depth=2)
    first, _ = await run(a, b, c, workflow=workflow, conductor=conductor, limits=limits)
    assert (first.status, first.cost_usd) == ("completed", 31.0)
    told = preview(first, edit_step(workflow, 1, instruction="other"), pool_of(*workers_of(unlike)).specs)
    side, recursion = told.will_run
    assert recursion.estimated_usd == 2.0 + 8.0 + 16.0
    planned = first.round_at((2,)).usage.total_tokens + first.round_at((2, 1)).usage.total_tokens
    assert recursion.estimated_tokens == 3 * 15 + planned
    assert told.estimated_usd == (side.estimated_usd or 0.0) + 26.0
    assert told.estimated_tokens == side.estimated_tokens + recursion.estimated_tokens


async def test_one_unknown_price_below_makes_a_recursions_cost_unknown() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()), (CONDUCTOR_AGENT, "again", (0,)))
    conductor = ScriptedConductor(lists_of(workflow_of(("c", "1", ()), ("a", "2", (0,))), AGENTS))
    a, b, _ = workers_of(unlike)
    free = ScriptedWorker("c", usd_per_mtok=None)
    first, _ = await run(a, b, free, workflow=workflow, conductor=conductor)
    told = preview(first, edit_step(workflow, 1, instruction="z"), pool_of(a, b, free).specs)
    assert told.will_run[1].estimated_usd is None
    assert told.estimated_usd is None


async def test_what_a_new_recursion_will_cost_is_not_known() -> None:
    first, _ = await run(*workers_of(unlike), workflow=DIAMOND)
    after = add_step(DIAMOND, 5, Step(instruction="again", agent=CONDUCTOR_AGENT, access_list=(4,)))
    conductor = ScriptedConductor("").info
    told = preview(first, after, pool_of(*workers_of(unlike)).specs, conductor=conductor)
    (recursion,) = told.will_run
    assert (recursion.index, recursion.reason) == (5, "new step")
    assert (recursion.estimated_usd, told.estimated_usd) == (None, None)
    assert recursion.estimated_tokens == 15
    assert told.on_top == "a round of the Conductor comes on top: none is recorded"


RECURSION = workflow_of(("a", "x", ()), (CONDUCTOR_AGENT, "again", (0,)))


async def recursion_run(**request: Any) -> RunTrace:
    conductor = ScriptedConductor(lists_of(workflow_of(("c", "inner", ())), AGENTS))
    trace, _ = await run(*workers_of(unlike), workflow=RECURSION, conductor=conductor, **request)
    return trace


async def test_another_conductor_runs_the_recursions_again_and_the_preview_knows_it() -> None:
    first, pool = await recursion_run(), pool_of(*workers_of(unlike))
    assert first.conductor is not None
    other = first.conductor.model_copy(update={"model": "another"})
    assert preview(first, RECURSION, pool.specs, conductor=first.conductor).will_run == ()
    told = preview(first, RECURSION, pool.specs, conductor=other)
    assert [each.index for each in told.will_run] == [1]
    assert [each.index for each in told.will_reuse] == [0]


async def test_the_preview_asks_with_the_seed_and_the_limits_of_the_source() -> None:
    pool = pool_of(*workers_of(unlike))
    for changed in ({"seed": 7}, {"limits": Limits(max_depth=2, max_steps=4)}):
        first = await recursion_run(**changed)
        assert preview(first, RECURSION, pool.specs).will_run == ()
    # And it is the seed that was compared: the same run under another would ask its recursion anew.
    reseeded = (await recursion_run()).model_copy(update={"seed": 7})
    assert [each.index for each in preview(reseeded, RECURSION, pool.specs).will_run] == [1]


@pytest.mark.parametrize("index", [-1, 5])
def test_there_is_no_such_step_to_edit(index: int) -> None:
    with pytest.raises(IndexError, match="unknown step"):
        edit_step(DIAMOND, index, instruction="x")


def test_an_edit_changes_what_it_names_and_nothing_else() -> None:
    edited = edit_step(DIAMOND, 4, access="all")
    assert edited.steps[:4] == DIAMOND.steps[:4]
    assert edited.steps[4] == Step(instruction="join", agent="a", access_list="all")
    assert edit_step(DIAMOND, 4, access=()).steps[4].access_list == ()


# Which recorded answer stands in for a question.


TWICE = workflow_of(("a", "try", ()), ("a", "try", ()), ("a", "else", ()))


async def recorded() -> tuple[RunTrace, str]:
    samples = iter(["first", "second", "third"])
    trace, _ = await run(ScriptedWorker("a", lambda _: next(samples)), workflow=TWICE)
    assert trace.steps[0].identity is not None
    return trace, trace.steps[0].identity


def output(source: EarlierAnswers, identity: str, path: tuple[int, ...]) -> str | None:
    found = source.find(identity, path)
    return None if found is None else found.output


async def test_the_answer_at_the_same_place_comes_first() -> None:
    trace, identity = await recorded()
    source = EarlierAnswers(trace)
    assert [output(source, identity, (1,)), output(source, identity, (0,))] == ["second", "first"]


async def test_then_one_that_no_other_step_has_taken_and_then_any() -> None:
    trace, identity = await recorded()
    source = EarlierAnswers(trace)
    assert [output(source, identity, (place,)) for place in (5, 6, 7)] == ["first", "second", "first"]


async def test_what_was_not_asked_is_not_there() -> None:
    trace, _ = await recorded()
    assert EarlierAnswers(trace).find("another", (0,)) is None
    assert EarlierAnswers(None).find("another", (0,)) is None


async def test_unfinished_steps_offer_nothing() -> None:
    trace, identity = await recorded()
    for step in trace.steps:
        step.status = "cancelled"
    assert EarlierAnswers(trace).find(identity, (0,)) is None


async def test_the_origin_is_where_it_ran() -> None:
    trace, _ = await recorded()
    step = trace.steps[0]
    assert origin(trace, step) == ReusedFrom(run_id=trace.run_id, path=(0,))
    step.reused_from = ReusedFrom(run_id="r1", path=(3,), imported=True)
    assert origin(trace, step) == step.reused_from
    trace.imported = Imported(
        run_id="x", written_by="w", written_at_utc=now_utc(), imported_at_utc=now_utc(), door="cli"
    )
    assert origin(trace, step) == ReusedFrom(run_id=trace.run_id, path=(0,), imported=True), "r1 is the file's word"


PLAN = workflow_of(("a", "x", ()))


def test_budgets_come_from_the_settings() -> None:
    settings = Settings(max_steps=3, max_tokens=10, max_usd=0.5, max_seconds=9, max_depth=2)
    assert limits_from(settings) == Limits(max_steps=3, max_tokens=10, max_usd=0.5, max_seconds=9, max_depth=2)


async def test_a_rerun_keeps_what_it_does_not_change() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, seed=4, limits=Limits(max_tokens=99))
    edited = workflow_of(("a", "y", ()))
    request = rerun_of(source, edited, door="page")
    assert (request.task, request.seed, request.limits) == (source.task, 4, source.limits)
    assert (request.workflow, request.parent_run_id, request.resumed) == (edited, source.run_id, False)
    assert (request.door, request.run_id != source.run_id) == ("page", True)
    assert rerun_of(source, door="page").workflow == PLAN


async def test_what_holds_for_a_step_moves_with_it() -> None:
    plan = workflow_of(("a", "x", ()), ("a", "y", ()))
    seeds = Overrides(seeds=(StepSeed(step=1, seed=7),))
    source, _ = await run(ScriptedWorker("a"), workflow=plan, overrides=seeds)
    request = rerun_of(source, workflow_of(("a", "y", ())), door="page", origins=(1,))
    assert request.overrides.seeds == (StepSeed(step=0, seed=7),)


async def test_a_resume_is_a_rerun_of_the_unchanged_plan() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, plan_only=True)
    request = resume_of(source, door="cli")
    assert (request.workflow, request.parent_run_id, request.resumed) == (PLAN, source.run_id, True)
    assert request.plan_only


async def test_a_resume_goes_on_with_the_runs_own_settings() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, give_question=True, on_incomplete="stop")
    request = resume_of(source, door="cli")
    assert (request.give_question, request.on_incomplete) == (True, "stop")

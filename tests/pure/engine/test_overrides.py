"""Single steps otherwise than the plan says: asked afresh, given by a person, or the last that is carried out."""

import asyncio
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.engine.estimates import edit_step, preview
from conductor_core.engine.request import carried, rerun_of, resume_of
from conductor_core.errors import BadInput
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run.actor import local_actor
from conductor_core.run.events import StepGiven
from conductor_core.run.request import Given, GivenOutput, Overrides, StepSeed
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.edits import move_step, remove_step
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.topology import descendants
from tests.support.fakes import (
    MemorySink,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    pool_of,
    pure_answer,
    quick_settings,
    run,
    workflow_of,
)
from tests.support.workflows import AGENTS, workflows

DIAMOND = workflow_of(
    ("a", "plan", ()), ("b", "one", (0,)), ("b", "two", (0,)), ("c", "three", ()), ("a", "join", (1, 2, 3))
)
ADA = local_actor()
WRITTEN = Given(how="written", actor=ADA, door="cli")
LIMITS = Limits(max_steps=12)


def seeds(**by_step: int) -> Overrides:
    return Overrides(seeds=tuple(StepSeed(step=int(name[1:]), seed=seed) for name, seed in by_step.items()))


def written(step: int, text: str = "by hand", how: Given = WRITTEN) -> Overrides:
    return Overrides(outputs=(GivenOutput(step=step, text=text, given=how),))


class Drawing:
    """Workers whose every answer is a new one, as those of models with a temperature are."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def workers(self, *, afresh: bool = True) -> list[ScriptedWorker]:
        return [ScriptedWorker(name, partial(self._answer, name, afresh)) for name in AGENTS]

    def _answer(self, name: str, afresh: bool, messages: object) -> str:
        instruction = messages[-1].text  # type: ignore[index]
        self.calls[instruction] += 1
        same = pure_answer(name)(messages)  # type: ignore[arg-type]
        return f"{same} {self.calls[instruction]}" if afresh else same


def statuses(trace: RunTrace) -> list[str]:
    return [step.status for step in trace.steps]


async def test_a_step_asked_afresh_runs_with_all_that_reads_it_and_nothing_else() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    request = rerun_of(first, door="cli", overrides=seeds(s1=7))
    told = preview(first, DIAMOND, pool_of(*drawing.workers()).specs, overrides=request.overrides)
    second, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=first, overrides=request.overrides)
    assert statuses(second) == ["reused", "completed", "reused", "reused", "completed"]
    assert [(each.index, each.reason) for each in told.will_run] == [
        (1, "asked afresh"),
        (4, "reads step 1, which runs (if that comes out the same, this is reused)"),
    ]
    assert second.steps[1].output != first.steps[1].output


async def test_what_reads_a_fresh_answer_is_reused_where_that_comes_out_the_same() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(afresh=False), workflow=DIAMOND)
    second, _ = await run(*drawing.workers(afresh=False), workflow=DIAMOND, reuse_from=first, overrides=seeds(s1=7))
    assert statuses(second) == ["reused", "completed", "reused", "reused", "reused"]


async def test_a_fresh_answer_is_asked_for_once() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    second, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=first, overrides=seeds(s1=7))
    again = rerun_of(second, door="cli")
    assert again.overrides == seeds(s1=7)
    third, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=second, overrides=again.overrides)
    assert set(statuses(third)) == {"reused"}
    assert third.answer == second.answer


async def test_a_run_with_a_fresh_step_is_taken_up_where_it_stopped() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    broken = drawing.workers()
    broken[0].then(RuntimeError("the join breaks"))
    second, _ = await run(*broken, workflow=DIAMOND, reuse_from=first, overrides=seeds(s1=7))
    assert statuses(second)[1:] == ["completed", "reused", "reused", "failed"]
    request = resume_of(second, door="cli")
    third, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=second, overrides=request.overrides)
    assert statuses(third) == ["reused"] * 4 + ["completed"]
    assert third.steps[1].output == second.steps[1].output


async def test_simulated_workers_draw_anew_with_the_seed_and_the_same_seed_draws_the_same() -> None:
    """The worker that is opened for the step has the seed, not only its record."""
    specs = rehearsal_specs()
    name = next(spec.name for spec in specs)
    stand_in = ScriptedWorker(name, **specs[0].model_dump(exclude={"name"}))
    plan = workflow_of((name, "What is the chemical symbol of tungsten? Say why.", ()))

    async def output(overrides: Overrides) -> str:
        trace, _ = await run(
            stand_in, workflow=plan, overrides=overrides, settings=quick_settings(rehearsal_tokens_per_s=0)
        )
        return trace.steps[0].output

    texts = [await output(seeds(s0=seed)) for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]
    assert not stand_in.calls


async def test_a_seed_of_its_own_reaches_the_conductor_of_a_recursion_and_the_steps_below() -> None:
    inner = lists_of(workflow_of(("a", "inner", ())), AGENTS)
    plan = workflow_of((CONDUCTOR_AGENT, "again", ()))
    drawing, conductor = Drawing(), ScriptedConductor(inner)
    first, _ = await run(*drawing.workers(), workflow=plan, conductor=conductor, limits=LIMITS, seed=3)
    second, _ = await run(
        *drawing.workers(),
        workflow=plan,
        conductor=conductor,
        limits=LIMITS,
        seed=3,
        reuse_from=first,
        overrides=seeds(s0=9),
    )
    assert [request.seed for request in conductor.requests] == [3, 9]
    assert drawing.calls["inner"] == 2
    assert second.answer != first.answer


async def test_the_run_ends_with_the_step_it_was_asked_for() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    only = Overrides(seeds=seeds(s1=7).seeds, last_step=1)
    told = preview(first, DIAMOND, pool_of(*drawing.workers()).specs, overrides=only)
    second, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=first, overrides=only)
    assert statuses(second) == ["reused", "completed", "skipped", "skipped", "skipped"]
    assert (second.status, second.answer) == ("completed", second.steps[1].output)
    assert ([each.index for each in told.will_run], told.will_skip) == ([1], (2, 3, 4))
    # A re-run of it goes to the end of the plan.
    whole = rerun_of(second, door="cli")
    assert whole.overrides == seeds(s1=7)
    third, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=second, overrides=whole.overrides)
    assert statuses(third) == ["reused", "reused", "completed", "completed", "completed"]


async def test_a_written_output_stands_in_for_the_worker_and_says_so_where_it_flows() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    told = preview(first, DIAMOND, pool_of(*drawing.workers()).specs, overrides=written(1))
    workers = drawing.workers()
    second, sink = await run(*workers, workflow=DIAMOND, reuse_from=first, overrides=written(1))
    assert statuses(second) == ["reused", "written", "reused", "reused", "completed"]
    step, reader = second.steps[1], second.steps[4]
    assert step.given == WRITTEN
    assert (step.output, step.messages, step.granted, step.usage.total_tokens) == ("by hand", (), (), 0)
    assert not step.simulated
    assert any(message.content == "by hand" for message in reader.messages)
    assert [shared.given for shared in reader.granted] == ["written", "", ""]
    assert [event.output for event in sink.events if isinstance(event, StepGiven)] == ["by hand"]
    assert [each.index for each in told.will_run] == [4]
    assert told.will_reuse[1].reason == f"its output is written by {WRITTEN.caller.in_words}"
    # It stays in re-runs until it is taken back; then the step runs again.
    assert rerun_of(second, door="cli").overrides == written(1)
    freed = preview(second, DIAMOND, pool_of(*workers).specs, overrides=Overrides())
    assert (freed.will_run[0].index, freed.will_run[0].reason) == (1, "its output is no longer set by hand")


async def test_a_given_step_waits_for_nothing_and_outlives_a_failure_above_it() -> None:
    drawing = Drawing()
    workers = drawing.workers()
    workers[0].then(RuntimeError("the plan breaks"))
    chain = workflow_of(("a", "plan", ()), ("b", "do", (0,)), ("c", "check", (1,)))
    trace, _ = await run(*workers, workflow=chain, overrides=written(1))
    assert statuses(trace) == ["failed", "written", "completed"]
    assert trace.status == "completed"


async def test_a_pinned_output_stands_whatever_the_step_would_see() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND)
    pin = Given(how="pinned", actor=ADA, door="page", source_run_id=first.run_id, source_path=(1,))
    pinned = written(1, first.steps[1].output, pin)
    after = edit_step(DIAMOND, 0, instruction="plan otherwise")
    second, _ = await run(*drawing.workers(), workflow=after, reuse_from=first, overrides=pinned)
    assert statuses(second) == ["completed", "reused", "completed", "reused", "completed"]
    step = second.steps[1]
    assert step.given == pin
    assert step.reused_from is not None
    assert (step.reused_from.run_id, step.output) == (first.run_id, first.steps[1].output)
    assert [shared.given for shared in second.steps[4].granted] == ["pinned", "", ""]


async def test_a_given_output_is_never_reused_as_a_workers_answer() -> None:
    drawing = Drawing()
    first, _ = await run(*drawing.workers(), workflow=DIAMOND, overrides=written(3))
    second, _ = await run(*drawing.workers(), workflow=DIAMOND, reuse_from=first)
    assert statuses(second)[3] == "completed"
    assert second.steps[3].given is None


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (seeds(s5=1), "step 5"),
        (written(9), "step 9"),
        (Overrides(last_step=5), "step 5"),
    ],
)
async def test_what_does_not_fit_the_plan_is_refused_before_anything_is_written(
    overrides: Overrides, named: str
) -> None:
    sink = MemorySink()
    with pytest.raises(BadInput, match=named):
        await run(*Drawing().workers(), workflow=DIAMOND, overrides=overrides, sink=sink)
    assert not sink.events


async def test_a_run_without_a_plan_has_no_steps_to_override() -> None:
    with pytest.raises(BadInput, match="still to be written"):
        await run(*Drawing().workers(), conductor=ScriptedConductor(""), overrides=seeds(s0=1))


def test_overrides_stay_with_their_steps_when_the_plan_is_edited() -> None:
    all_of_them = Overrides(seeds=seeds(s1=7).seeds, outputs=written(3).outputs, last_step=4)
    after, _ = move_step(DIAMOND, 3, 0)
    moved = all_of_them.moved(DIAMOND, after, (3, 0, 1, 2, 4))
    assert (moved.seeds[0].step, moved.outputs[0].step, moved.last_step) == (2, 0, 4)
    after, _ = remove_step(DIAMOND, 1)
    left = all_of_them.moved(DIAMOND, after, (0, 2, 3, 4))
    assert (left.seeds, left.outputs[0].step, left.last_step) == ((), 2, 3)


def test_a_step_has_one_seed_and_one_output() -> None:
    for twice in ({"seeds": seeds(s1=1).seeds * 2}, {"outputs": written(1).outputs * 2}):
        with pytest.raises(ValueError, match="step 1 has two"):
            Overrides.model_validate(twice)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_preview_says_what_then_happens(data: st.DataObject) -> None:
    plan: Workflow = data.draw(workflows())
    places = st.integers(0, len(plan.steps) - 1)
    overrides = Overrides(
        seeds=tuple(StepSeed(step=step, seed=1) for step in data.draw(st.sets(places, max_size=2))),
        outputs=tuple(
            GivenOutput(step=step, text="given", given=WRITTEN) for step in data.draw(st.sets(places, max_size=2))
        ),
        last_step=data.draw(st.none() | places),
    )

    async def both() -> tuple[RunTrace, RunTrace]:
        drawing = Drawing()
        first, _ = await run(*drawing.workers(), workflow=plan, limits=LIMITS)
        second, _ = await run(*drawing.workers(), workflow=plan, limits=LIMITS, reuse_from=first, overrides=overrides)
        return first, second

    first, second = asyncio.run(both())
    told = preview(first, plan, pool_of(*Drawing().workers()).specs, overrides=overrides)
    ran = {step.index for step in second.steps if step.status == "completed"}
    assert {each.index for each in told.will_run} == ran
    assert {each.index for each in told.will_reuse} == {
        step.index for step in second.steps if step.status in ("reused", "written")
    }
    assert set(told.will_skip) == {step.index for step in second.steps if step.status == "skipped"}
    fresh = {each.step for each in overrides.seeds}
    given_steps = {each.step for each in overrides.outputs}
    reached = frozenset[int]().union(*(descendants(plan, step) | {step} for step in fresh | given_steps))
    assert ran <= reached - given_steps
    assert carried(second).outputs == overrides.outputs

"""One step many times: which runs that takes, what they cost, and how far their answers agree."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.engine import repeats
from conductor_core.engine.repeats import (
    PLANS_PURPOSE,
    PURPOSE,
    Again,
    PlanChoice,
    choices,
    forecast_repeats,
    plans_requested,
    repeat_requests,
    tally,
    variants,
)
from conductor_core.errors import BadInput, WorkerRefused
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.request import LEAST_PLANS, MOST_PLANS, MOST_SEED, Overrides, RunRequest, written_by
from conductor_core.run.trace import RunTrace, apply, begin, fold
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.support.fakes import ScriptedWorker, pool_of, run, workflow_of
from tests.support.run_events import created
from tests.support.workflows import AGENTS

CHAIN = workflow_of(("a", "plan", ()), ("b", "solve {question}", (0,)), ("c", "write it down", (1,)))


def workers_of(**answers: object) -> list[ScriptedWorker]:
    return [ScriptedWorker(name, answers.get(name)) for name in AGENTS]  # type: ignore[arg-type]


def made(again: Again, *workers: ScriptedWorker, base: Overrides | None = None) -> tuple[RunTrace, list[RunTrace]]:
    """Runs the chain, then all that is asked afresh of it."""

    async def go() -> tuple[RunTrace, list[RunTrace]]:
        source, _ = await run(*workers, workflow=CHAIN)
        requests = repeat_requests(source, again, AGENTS, door="cli", base=base)
        told = forecast_repeats(source, again, pool_of(*workers).specs, base)
        traces = [(await run(*workers, reuse_from=source, **asked(each)))[0] for each in requests]
        assert sum(trace.usage.total_tokens for trace in traces) <= told.estimated_tokens
        return source, traces

    return asyncio.run(go())


def asked(request: RunRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in type(request).model_fields}
    return {name: value for name, value in fields.items() if name not in ("parent_run_id", "taken_up", "pool")}


def drawing(*texts: str | Exception) -> object:
    left = list(texts)
    return lambda _: left.pop(0)


def test_a_step_alone_is_asked_so_often_and_its_answers_stand_in_groups() -> None:
    solver = drawing(
        "so: 41", "The answer is **42**.", "Hence \\boxed{42}", "The answer is 41.", "It is so: the answer is 42"
    )
    again = Again(step=1, times=4, seed=5)
    workers = workers_of(b=solver)
    source, traces = made(again, *workers)
    assert [len(worker.calls) for worker in workers] == [1, 5, 1], (
        "what the step reads is reused, what reads it left out"
    )
    assert {trace.purpose for trace in traces} == {PURPOSE}
    assert len({trace.batch.id for trace in traces if trace.batch}) == 1
    assert [trace.overrides.seed_at((1,)) for trace in traces] == [5, 6, 7, 8]
    found = tally(source, traces)
    (each,) = found.tallies
    assert (found.step, found.extent, each.agent, each.answered) == (1, "only", "b", 4)
    assert [(group.conclusion, len(group.run_ids)) for group in each.groups] == [("42", 3), ("41", 1)]
    assert each.groups[0].run_ids == tuple(traces[number].run_id for number in (0, 1, 3))
    assert not each.groups[0].as_before
    assert each.usage.total_tokens == 4 * 15
    assert each.cost.usd == pytest.approx(4 * 6e-5)
    assert each.mean_ms is not None


def test_groups_say_what_they_were_compared_by_and_which_differ_in_wording_alone() -> None:
    rain, cold = "It rains. It is cold.", "It is cold. It rains."
    solver = drawing("first", "The answer is 42.", "\\boxed{42}", rain, cold, f"{rain} ")
    source, traces = made(Again(step=1, times=5, seed=5), *workers_of(b=solver))
    (each,) = tally(source, traces).tallies
    assert [(group.by, len(group.run_ids)) for group in each.groups] == [("value", 2), ("text", 2), ("text", 1)]
    assert [each.differs_in_wording(group) for group in each.groups] == [False, True, True]
    assert each.compared_by == "value, else text"


def test_from_a_step_on_all_that_its_answer_reaches_is_asked_afresh() -> None:
    workers = workers_of()
    source, traces = made(Again(step=1, extent="from", times=2), *workers)
    assert [len(worker.calls) for worker in workers] == [1, 3, 3]
    assert all([seed.step for seed in trace.overrides.seeds] == [1, 2] for trace in traces)
    assert tally(source, traces).tallies[0].groups[0].as_before


def test_workers_are_asked_with_the_same_seeds_beside_each_other() -> None:
    source, traces = made(Again(step=1, times=2, agents=("b", "c")), *workers_of())
    found = tally(source, traces)
    assert [(each.agent, each.answered) for each in found.tallies] == [("b", 2), ("c", 2)]
    seeds = [trace.overrides.seed_at((1,)) for trace in traces]
    assert seeds[:2] == seeds[2:]
    assert len(set(seeds)) == 2
    assert traces[2].root.before_edit == CHAIN


def test_a_run_without_an_answer_is_counted_and_named() -> None:
    source, traces = made(Again(step=1, times=2), *workers_of(b=drawing("one", WorkerRefused("401 no key"), "one")))
    (each,) = tally(source, traces).tallies
    assert each.answered == 1
    assert [(gone.run_id, gone.status) for gone in each.unanswered] == [(traces[0].run_id, "failed")]
    assert "401 no key" in (each.unanswered[0].error or "")


def test_a_given_output_gives_way_to_the_worker_that_is_asked() -> None:
    base = Overrides().with_output(1, "by hand", written_by(local_caller("cli")))
    _, traces = made(Again(step=1, times=2), *workers_of(), base=base.with_output(0, "a plan", base.outputs[0].given))
    assert [step.status for step in traces[0].steps] == ["written", "completed", "skipped"]


def test_a_single_run_is_no_batch() -> None:
    _, (trace,) = made(Again(step=2), *workers_of())
    assert trace.batch is None
    assert trace.overrides.again == 2


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (Again(step=3), "the steps of run"),
        (Again(step=0, times=101), "1 to 100 times"),
        (Again(step=0, agents=("nobody",)), "no worker nobody"),
        (Again(step=0, agents=("a", "a")), "each worker once"),
        (Again(step=0, seed=-1), "seeds of single steps"),
        (Again(step=0, times=2, seed=MOST_SEED), "seeds of single steps"),
    ],
)
def test_what_cannot_be_asked_is_refused(again: Again, said: str) -> None:
    async def source() -> RunTrace:
        return (await run(*workers_of(), workflow=CHAIN))[0]

    with pytest.raises(BadInput, match=said):
        repeat_requests(asyncio.run(source()), again, AGENTS, door="cli")


def test_the_last_seeds_that_there_are_can_be_asked_for() -> None:
    source, _ = asyncio.run(run(*workers_of(), workflow=CHAIN))
    found = repeat_requests(source, Again(step=0, times=2, seed=MOST_SEED - 1), AGENTS, door="cli")
    assert [request.overrides.seed_at((0,)) for request in found] == [MOST_SEED - 1, MOST_SEED]


def test_a_run_without_a_plan_has_no_step_to_ask_again() -> None:
    with pytest.raises(BadInput, match="run r has no workflow, so no step 1"):
        variants(fold([created("r")]), Again(step=1), AGENTS)


def test_runs_are_tallied_in_the_order_in_which_they_were_asked_for() -> None:
    source, traces = made(Again(step=0, times=3, seed=5), *workers_of())
    assert tally(source, traces[::-1]) == tally(source, traces)


def test_where_the_run_that_they_were_made_from_has_no_such_step_no_answer_is_as_before() -> None:
    _, traces = made(Again(step=0, times=2), *workers_of())
    (each,) = tally(fold([created("r")]), traces).tallies
    assert [group.as_before for group in each.groups] == [False]


# Several plans for one task: how they are asked for, and how equal and faulty ones are shown.


ONE = Workflow(steps=(Step(instruction="Solve {question}", agent="reasoner"),))
TWO = Workflow(steps=(*ONE.steps, Step(instruction="Check {question}", agent="verifier", access_list=(0,))))
FAULT = Fault(code="unknown_agent", message="Step 0: the pool has no agent 9.", step=0, field="agent")


def written(requests: tuple[RunRequest, ...], *plans: Workflow | None) -> list[RunTrace]:
    """The runs of ``requests`` that ended with these plans; None: a faulty one."""
    traces = []
    for request, plan in zip(requests, plans, strict=True):
        trace = begin(_created(request))
        told = {"run_id": request.run_id, "at_ms": 1.0, "raw": "text", "duration_ms": 1.0}
        if plan is None:
            apply(trace, ev.PlanRejected(**told, attempt=1, faults=(FAULT,), will_retry=False))
            apply(trace, ev.RunFailed(run_id=request.run_id, at_ms=2, error_code="PlanRejected", error="no plan"))
        else:
            apply(trace, ev.PlanCompleted(**told, source="conductor", workflow=plan, topology="chain"))
        traces.append(trace)
    return traces


def _created(request: RunRequest) -> ev.Event:
    return created(request.run_id).model_copy(update={"request": request})


@given(st.integers(LEAST_PLANS, MOST_PLANS))
def test_each_plan_has_its_own_seed_and_all_have_one_mark(count: int) -> None:
    requests = plans_requested(RunRequest(task="a\ntask " * 30), count)
    assert len({request.seed for request in requests}) == len({request.run_id for request in requests}) == count
    batches = [request.batch for request in requests if request.batch is not None]
    assert len(batches) == count
    assert {(batch.id, batch.size, batch.name) for batch in batches} == {(batches[0].id, count, batches[0].name)}
    assert "\n" not in batches[0].name
    assert [batch.row for batch in batches] == [str(number) for number in range(count)]
    assert all(0 <= request.seed < 2**31 for request in requests), "short enough to be read and typed"
    assert all(request.plan_only and request.purpose == PLANS_PURPOSE for request in requests)


def test_a_given_seed_gives_the_same_seeds_again() -> None:
    assert [request.seed for request in plans_requested(RunRequest(task="t"), 3, seed=7)] == [7, 8, 9]
    at_the_end = [request.seed for request in plans_requested(RunRequest(task="t"), 2, seed=2**63 - 1)]
    assert at_the_end == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("count", [LEAST_PLANS - 1, MOST_PLANS + 1])
def test_too_few_and_too_many_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"not {count}"):
        plans_requested(RunRequest(task="t"), count)


def test_equal_plans_are_one_and_a_faulty_one_says_its_fault() -> None:
    requests = plans_requested(RunRequest(task="t"), 4, seed=1)
    found = choices(list(reversed(written(requests, ONE, TWO, None, ONE))))
    assert [choice.numbers for choice in found] == [(0, 3), (1,), (2,)]
    assert found[0].run_ids == (requests[0].run_id, requests[3].run_id)
    assert [choice.critical_path for choice in found] == [1, 2, 0]
    assert found[1].agents == ("reasoner", "verifier")
    assert (found[2].faults, found[2].error, found[0].error) == ((FAULT,), "no plan", None)
    assert found[2].cost is None
    assert not repeats.all_equal(found)


def test_plans_that_are_still_being_written_are_not_taken_for_equal() -> None:
    requests = plans_requested(RunRequest(task="t"), 2)
    found = choices([begin(_created(request)) for request in requests])
    assert [choice.numbers for choice in found] == [(0,), (1,)]


def test_all_equal_plans_of_a_greedy_conductor_say_what_to_do() -> None:
    def said(temperature: float | None) -> tuple[list[PlanChoice], str]:
        traces = written(plans_requested(RunRequest(task="t"), 3, temperature=temperature), ONE, ONE, ONE)
        return choices(traces), repeats.how_to_vary(traces[0])

    for temperature in (None, 0.0):
        found, words = said(temperature)
        assert repeats.all_equal(found)
        assert "Give a temperature" in words
    assert "higher temperature" in said(0.7)[1]


def test_only_runs_with_the_mark_are_plans_to_choose_from() -> None:
    [first, *_] = plans_requested(RunRequest(task="t"), 2)
    assert first.batch is not None
    assert repeats.batch_of_plans(begin(_created(first))) == first.batch.id
    for other in ({"purpose": ""}, {"batch": None}):
        assert repeats.batch_of_plans(begin(_created(first.model_copy(update=other)))) is None

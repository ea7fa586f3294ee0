"""Several plans for one task: how they are asked for, and how equal and faulty ones are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.engine import repeats
from conductor_core.engine.repeats import PLANS_PURPOSE, PlanChoice, choices, plans_requested
from conductor_core.run import events as ev
from conductor_core.run.request import LEAST_PLANS, MOST_PLANS, RunRequest
from conductor_core.run.trace import RunTrace, apply, begin
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.support.run_events import created

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

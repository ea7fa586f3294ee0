"""The baselines as workflows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation import orchestrators
from conductor_core.lab.evaluation.orchestrators import GivenTask, budgets
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run.values import Limits
from conductor_core.workflow.validation import validate
from tests.support.evaluations import task
from tests.support.fakes import ScriptedWorker, pool_of, quick_settings


def asked(number: int = 0, seed: int = 0, excluded: tuple[str, ...] = ()) -> GivenTask:
    pool = pool_of(*(ScriptedWorker(name) for name in ("alpha", "beta", "gamma", "delta")))
    return GivenTask(task(number), pool, Limits(), seed, excluded)


def test_five_rounds_over_its_own_answers() -> None:
    workflow = orchestrators.reflection("alpha")
    assert [step.agent for step in workflow.steps] == ["alpha"] * 5
    assert [workflow.reads(index) for index in range(5)] == [(), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)]


def test_attempts_see_nothing_of_each_other_and_differ() -> None:
    workflow = orchestrators.consensus("alpha")
    assert [workflow.reads(index) for index in range(6)] == [(), (), (), (), (), (0, 1, 2, 3, 4)]
    assert len({step.instruction for step in workflow.steps[:5]}) == 5
    assert {step.agent for step in workflow.steps} == {"alpha"}


def test_a_mixture_of_seven_takes_eight_calls() -> None:
    specs = rehearsal_specs()
    workflow = orchestrators.mixture(specs)
    assert [step.agent for step in workflow.steps] == [*(spec.name for spec in specs), "verifier"]
    assert workflow.reads(7) == (0, 1, 2, 3, 4, 5, 6)
    assert orchestrators.mixture(specs, "writer").steps[-1].agent == "writer"


def test_without_a_checker_somebody_aggregates() -> None:
    specs = [WorkerSpec(name=name, provider="openai", model=name) for name in ("one", "two")]
    assert orchestrators.mixture(specs).steps[-1].agent in ("one", "two")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_random_workflows_are_valid_and_repeat_by_seed_and_task(number: int, seed: int) -> None:
    asking = asked(number, seed, excluded=("beta",))
    workflow = orchestrators.drawn(asking)
    assert validate(workflow, asking.agents, max_steps=5, allow_stop=False).faults == ()
    assert workflow == orchestrators.drawn(asking)


def test_random_workflows_are_drawn_evenly() -> None:
    drawn = [orchestrators.drawn(asked(number)) for number in range(1000)]
    lengths = [sum(len(each.steps) == length for each in drawn) for length in range(1, 6)]
    assert all(150 < count < 250 for count in lengths)
    first = [each.steps[0].agent for each in drawn]
    assert all(200 < first.count(name) < 300 for name in ("alpha", "beta", "gamma", "delta"))
    reads = [bool(each.reads(1)) for each in drawn if len(each.steps) > 1]
    assert 0.45 < sum(reads) / len(reads) < 0.55


def test_five_times_the_budget_of_each_worker() -> None:
    pool = pool_of(
        ScriptedWorker("named", params={"max_tokens": 100, "temperature": 0.2}),
        ScriptedWorker("newer", params={"max_completion_tokens": 30}),
        ScriptedWorker("claude", provider="anthropic"),
    )
    larger = pool.with_params(orchestrators.with_budget(pool.specs, 5), quick_settings())
    assert {spec.name: dict(spec.params) for spec in larger.specs} == {
        "named": {"max_tokens": 500, "temperature": 0.2},
        "newer": {"max_completion_tokens": 150},
        "claude": {"max_tokens": 5 * 4096},
    }


def test_five_times_what_a_local_worker_writes_by_default() -> None:
    here = WorkerSpec(name="here", provider="local", model="m")
    assert orchestrators.with_budget([here], 5) == {"here": {"max_tokens": 5 * 1024}}


def test_a_budget_that_is_not_known_is_asked_for() -> None:
    """What such a server gives is not known, nor by which name its model takes a budget: each call would be refused."""
    pool = pool_of(ScriptedWorker("silent"), ScriptedWorker("named", params={"max_tokens": 100}))
    assert budgets(["single:silent", "budget:named"], pool.specs) == {"named": {"max_tokens": 500}}
    with pytest.raises(BadInput, match=r"budget:silent needs to know .* max_completion_tokens in its params"):
        budgets(["budget:silent"], pool.specs)

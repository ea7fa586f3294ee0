"""Templates: whatever the pool, a plan without faults or warnings that has the shape its name claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.roles import cast_of
from conductor_core.rehearsal.reading import read_role
from conductor_core.rehearsal.skills import rehearsal_specs
from conductor_core.workflow.model import QUESTION
from conductor_core.workflow.topology import TEMPLATES, Cast, Template, topology
from conductor_core.workflow.validation import validate

TASK = "How long is a piece of string?"


def spec(name: str, description: str) -> WorkerSpec:
    return WorkerSpec(name=name, provider="openai", model="m", description=description, base_url="http://127.0.0.1/v1")


words = st.sampled_from(
    ["plans", "checks", "computes", "codes", "knows facts", "reasons", "writes", "", "weak at maths"]
)
pools = st.lists(words, min_size=1, max_size=9).map(
    lambda described: [spec(f"worker {number}", said) for number, said in enumerate(described)]
)
by_name = pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))


@by_name
@given(pool=pools, more=st.integers(0, 12))
def test_a_template_is_a_plan_of_its_shape_for_any_pool(template: Template, pool: list[WorkerSpec], more: int) -> None:
    branches = template.least + (more if template.per_branch else 0)
    workflow = template.workflow(cast_of(pool), branches)
    names = [worker.name for worker in pool]
    checked = validate(workflow, names, max_steps=template.steps(branches), task=TASK)
    assert (checked.faults, checked.warnings) == ((), ())
    assert checked.workflow == workflow
    assert topology(workflow) == template.topology
    assert len(workflow.steps) == template.steps(branches)


@given(pools)
def test_every_role_ranks_every_worker_once(pool: list[WorkerSpec]) -> None:
    cast, names = cast_of(pool), sorted(worker.name for worker in pool)
    assert [sorted(ranked) for ranked in (cast.plan, cast.solve, cast.check)] == [names] * 3


@by_name
@given(max_steps=st.integers(1, 32))
def test_as_many_branches_as_fit_and_not_one_more(template: Template, max_steps: int) -> None:
    assert template.fits(max_steps) == (template.steps(template.least) <= max_steps)
    if template.per_branch and template.fits(max_steps):
        most = template.most(max_steps)
        assert template.steps(most) <= max_steps < template.steps(most + 1)


def test_the_rehearsal_pool_is_cast_by_what_its_workers_say_of_themselves() -> None:
    cast = cast_of(rehearsal_specs())
    assert (cast.plan[0], cast.check[0]) == ("planner", "verifier")
    assert cast.solve[:4] == ("reasoner", "calculator", "scientist", "coder")


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("One shot", ["solve"]),
        ("Planner, executor, verifier", ["plan", "solve", "verify"]),
        ("Best of N", ["solve", "solve", "solve", "aggregate"]),
        ("Fan-out", ["solve", "solve", "solve", "aggregate"]),
    ],
)
def test_the_simulated_workers_understand_what_a_template_asks_of_them(name: str, roles: list[str]) -> None:
    template = next(each for each in TEMPLATES if each.name == name)
    workflow = template.workflow(cast_of(rehearsal_specs()))
    assert [read_role(step.instruction.replace(QUESTION, "")) for step in workflow.steps] == roles


def test_nobody_checks_their_own_work_where_there_is_another() -> None:
    cast = Cast(plan=("a", "b"), solve=("a", "b"), check=("a", "b"))
    for template in TEMPLATES:
        if template.name not in ("Chain", "Planner, executor, verifier", "Best of N"):
            continue  # there, both workers have answered before
        *_, solved, checked = template.workflow(cast).steps
        assert solved.agent != checked.agent, template.name


def test_nobody_carries_out_their_own_plan_where_there_is_another() -> None:
    planned = next(each for each in TEMPLATES if each.name == "Planner, executor, verifier")
    ranked = ("a", "b", "c")
    steps = planned.workflow(Cast(plan=ranked, solve=ranked, check=ranked)).steps
    assert [step.agent for step in steps] == ["a", "b", "a"]


def test_too_few_branches_are_refused_by_name() -> None:
    debate = next(each for each in TEMPLATES if each.name == "Debate")
    with pytest.raises(ValueError, match="Debate needs at least 2"):
        debate.workflow(cast_of(rehearsal_specs()), 1)


def test_an_empty_pool_cannot_be_cast() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        cast_of([])

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.roles import cast_of
from conductor_core.rehearsal.skills import rehearsal_specs
from conductor_core.rehearsal.worker import read_role
from conductor_core.workflow.model import QUESTION, AccessList, Step, Workflow
from conductor_core.workflow.topology import (
    TEMPLATES,
    Cast,
    Template,
    critical_path,
    descendants,
    layers,
    topology,
)
from conductor_core.workflow.validation import validate


def plan(*access_lists: AccessList, agents: str = "", same: bool = False) -> Workflow:
    """A workflow of these access lists; agents by letter, else all different."""
    return Workflow(
        steps=tuple(
            Step(
                instruction="solve" if same else f"instruction {index}",
                agent=agents[index] if agents else f"agent {index}",
                access_list=access_list,
            )
            for index, access_list in enumerate(access_lists)
        )
    )


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    access_lists: list[AccessList] = []
    for index in range(draw(st.integers(0, 8))):
        reads = draw(st.lists(st.integers(0, index - 1), max_size=4)) if index else []
        access_lists.append("all" if draw(st.booleans()) else tuple(reads))
    return plan(*access_lists)


@pytest.mark.parametrize(
    ("workflow", "name"),
    [
        (plan(), "stop"),
        (plan(()), "one shot"),
        (plan("all"), "one shot"),
        (plan((), (0,)), "chain"),
        (plan((), (0,), (1,)), "chain"),
        (plan((), "all", "all"), "chain"),
        (plan((), (0,), (0, 1), (2,)), "chain"),
        (plan((), (), (0, 1)), "fan-out"),
        (plan((), (), (), "all"), "fan-out"),
        (plan((), (0,), (0,), (1, 2)), "fan-out"),
        (plan((), (0,), (0,), "all"), "fan-out"),
        (plan((), (), (0, 1), same=True), "best-of-n"),
        (plan((), (), (), "all", same=True), "best-of-n"),
        (plan((), (), (0, 1), (0, 1), agents="abab"), "debate"),
        (plan((), (), "all", "all", agents="abab"), "debate"),
        (plan((), (), (0, 1), (0, 1), "all", agents="ababc"), "debate"),
        (plan((), (), (1,), (0,), (2, 3), agents="ababc"), "debate"),
        (plan((), (), (1,), (0,), (3,), (2,), (4, 5), agents="abababc"), "debate"),
        (plan((), (), (0, 1), (0, 1), (2, 3), (2, 3), (4, 5), agents="abababc"), "debate"),
        (plan((), (), (1,), (2,), (2, 3), agents="ababc"), "debate"),
        (plan((), (), (1,), (0,), (2, 3), agents="abbac"), "tree"),
        (plan((), (), (1,), (0,), (2, 3), agents="ababa"), "debate"),
        (plan((), (), (1,), (0,), (2, 3), agents="aaaab"), "debate"),
        (plan((), (), (), (1, 2), (0, 2), (0, 1), (3, 4, 5), agents="abcabcd"), "debate"),
        (plan((), (), (), (0, 1, 2), (0, 1, 2), (0, 1, 2), (3, 4, 5), agents="abbabbb"), "debate"),
        (plan((), (0,), (0,), (2,), (1,), (3, 4), agents="pababj"), "debate"),
        (plan((), (), (), (0, 1, 2), "all", agents="abcba"), "debate"),
        (plan((), (), (0, 1), (), (2, 3)), "tree"),
        (plan((), (), (0, 1), (2,)), "tree"),
        (plan((), (), "all", "all"), "tree"),
        (plan((), (0,), (), (1, 2)), "tree"),
        (plan((), (), (0,), (1,), (2, 3)), "tree"),
        (plan((), ()), "mixed"),
        (plan((), (0,), (0,)), "mixed"),
        (plan((), (), (0,)), "mixed"),
        (plan((), (), (0, 1), (0,), (2, 3)), "mixed"),
    ],
)
def test_shapes(workflow: Workflow, name: str) -> None:
    assert topology(workflow) == name


@pytest.mark.parametrize(
    ("workflow", "name"),
    [
        pytest.param(plan((), (), (0,), (1,), (2, 3), agents="ababc"), "tree", id="each reads its own output only"),
        pytest.param(plan((), (), (1,), (2, 0), agents="abac"), "tree", id="only one of them replies"),
        pytest.param(plan((), (), (1,), (0,), (2, 3), agents="abcde"), "tree", id="others reply for them"),
        pytest.param(plan((), (), (0, 1), (0, 1), (2, 3), agents="abcde"), "mixed", id="reviewers of both"),
        pytest.param(plan((), (), (1,), (0,), (2,), agents="ababc"), "mixed", id="the judge hears one side"),
        pytest.param(plan((), (), (1,), (1,), (2, 3), agents="ababc"), "mixed", id="one side is never answered"),
        pytest.param(plan((), (), "all", "all", "all", agents="abaca"), "tree", id="one comes back twice, one never"),
        pytest.param(plan((), (), (), (1,), (0,), (2,), (3, 4, 5), agents="abcabcd"), "tree", id="a third by itself"),
        pytest.param(plan((), (), (1,), (0,), (2, 3), (4,), agents="ababcd"), "tree", id="the judge is judged"),
        pytest.param(
            plan((), (), (), (0, 1, 2), "all", agents="aaaaa"), "tree", id="one agent's attempts, then two checks"
        ),
        pytest.param(plan((), (0,), (), (1, 2), agents="aaaa"), "tree", id="one agent that goes on alone"),
        pytest.param(plan((), (0,), (1,), (2,), (2, 3), agents="ababc"), "chain", id="one after the other"),
        pytest.param(plan((), (), (0,), (0, 2), agents="abbb"), "mixed", id="one side talks on"),
        pytest.param(plan((), (), (0, 1), (0, 1), (2, 3), (2, 3), agents="ababcd"), "mixed", id="two judges"),
        pytest.param(
            plan((), (), (), (1,), (2,), (0, 1, 2), agents="aaaaaa"), "mixed", id="copies that hear one of two others"
        ),
        pytest.param(plan((), (0,), (), (1,), agents="aaaa"), "mixed", id="copies of which one falls silent"),
    ],
)
def test_what_only_looks_like_a_debate_is_called_something_else(workflow: Workflow, name: str) -> None:
    assert topology(workflow) == name


def test_the_same_instruction_is_recognised_across_white_space_and_case() -> None:
    steps = [("Solve  it.", ()), ("solve\nit.", ()), ("Choose.", (0, 1))]
    workflow = Workflow(steps=tuple(Step(instruction=text, agent="a", access_list=reads) for text, reads in steps))
    assert topology(workflow) == "best-of-n"


def test_a_selector_that_misses_an_attempt_is_no_best_of_n() -> None:
    assert topology(plan((), (), (), (0, 2), same=True)) == "mixed"


def test_layers_of_a_plan_whose_edges_skip_layers() -> None:
    assert layers(plan((), (), (0,), (0, 2), "all").all_reads) == ((0, 1), (2,), (3,), (4,))
    assert layers(()) == ()
    # A removed step is drawn after all that are left, also after those that read it.
    assert layers(((2,), (0, 2), ())) == ((2,), (0,), (1,))


def test_references_that_are_no_earlier_steps_are_no_edges() -> None:
    workflow = plan((0,), (5, -1, 1, 0), (1,))
    assert workflow.all_reads == ((), (0,), (1,))
    assert topology(workflow) == "chain"


def test_descendants() -> None:
    diamond = plan((), (0,), (0,), (1, 2), ())
    assert descendants(diamond, 0) == {1, 2, 3}
    assert descendants(diamond, 4) == frozenset()
    with pytest.raises(IndexError, match="unknown step 5"):
        descendants(diamond, 5)
    with pytest.raises(IndexError, match="unknown step -1"):
        descendants(diamond, -1)


def test_critical_path_of_a_diamond_follows_the_slower_branch() -> None:
    diamond = plan((), (0,), (0,), (1, 2))
    assert critical_path(diamond, [10, 50, 20, 10]) == (0, 1, 3)
    assert critical_path(diamond, [10, 20, 50, 10]) == (0, 2, 3)


def test_critical_path_may_end_before_the_answer() -> None:
    assert critical_path(plan((), ()), [30.0, 5.0]) == (0,)
    assert critical_path(plan(), []) == ()


def test_of_equally_slow_ways_the_critical_path_takes_the_one_of_lower_steps() -> None:
    diamond = plan((), (0,), (0,), (1, 2))
    assert critical_path(diamond, [10, 30, 30, 10]) == (0, 1, 3)
    assert critical_path(plan((), (0,), (0,), (2, 1)), [10, 30, 30, 10]) == (0, 1, 3)
    # Of several that end last, the first is the end of the way.
    assert critical_path(plan((), (), ()), [5, 9, 9]) == (1,)
    # A step that takes no time still stands on the way that it lengthens by nothing.
    assert critical_path(plan((), (0,), (1,)), [10, 0, 10]) == (0, 1, 2)


def test_critical_path_wants_one_sound_duration_a_step() -> None:
    with pytest.raises(ValueError, match="2 steps need as many durations, not 1"):
        critical_path(plan((), ()), [1.0])
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite and not negative"):
            critical_path(plan(()), [bad])


@given(workflows())
def test_layers_hold_every_step_once_and_lead_forwards(workflow: Workflow) -> None:
    level = {index: depth for depth, layer in enumerate(layers(workflow.all_reads)) for index in layer}
    assert sorted(level) == list(range(len(workflow.steps)))
    for index in level:
        reads = workflow.reads(index)
        assert level[index] == 1 + max((level[earlier] for earlier in reads), default=-1)


@given(st.data(), workflows())
def test_the_critical_path_is_as_long_as_the_longest_path(data: st.DataObject, workflow: Workflow) -> None:
    count = len(workflow.steps)
    durations_ms = data.draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count))
    path = critical_path(workflow, durations_ms)
    graph = nx.DiGraph((earlier, later) for later, reads in enumerate(workflow.all_reads) for earlier in reads)
    assert all(graph.has_edge(*edge) for edge in itertools.pairwise(path))
    for earlier, later in graph.edges:
        graph.edges[earlier, later]["weight"] = durations_ms[later]
    graph.add_weighted_edges_from(("start", index, durations_ms[index]) for index in range(count))
    longest = nx.dag_longest_path_length(graph) if count else 0
    assert sum(durations_ms[index] for index in path) == longest


@given(workflows())
def test_every_workflow_has_a_shape(workflow: Workflow) -> None:
    assert topology(workflow) in {"stop", "one shot", "chain", "fan-out", "tree", "debate", "best-of-n", "mixed"}


# Templates: whatever the pool, a plan without faults or warnings that has the shape its name claims.


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

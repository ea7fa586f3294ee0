from pathlib import Path
from random import Random

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.kind_table import Call, KindTable, fit, moves, workflow_of
from conductor_core.lab.evaluation.routers.workflows import TrainingRow
from conductor_core.workflow.model import Workflow
from tests.support.routing import AGENTS, BEST, question

RNG = Random(7)
KINDS = [kind for kind in BEST for _ in range(30)]
ROWS = [TrainingRow(question(kind, RNG), kind=kind) for kind in KINDS]


def worth(index: int, workflow: Workflow) -> tuple[float, int]:
    """A sum is right when its best worker does it; a capital needs its best worker to check another's answer."""
    kind, last = KINDS[index], workflow.steps[-1]
    if kind == "sum":
        right = last.agent == BEST["sum"]
    else:
        reads = [workflow.steps[earlier].agent for earlier in workflow.reads(len(workflow.steps) - 1)]
        right = last.agent == BEST["capital"] and "ann" in reads
        return (1.0 if right else 0.6 if last.agent == BEST["capital"] else 0.0), 100 * len(workflow.steps)
    return float(right), 100 * len(workflow.steps)


@pytest.fixture(scope="module")
def table() -> KindTable:
    return fit(ROWS, AGENTS, reward=worth, seed=0)


def test_each_kind_has_its_best_plan_and_no_step_more(table: KindTable) -> None:
    assert [call.agent for call in table.plans["sum"]] == ["bob"]
    assert [call.agent for call in table.plans["capital"]] == ["ann", "cid"]
    assert table.plans["capital"][1].reads


def test_an_unseen_question_goes_by_its_words(table: KindTable) -> None:
    rng = Random(8)
    for kind in BEST:
        unseen = [question(kind, rng) for _ in range(20)]
        assert [table.kind_of(each) for each in unseen] == [kind] * 20
        assert table.route(unseen[0], AGENTS) == workflow_of(table.plans[kind])


def test_without_a_worker_of_its_plan_the_best_present_one_answers_alone(table: KindTable) -> None:
    capital = question("capital", Random(9))
    assert [step.agent for step in table.route(capital, ("cid", "dan")).steps] == ["cid"]
    assert len(table.route(capital, ("bob", "dan")).steps) == 1
    with pytest.raises(BadInput, match="knows none of the available workers"):
        table.route(capital, ("eve",))


def test_saved_and_loaded_it_is_the_same(table: KindTable, tmp_path: Path) -> None:
    table.save(tmp_path)
    again = KindTable.load(tmp_path)
    rng = Random(10)
    for kind in [*BEST] * 10:
        asked = question(kind, rng)
        assert again.route(asked, AGENTS) == table.route(asked, AGENTS)
    (tmp_path / "router.json").write_text('{"kind": "kind_table"}')
    with pytest.raises(BadInput, match="no kind_table router that is whole"):
        KindTable.load(tmp_path)


def test_tasks_without_kinds_are_refused() -> None:
    with pytest.raises(BadInput, match="at least two kinds"):
        fit([TrainingRow("What is 2 + 2?")] * 3, AGENTS, reward=worth, seed=0)
    with pytest.raises(BadInput, match="at least two kinds"):
        fit([TrainingRow("What is 2 + 2?", kind="sum")] * 3, AGENTS, reward=worth, seed=0)


def test_moves_are_valid_workflows_within_the_step_limit() -> None:
    plan = (Call("solver", "ann", False), Call("inspector", "bob", True))
    seen = set(moves(plan, AGENTS, 3))
    assert plan not in seen
    assert (Call("inspector", "bob", False),) in seen, "a step is taken away"
    assert (*plan, Call("writer", "cid", True)) in seen, "a step is added at the end"
    assert (Call("planner", "dan", False), Call("solver", "ann", True), plan[1]) in seen, "or before"
    for each in seen:
        workflow = workflow_of(each)
        assert 1 <= len(workflow.steps) <= 3
        assert workflow.reads(0) == ()
    assert all(len(each) <= 2 for each in moves(plan, AGENTS, 2))

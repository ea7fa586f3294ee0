"""What a plan is worth, by hand."""

from collections.abc import Sequence

import pytest

from conductor_core.chat.messages import PlanRequest
from conductor_core.lab.training.tiny.situations import Scored, Situation, Worth, exact_worth, read_plan, score
from conductor_core.rehearsal import generate, rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow

TASK = generate("algebra", "hard", 1)


def situation(*, present: Sequence[int] = range(7), most: int = 5, recursion: bool = False) -> Situation:
    agents = tuple(rehearsal_specs()[role] for role in present)
    return Situation(PlanRequest(task=TASK.question, agents=agents, max_steps=most, allow_recursion=recursion), TASK)


def plan(*agents: int) -> str:
    access = ", ".join(str(list(range(index))) for index in range(len(agents)))
    words = ", ".join('"Solve this step by step: {question}"' for _ in agents)
    return f"A thought.\nmodel_id = {list(agents)}\nsubtasks = [{words}]\naccess_list = [{access}]"


def judged(completion: str, asked: Situation, step_cost: float = 0.0) -> Scored:
    return score(asked, completion, step_cost, lambda _, workflow: Worth(0.6, len(workflow.steps) - 1))


@pytest.mark.parametrize(
    "completion",
    ["", "I would ask model 1.", "model_id = [1]\nsubtasks = []\naccess_list = [[]]", plan(1, 2, 3), plan(0), plan(7)],
)
def test_what_cannot_be_used_is_worth_nothing(completion: str) -> None:
    """No plan, unequal lists, too many steps, an empty role, the Conductor itself where it is not offered."""
    scored = judged(completion, situation(present=(1, 2, 3), most=2))
    assert scored == Scored(0.0)


def test_the_exact_chance_is_half_of_the_reward_and_steps_cost() -> None:
    assert judged(plan(1), situation()).reward == pytest.approx(0.8)
    assert judged(plan(1), situation(), 0.02).reward == pytest.approx(0.8)
    assert judged(plan(1, 2, 3), situation(), 0.02).reward == pytest.approx(0.76)


def test_ordinals_are_roles_and_keep_their_number_when_others_are_empty() -> None:
    asked = situation(present=(3, 5, 6))
    workflow = read_plan(asked, plan(3, 5))
    assert workflow is not None
    assert [step.agent for step in workflow.steps] == ["coder", "verifier"]
    recursive = read_plan(situation(recursion=True), plan(1, 7))
    assert recursive is not None
    assert recursive.steps[1].agent == CONDUCTOR_AGENT


def test_the_worth_of_a_plan_is_the_rehearsal_worlds_exact_chance() -> None:
    workflow = read_plan(situation(), plan(0, 1, 5))
    assert workflow is not None
    assert exact_worth(situation(), workflow) == Worth(success_chance(TASK, workflow), 2)


def test_a_plan_without_steps_counts_only_in_an_inner_round() -> None:
    assert judged("model_id = []\nsubtasks = []\naccess_list = []", situation()).workflow is None
    assert isinstance(read_plan(situation(), plan(1)), Workflow)

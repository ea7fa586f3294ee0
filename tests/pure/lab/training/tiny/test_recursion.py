"""Recursive calls: what their prompts hold, and what stopping and planning again are worth, by exact figures."""

import random

import pytest

from conductor_core.chat.messages import PlanRequest
from conductor_core.lab.training.config import Optimiser, PoolDraw, RecursionConfig
from conductor_core.lab.training.tiny.recursion import (
    inner_situation,
    last_response,
    recursion_situations,
    recursive,
    worth,
)
from conductor_core.lab.training.tiny.situations import Inner, Situation
from conductor_core.rehearsal import generate, grade, rehearsal_specs
from conductor_core.rehearsal.exact import endings, second_round, success_chance
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.trainings import toy_model, toy_tokenizer

TASK = generate("algebra", "hard", 4)
OUTER = Situation(
    PlanRequest(task=TASK.question, agents=rehearsal_specs(), max_steps=4, allow_recursion=True), TASK, step_cost=0.02
)


def step(agent: str, *reads: int, words: str = "Solve this step by step: {question}") -> Step:
    return Step(instruction=words, agent=agent, access_list=reads)


ALONE = Workflow(steps=(step("reasoner"),))
FIRST = Workflow(steps=(step("reasoner"), step(CONDUCTOR_AGENT, 0)))
AGAIN = Workflow(
    steps=(
        step("planner", words="Plan how to solve this, do not solve it: {question}"),
        step("reasoner", 0),
        step("verifier", 1, words="Check the solution above and correct it: {question}"),
    )
)
STOP = Workflow(steps=())


def inner(manner: str) -> Situation:
    return Situation(OUTER.request, TASK, inner=Inner(FIRST, manner))  # type: ignore[arg-type]


def test_stopping_is_worth_the_chance_that_such_a_response_is_right_and_costs_nothing() -> None:
    by_manner: dict[str, list[float]] = {}
    for ending, chance in endings(TASK, FIRST).items():
        by_manner.setdefault(ending.manner, [0.0, 0.0])[0] += chance
        by_manner[ending.manner][1] += chance * bool(ending.right)
    assert {"solution", "doubted solution"} <= set(by_manner)
    for manner, (chance, right) in by_manner.items():
        assert worth(inner(manner), STOP) == pytest.approx((right / chance, 0))
    assert worth(inner("solution"), STOP).chance > worth(inner("doubted solution"), STOP).chance + 0.1


def test_planning_again_is_worth_its_own_chance_and_all_its_steps() -> None:
    found = worth(inner("doubted solution"), AGAIN)
    assert found.steps == 3
    rounds = second_round(TASK, FIRST, AGAIN)
    doubted = [(chance, after) for ending, (chance, after) in rounds.items() if ending.manner == "doubted solution"]
    expected = sum(chance * after for chance, after in doubted) / sum(chance for chance, _ in doubted)
    assert found.chance == pytest.approx(expected)


def test_an_outer_recursion_is_worth_the_better_of_both_for_each_manner() -> None:
    asked = Situation(OUTER.request, TASK, again=AGAIN, step_cost=0.02)
    found = worth(asked, FIRST)
    chance, steps = 0.0, 1.0
    for manner in {ending.manner for ending in endings(TASK, FIRST)}:
        weight = sum(share for ending, share in endings(TASK, FIRST).items() if ending.manner == manner)
        stop, again = worth(inner(manner), STOP), worth(inner(manner), AGAIN)
        if 0.5 * again.chance - 0.02 * again.steps > 0.5 * stop.chance:
            chance, steps = chance + weight * again.chance, steps + weight * 3
        else:
            chance += weight * stop.chance
    assert found == pytest.approx((chance, steps))
    assert found.chance >= success_chance(TASK, ALONE)


def test_an_outer_plan_without_recursion_is_worth_what_it_always_is() -> None:
    asked = Situation(OUTER.request, TASK, again=AGAIN, step_cost=0.02)
    assert worth(asked, AGAIN) == pytest.approx((success_chance(TASK, AGAIN), 2))
    assert worth(OUTER, FIRST) == pytest.approx((success_chance(TASK, ALONE), 1))


def test_the_last_response_is_what_the_worker_writes_and_its_manner_how() -> None:
    seen: dict[str, list[bool]] = {}
    for seed in range(60):
        text, manner = last_response(TASK, FIRST, seed)
        seen.setdefault(manner, []).append(grade(TASK, text))
    assert {"solution", "doubted solution"} <= set(seen)
    expected = {manner: worth(inner(manner), STOP).chance for manner in seen}
    for how, right in seen.items():
        if len(right) >= 15:
            assert sum(right) / len(right) == pytest.approx(expected[how], abs=0.25)


def test_any_plan_becomes_one_that_ends_in_the_conductor_within_the_limit() -> None:
    rng = random.Random(0)
    assert recursive(FIRST, OUTER, rng) == FIRST
    for plan in (
        ALONE,
        AGAIN,
        Workflow(steps=(*AGAIN.steps, step("writer", 2))),
        Workflow(steps=(step(CONDUCTOR_AGENT),)),
    ):
        made = recursive(plan, OUTER, rng)
        assert len(made.steps) <= 4
        assert [each.agent for each in made.steps].count(CONDUCTOR_AGENT) == 1
        assert made.steps[-1].agent == CONDUCTOR_AGENT
        assert made.reads(len(made.steps) - 1) == (len(made.steps) - 2,)


def test_an_inner_prompt_holds_the_parents_plan_and_the_last_response() -> None:
    made = inner_situation(OUTER, FIRST, random.Random(1))
    assert made.request.parent is not None
    assert made.request.parent.plan.startswith("model_id = [1, 7]")
    assert made.request.parent.last_response
    assert not made.request.allow_recursion
    assert "<|parent|>" in made.prompt


def test_the_stages_prompts_come_again_by_the_seed() -> None:
    config = RecursionConfig(
        iterations=3,
        prompts=2,
        group=2,
        max_completion_tokens=16,
        inner_share=0.5,
        pool=PoolDraw(whole_share=0.5),
        optimiser=Optimiser(learning_rate=1e-3),
    )
    drawn = [recursion_situations(config, "7/recursion", toy_model(), toy_tokenizer()) for _ in range(2)]
    assert len(drawn[0]) == 6
    assert [each.prompt for each in drawn[0]] == [each.prompt for each in drawn[1]]

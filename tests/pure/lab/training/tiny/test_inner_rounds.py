"""Inner rounds shown by example: the way on that is worth most, and a policy that learns from them."""

import random
from collections import Counter

from conductor_core.conductors.roles import ROLES
from conductor_core.lab.training.config import PoolDraw
from conductor_core.lab.training.tiny.grpo import supervised_batches
from conductor_core.lab.training.tiny.recursion import draw_inner_round, draw_outer_rounds
from tests.support.trainings import recursion_config, toy_tokenizer

POOL = PoolDraw(whole_share=0.5, full_steps_share=0.8)


def test_examples_stop_after_a_good_response_and_plan_again_after_a_doubtful_one() -> None:
    drawn = [draw_inner_round(random.Random(f"a/{number}"), POOL, 0.02) for number in range(80)]
    stopped: dict[bool, list[bool]] = {True: [], False: []}
    for example in drawn:
        parent = example.request.parent
        assert parent is not None
        assert example.plan.steps or example.completion.endswith("model_id = []\nsubtasks = []\naccess_list = []")
        assert len(example.plan.steps) <= example.request.max_steps
        if "**Check, " in parent.last_response:
            stopped["read only" not in parent.last_response].append(not example.plan.steps)
    assert sum(stopped[True]) / len(stopped[True]) > 0.9
    assert sum(stopped[False]) / len(stopped[False]) < 0.8


def test_a_new_plan_says_nothing_in_the_words_of_the_first() -> None:
    for number in range(30):
        example = draw_inner_round(random.Random(f"b/{number}"), POOL, 0.02)
        assert example.request.parent is not None
        for step in example.plan.steps:
            assert step.instruction not in example.request.parent.plan


def test_the_twin_of_an_outer_round_is_offered_no_recursion_and_takes_none() -> None:
    recursed: Counter[str] = Counter()
    for number in range(40):
        one, twin = draw_outer_rounds(random.Random(number), POOL, 0.005)
        assert twin.task == one.task
        assert twin.request == one.request.model_copy(update={"allow_recursion": False})
        assert all(step.ordinal != len(ROLES) for step in twin.plan.steps)
        if one.plan.steps[-1].ordinal == len(ROLES):
            recursed[one.task.difficulty] += 1
        else:
            assert one.plan == twin.plan
    assert set(recursed) == {"hard"}
    assert recursed["hard"] >= 12


def test_an_example_comes_again_by_its_seed() -> None:
    assert draw_inner_round(random.Random(3), POOL, 0.02) == draw_inner_round(random.Random(3), POOL, 0.02)


def test_the_guard_of_the_recursion_stage_holds_inner_rounds() -> None:
    batch = supervised_batches(recursion_config(0, inner=0.5), 1, toy_tokenizer())(0)
    parent = toy_tokenizer().encode("<|parent|>", add_special_tokens=False)[0]
    assert (batch["input_ids"] == parent).any(dim=1).sum() >= 4

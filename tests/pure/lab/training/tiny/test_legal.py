"""Rollouts held to the grammar: whatever the weights, a plan that ends is legal for its own prompt."""

import random
from collections.abc import Sequence

from torch import Tensor

from conductor_core.chat.messages import ParentPlan
from conductor_core.lab.training.config import PoolDraw
from conductor_core.lab.training.tiny.rollout import LegalPlans, Mask, sample, shape_of
from conductor_core.lab.training.tiny.situations import Situation, draw_situation, read_plan
from tests.support.trainings import toy_model, toy_tokenizer

PARENT = ParentPlan(plan="model_id = [0]", last_response="**Answer: 4**")


def situations() -> list[Situation]:
    """Parts of the pool, all step limits, one with recursion, one of an inner round."""
    pool = PoolDraw(whole_share=0.0, least=1, most_steps=3, full_steps_share=0.5)
    drawn = [draw_situation(random.Random(seed), pool, allow_recursion=seed == 2) for seed in range(5)]
    inner = drawn[4].request.model_copy(update={"parent": PARENT})
    return [*drawn[:4], Situation(inner, drawn[4].task)]


def hurried(mask: Mask) -> Mask:
    """``mask``, the lists begun at once, and a liking for what closes a text: random weights would go on for ever."""
    tokenizer = toy_tokenizer()
    closing = [at for at in range(len(tokenizer)) if set(tokenizer.decode([at])) <= set('"],0123 \n')]
    closing += [int(tokenizer.eos_token_id), tokenizer.encode("{question}", add_special_tokens=False)[0]]

    begin = tokenizer.encode("So.\nmodel_id = [", add_special_tokens=False)

    def forbid(logits: Tensor, written: list[list[int]], rows: Sequence[int]) -> None:
        mask(logits, written, rows)
        logits[:, closing] += 8
        for place, row in enumerate(rows):
            if len(written[row]) < len(begin):
                logits[place, begin[len(written[row])]] += 50

    return forbid


def test_every_plan_that_ends_is_legal_for_its_own_prompt() -> None:
    tokenizer, group = toy_tokenizer(), 6
    asked = situations()
    prompts = [tokenizer.encode(each.prompt, add_special_tokens=False) for each in asked]
    legal = LegalPlans(tokenizer, len(tokenizer))
    found = sample(
        toy_model(scale=1.0),
        prompts,
        group,
        max_tokens=160,
        temperature=1.0,
        seed=1,
        bf16=False,
        forbid=hurried(legal.mask(asked, group)),
    )
    ended = 0
    for row, ids in enumerate(found.completion_ids):
        if ids[-1] == tokenizer.eos_token_id:
            ended += 1
            situation = asked[row // group]
            assert read_plan(situation, str(tokenizer.decode(ids, skip_special_tokens=True))) is not None
    assert ended >= group


def test_the_grammar_is_that_of_the_prompt() -> None:
    for situation in situations():
        shape = shape_of(situation)
        names = [name for name in situation.agents if name is not None]
        assert len(shape.choices) == len(names) + situation.request.allow_recursion
        assert shape.max_steps == situation.request.max_steps
        assert shape.may_stop == (situation.request.parent is not None)

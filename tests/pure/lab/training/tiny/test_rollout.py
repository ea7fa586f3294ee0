"""Rollouts: the sampler computes what the model computes, whatever has been dropped on the way."""

from collections import Counter

import pytest
import torch
from transformers import Qwen2ForCausalLM

from conductor_core.lab.training.tiny.rollout import Rollout, sample
from tests.support.trainings import toy_model

PROMPTS = ([5, 6, 7], [9] * 40, [11, 12, 13, 14, 15])
GROUP = 6
MOST = 40


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    """One that ends a completion after ten tokens or so, so that rows are dropped at different times."""
    made = toy_model()
    written = Counter(token for ids in drawn(made).completion_ids for token in ids)
    total = written.total()
    made.config.eos_token_id = min(written, key=lambda token: abs(written[token] / total - 0.08))
    made.generation_config.eos_token_id = made.config.eos_token_id
    return made


def drawn(model: Qwen2ForCausalLM, *, seed: int = 1, group: int = GROUP, temperature: float = 1.0) -> Rollout:
    return sample(model, PROMPTS, group, max_tokens=MOST, temperature=temperature, seed=seed, bf16=False)


def recomputed(model: Qwen2ForCausalLM, prompt: list[int], completion: list[int], temperature: float) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0].float() / temperature
    chosen: torch.Tensor = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(completion)[:, None])
    return chosen[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_the_models_own(model: Qwen2ForCausalLM, temperature: float) -> None:
    found = drawn(model, temperature=temperature)
    lengths = {len(each) for each in found.completion_ids}
    assert len(lengths) > 4  # rows ended, and were dropped, at different times
    for row, (ids, logprobs) in enumerate(zip(found.completion_ids, found.logprobs, strict=True)):
        own = recomputed(model, list(PROMPTS[row // GROUP]), ids, temperature)
        torch.testing.assert_close(torch.tensor(logprobs), own, atol=1e-4, rtol=1e-4)


def test_a_completion_ends_with_its_end_token_or_at_the_limit(model: Qwen2ForCausalLM) -> None:
    end = model.config.eos_token_id
    found = drawn(model)
    assert len(found.completion_ids) == len(PROMPTS) * GROUP
    for ids in found.completion_ids:
        assert end not in ids[:-1]
        assert ids[-1] == end or len(ids) == MOST


def test_a_seed_gives_the_same_completions_again_and_another_seed_others(model: Qwen2ForCausalLM) -> None:
    assert drawn(model) == drawn(model)
    assert drawn(model).completion_ids != drawn(model, seed=2).completion_ids


def test_at_temperature_0_the_likeliest_token_is_taken_as_the_model_does(model: Qwen2ForCausalLM) -> None:
    found = drawn(model, group=1, temperature=0)
    for prompt, ids in zip(PROMPTS, found.completion_ids, strict=True):
        own = model.generate(  # type: ignore[misc]
            torch.tensor([prompt]), max_new_tokens=MOST, do_sample=False
        )
        assert ids == own[0, len(prompt) :].tolist()


def test_draws_follow_the_distribution(model: Qwen2ForCausalLM) -> None:
    found = sample(model, [PROMPTS[0]], 4000, max_tokens=1, temperature=1.0, seed=4, bf16=False)
    counts = torch.bincount(torch.tensor([ids[0] for ids in found.completion_ids]), minlength=model.config.vocab_size)
    with torch.no_grad():
        chances = model(torch.tensor([PROMPTS[0]])).logits[0, -1].float().softmax(-1)
    assert (counts / 4000 - chances).abs().max() < 0.04


def test_bfloat16_is_near_enough(model: Qwen2ForCausalLM) -> None:
    found = sample(model, PROMPTS, 2, max_tokens=8, temperature=1.0, seed=1, bf16=True)
    for row, (ids, logprobs) in enumerate(zip(found.completion_ids, found.logprobs, strict=True)):
        own = recomputed(model, list(PROMPTS[row // 2]), ids, 1.0)
        torch.testing.assert_close(torch.tensor(logprobs), own, atol=0.3, rtol=0.1)

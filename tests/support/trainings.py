"""A training small enough for a test: seconds on one core."""

import itertools
from functools import lru_cache

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from conductor_core.lab.training.config import (
    ColdStartConfig,
    GrpoConfig,
    Guard,
    HeldOutConfig,
    ModelShape,
    Optimiser,
    RecursionConfig,
    TrainingConfig,
)
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.lab.training.tiny.cold_start import train_tokenizer

SHAPE = ModelShape(
    vocab_size=600,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=1024,
)


def recursion_config(taught: int, inner: float = 0.0) -> RecursionConfig:
    return RecursionConfig(
        iterations=1,
        prompts=1,
        group=2,
        max_completion_tokens=16,
        taught=taught,
        taught_learning_rate=2e-2,
        guard_inner_share=inner,
        optimiser=Optimiser(learning_rate=1e-3, bf16=False),
        held_out=HeldOutConfig(tasks=3, every=1),
    )


def toy_config(*, grpo: bool = True, iterations: int = 4, seed: int = 3) -> TrainingConfig:
    """A cold start of six steps, and a few iterations of GRPO with a checkpoint after every second."""
    return TrainingConfig(
        name="toy",
        seed=seed,
        cold_start=ColdStartConfig(
            examples=48,
            tokenizer_examples=24,
            thought_only=0.5,
            batch_size=8,
            save_every=2,
            matrix_rate=2e-2,
            model=SHAPE,
            optimiser=Optimiser(learning_rate=1e-2, weight_decay=0.1, adam_beta2=0.98, bf16=False),
        ),
        grpo=GrpoConfig(
            iterations=iterations,
            prompts=2,
            group=4,
            max_completion_tokens=24,
            save_every=2,
            sample_every=2,
            optimiser=Optimiser(learning_rate=1e-3, bf16=False),
            guard=Guard(weight=0.5, examples=2),
            held_out=HeldOutConfig(tasks=3, every=2),
        )
        if grpo
        else None,
    )


@lru_cache(maxsize=1)
def toy_tokenizer() -> Qwen2Tokenizer:
    drawn = itertools.islice(examples(0), 24)
    return train_tokenizer((each.prompt + each.completion for each in drawn), SHAPE.vocab_size)


def toy_model(*, seed: int = 0, layers: int = 2, scale: float = 4.0) -> Qwen2ForCausalLM:
    """Random weights, scaled up by ``scale`` so that its distributions are not all alike; in evaluation mode."""
    torch.manual_seed(seed)
    shape = SHAPE.model_dump() | {"num_hidden_layers": layers, "vocab_size": len(toy_tokenizer())}
    config = Qwen2Config(
        **shape,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=toy_tokenizer().eos_token_id,
        pad_token_id=toy_tokenizer().pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.eval()  # type: ignore[no-untyped-call]
    return model

"""Computes the log-probability and entropy that a policy gives to every token of a completion.

A group's plans share their prompt, so the model reads it once for all of them, with gradients. That is a third of the
work of reading it for each plan.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FP32_ATTENTION = "fp32"


def _attention_in_fp32(
    module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Computes attention in float32: on a CPU a whole step took 1.3 times as long with a bfloat16 backward pass."""
    with torch.autocast("cpu", enabled=False):
        output, _ = sdpa_attention_forward(module, q.float(), k.float(), v.float(), mask, **options)
    return output.to(q.dtype), None


def attend_in_fp32(model: PreTrainedModel) -> None:
    """Switches a model on a CPU to attention in float32, for training in bfloat16 autocast."""
    AttentionInterface.register(FP32_ATTENTION, _attention_in_fp32)
    AttentionMaskInterface.register(FP32_ATTENTION, sdpa_mask)
    model.set_attn_implementation(FP32_ATTENTION)


def rounded(length: int, step: int = 32) -> int:
    """Rounds a length up to a multiple of ``step``. The CPU's matrix kernels are compiled and kept for each shape."""
    return -(-length // step) * step


def completion_logprobs(
    model: PreTrainedModel, prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities and entropies (nats), both (B, C) in float32, with gradients if these are on.

    Args:
        prompt_ids, prompt_mask: (B, P), padded on the left. Consecutive rows with the same prompt read it once.
        completion_ids: (B, C), padded on the right. The caller must mask the values of the padding.
        temperature: divides the logits.
    """
    first = torch.ones(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    first[1:] = (prompt_ids[1:] != prompt_ids[:-1]).any(dim=1)
    of_prompt = first.cumsum(0) - 1
    prompts, attended = _narrowed(prompt_ids[first], prompt_mask[first])
    core, cache = model.base_model, DynamicCache(config=model.config)
    read = core(
        input_ids=prompts,
        attention_mask=attended,
        position_ids=(attended.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
    )
    cache.batch_select_indices(of_prompt)
    lengths = attended.sum(1)[of_prompt]
    count = completion_ids.shape[1]
    written = core(
        input_ids=completion_ids[:, :-1],
        attention_mask=torch.cat([attended[of_prompt], torch.ones_like(completion_ids[:, :-1])], dim=1),
        position_ids=lengths[:, None] + torch.arange(count - 1, device=lengths.device),
        past_key_values=cache,
        use_cache=True,
    )
    hidden = torch.cat([read.last_hidden_state[of_prompt, -1:], written.last_hidden_state], dim=1)
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    scores = (head(hidden).float() / temperature).log_softmax(dim=-1)
    chosen = scores.gather(-1, completion_ids.unsqueeze(-1)).squeeze(-1)
    return chosen, -(scores.exp() * scores).sum(dim=-1)


def _narrowed(prompts: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Drops the padding that no row needs, down to a rounded length."""
    wanted = min(rounded(int(mask.sum(1).max())), prompts.shape[1])
    return prompts[:, -wanted:], mask[:, -wanted:]

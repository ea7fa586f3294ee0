"""Sampling many plans for a few prompts at once.

The model reads each prompt once for its whole group. Finished plans are dropped. A token is drawn by inverting the
distribution function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM
from transformers.cache_utils import DynamicCache

from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar
from conductor_core.inference.constraint import Grammars
from conductor_core.lab.training.supervised import rounded
from conductor_core.lab.training.tiny.situations import Situation


@dataclass(frozen=True)
class Rollout:
    """Completions in the order of their prompts.

    Attributes:
        completion_ids: token ids with the end token, unless the completion was cut off.
        logprobs: log-probability of each token under the distribution that it was drawn from.
    """

    completion_ids: list[list[int]]
    logprobs: list[list[float]]


Mask = Callable[[Tensor, list[list[int]], Sequence[int]], None]
"""Forbids tokens in place. It takes logits (rows, vocabulary), the tokens of each row so far, and the rows' numbers."""


@torch.no_grad()
def sample(
    model: Qwen2ForCausalLM,
    prompts: Sequence[Sequence[int]],
    group: int,
    *,
    max_tokens: int,
    temperature: float,
    seed: int,
    bf16: bool = True,
    forbid: Mask | None = None,
) -> Rollout:
    """Samples ``group`` completions for each of ``prompts`` (token ids).

    The same arguments and weights give the same completions on the same machine.

    Args:
        temperature: 0 takes the likeliest token; ``group`` should then be 1.
        bf16: whether matrix products are in bfloat16, as under the training's autocast; all else is in float32.
    """
    longest, device = rounded(max(map(len, prompts))), model.device
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    cache = DynamicCache(config=model.config)

    def read(ids: Tensor, positions: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            output = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            )
        logits: Tensor = output.logits[:, -1].float()
        return logits

    logits = read(ids, (mask.cumsum(1) - 1).clamp(min=0)).repeat_interleave(group, dim=0)
    cache.batch_repeat_interleave(group)
    mask = mask.repeat_interleave(group, dim=0)
    rows = torch.arange(len(mask), device=device)
    chances = torch.rand(max_tokens, len(mask), generator=torch.Generator().manual_seed(seed)).to(device)
    end: Any = model.config.eos_token_id
    found = Rollout([[] for _ in rows], [[] for _ in rows])
    for step in range(max_tokens):
        if forbid is not None:
            forbid(logits, found.completion_ids, rows.tolist())
        tokens, chosen = _draw(logits, temperature, chances[step, rows])
        for row, token, logprob in zip(rows.tolist(), tokens.tolist(), chosen.tolist(), strict=True):
            found.completion_ids[row].append(token)
            found.logprobs[row].append(logprob)
        going = tokens.ne(end).nonzero()[:, 0]
        if step + 1 == max_tokens or not len(going):
            break
        if len(going) < len(rows):
            cache.batch_select_indices(going)
            mask, rows, tokens = mask[going], rows[going], tokens[going]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        logits = read(tokens[:, None], mask.sum(1, keepdim=True) - 1)
    return found


def _draw(logits: Tensor, temperature: float, chances: Tensor) -> tuple[Tensor, Tensor]:
    """Returns tokens and log-probabilities, both (rows,), at which the cumulative distribution reaches ``chances``."""
    if temperature == 0:
        best = logits.log_softmax(dim=-1).max(dim=-1)
        return best.indices, best.values
    scores = (logits / temperature).log_softmax(dim=-1)
    reached = scores.exp().cumsum(dim=-1)
    # Rounding may leave the sum below 1. The draw is scaled to the sum, so that it never lands beyond the last token.
    tokens = torch.searchsorted(reached, (chances * reached[..., -1]).unsqueeze(-1), right=True).squeeze(-1)
    tokens = tokens.clamp(max=logits.shape[-1] - 1)
    return tokens, scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


# The grammar of legal plans, without the phrase book that decoding also uses.

KEPT_GRAMMARS = 512


def shape_of(situation: Situation) -> PlanShape:
    """Returns what is legal for a prompt: the roles that are taken, the step limit, and stopping in an inner round."""
    request = situation.request
    choices = choices_of(situation.agents, recursion=request.allow_recursion)
    return PlanShape(choices, request.max_steps, may_stop=request.parent is not None, task_first=True)


class LegalPlans:
    """Makes masks for rollouts with one tokenizer, and keeps compiled grammars.

    In free sampling, a longer plan more often has a mistake in its lists. The reward of 0 for a plan that does not
    parse then favours short plans whatever they are worth, and half-trained policies fell to one step. Under the
    grammar, all plans are compared by their worth. The policy's gradient is that of the unmasked distribution.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        """``vocabulary``: width of the model's logits."""
        self._vocabulary, self._end = vocabulary, int(tokenizer.eos_token_id)
        self._grammars = Grammars.of(tokenizer, vocabulary, [int(tokenizer.eos_token_id)], KEPT_GRAMMARS)

    def mask(self, situations: Sequence[Situation], group: int) -> Mask:
        """Returns a mask for ``rollout.sample``, with ``group`` rows for each of ``situations``."""
        matchers = [
            self._grammars.begin(plan_grammar(shape_of(situation))) for situation in situations for _ in range(group)
        ]
        accepted = [0] * len(matchers)

        def forbid(logits: Tensor, written: list[list[int]], rows: Sequence[int]) -> None:
            allowed = torch.ones(logits.shape, dtype=torch.bool)
            for place, row in enumerate(rows):
                matcher, new = matchers[row], written[row][accepted[row] :]
                if not matcher.accept(new):
                    raise ValueError("a rollout holds a token that its grammar forbids")
                accepted[row] += len(new)
                allowed[place, : self._vocabulary] = matcher.allowed(self._vocabulary)
            logits.masked_fill_(~allowed.to(logits.device), -torch.inf)

        return forbid

"""Sampling many plans for a few prompts at once, on a CPU: several times as fast as a model's own ``generate``.

Four things make it fast. The model reads each prompt once, and its whole group shares the keys and values. Keys and
values of completions lie in memory that is allocated once. Finished plans are dropped. A token is drawn by inverting
the distribution function. Decoding is written out for the Qwen2 architecture; a test compares it with the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM
from transformers.cache_utils import DynamicCache

from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar
from conductor_core.errors import BadInput
from conductor_core.inference.constraint import Grammars
from conductor_core.lab.training.tiny.situations import Situation

REGROUP_EVERY = 8
"""Number of tokens between two checks for finished plans."""


@dataclass(frozen=True)
class Rollout:
    """Completions in the order of their prompts.

    Attributes:
        completion_ids: token ids with the end token, unless the completion was cut off.
        logprobs: log-probability of each token under the distribution that it was drawn from.
    """

    completion_ids: list[list[int]]
    logprobs: list[list[float]]


@dataclass(frozen=True)
class _Layer:
    """One layer's weights: the query, key and value projections in one matrix, gate and up in another."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class _Decoder:
    """A Qwen2 model's forward pass for one token of many rows whose prompts are shared.

    Shapes: N prompts, G rows a prompt, K key heads, R query heads a key head, D a head's size, P and T tokens of prompt
    and completion.
    """

    def __init__(self, model: Qwen2ForCausalLM, *, bf16: bool) -> None:
        dtype = torch.bfloat16 if bf16 else torch.float32
        config: Any = model.config
        core: Any = model.model
        self.heads: int = config.num_attention_heads
        self.key_heads: int = config.num_key_value_heads
        self.size: int = config.hidden_size // self.heads
        self.eps: float = config.rms_norm_eps
        self.dtype = dtype
        self.embedding = core.embed_tokens.weight.detach()
        self.head = model.lm_head.weight.detach().to(dtype)
        self.norm = core.norm.weight.detach()
        self.frequencies: Tensor = core.rotary_emb.inv_freq
        self.layers = [_layer(each, dtype) for each in core.layers]

    def logits(
        self, tokens: Tensor, positions: Tensor, step: int, prompt: "_Prompts", written: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Returns logits (N, G, vocabulary) in float32 after ``tokens`` (N, G), which are number ``step`` from 0."""
        count, group = tokens.shape
        hidden = self.embedding[tokens]
        angles = positions[:, None].float() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)[:, None, None, :]
        cos, sin = angles.cos(), angles.sin()
        for index, layer in enumerate(self.layers):
            mixed = functional.linear(self._normed(hidden, layer.attention_norm), layer.qkv, layer.qkv_bias).float()
            rows = mixed.view(count, group, self.heads + 2 * self.key_heads, self.size)
            turned, value = torch.split(rows, [self.heads + self.key_heads, self.key_heads], dim=2)
            turned = turned * cos + _rotated(turned) * sin
            query, key = torch.split(turned, [self.heads, self.key_heads], dim=2)
            keys, values = written[index]
            keys[:, :, :, step], values[:, :, :, step] = key, value
            seen = slice(0, step + 1)
            attended = self._attend(query, prompt, index, keys[:, :, :, seen], values[:, :, :, seen])
            hidden = hidden + functional.linear(attended.to(self.dtype), layer.out).float()
            gate, up = functional.linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, layer.down).float()
        return functional.linear(self._normed(hidden, self.norm), self.head).float()

    def _attend(self, query: Tensor, prompt: "_Prompts", layer: int, keys: Tensor, values: Tensor) -> Tensor:
        """Returns attention (N, G, heads * D) over the group's prompt and each row's completion, in one softmax."""
        count, group = query.shape[:2]
        shared = self.heads // self.key_heads
        query = query.reshape(count, group, self.key_heads, shared, self.size) * self.size**-0.5
        together = query.transpose(1, 2).reshape(count, self.key_heads, group * shared, self.size)
        over_prompt = together @ prompt.keys[layer].transpose(-1, -2) + prompt.mask
        over_prompt = over_prompt.view(count, self.key_heads, group, shared, -1).transpose(1, 2)
        over_written = query @ keys.transpose(-1, -2)
        weights = torch.cat([over_prompt, over_written], dim=-1).softmax(dim=-1)
        on_prompt, on_written = torch.split(weights, [over_prompt.shape[-1], over_written.shape[-1]], dim=-1)
        on_prompt = on_prompt.transpose(1, 2).reshape(count, self.key_heads, group * shared, -1)
        read = (on_prompt @ prompt.values[layer]).view(count, self.key_heads, group, shared, self.size).transpose(1, 2)
        attended: Tensor = read + on_written @ values
        return attended.reshape(count, group, self.heads * self.size)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (hidden.shape[-1],), weight, self.eps).to(self.dtype)


def _layer(module: torch.nn.Module, dtype: torch.dtype) -> _Layer:
    weights = {name: value.detach() for name, value in module.named_parameters()}
    parts = [weights[f"self_attn.{name}_proj.weight"] for name in "qkv"]
    biases = [weights[f"self_attn.{name}_proj.bias"] for name in "qkv"]
    return _Layer(
        attention_norm=weights["input_layernorm.weight"],
        qkv=torch.cat(parts).to(dtype),
        qkv_bias=torch.cat(biases).to(dtype),
        out=weights["self_attn.o_proj.weight"].to(dtype),
        mlp_norm=weights["post_attention_layernorm.weight"],
        gate_up=torch.cat([weights["mlp.gate_proj.weight"], weights["mlp.up_proj.weight"]]).to(dtype),
        down=weights["mlp.down_proj.weight"].to(dtype),
    )


def _rotated(heads: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


@dataclass
class _Prompts:
    """The values that all rows of a group share, for N prompts padded on the left.

    Attributes:
        lengths: (N,), without padding.
        logits: (N, vocabulary), for the first token of a completion.
        keys, values: one tensor (N, K, P, D) for each layer, in float32.
        mask: (N, 1, 1, P), added to scores: 0, or -inf at padding.
    """

    lengths: Tensor
    logits: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor

    def select(self, kept: Tensor) -> "_Prompts":
        return _Prompts(
            self.lengths[kept],
            self.logits[kept],
            [each[kept] for each in self.keys],
            [each[kept] for each in self.values],
            self.mask[kept],
        )


def _read_prompts(model: Qwen2ForCausalLM, prompts: Sequence[Sequence[int]], *, bf16: bool) -> _Prompts:
    longest = -(-max(map(len, prompts)) // 32) * 32
    device = model.device
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    attended = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        attended[row, longest - len(prompt) :] = 1
    ids, attended = ids.to(device), attended.to(device)
    cache = DynamicCache(config=model.config)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        output = model(
            input_ids=ids,
            attention_mask=attended,
            position_ids=(attended.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    layers: list[Any] = cache.layers
    mask = torch.zeros(attended.shape, device=device).masked_fill(attended == 0, float("-inf"))
    return _Prompts(
        attended.sum(1),
        output.logits[:, -1].float(),
        [layer.keys.float() for layer in layers],
        [layer.values.float() for layer in layers],
        mask[:, None, None, :],
    )


class _Rows:
    """The rows that are still being written: up to G for each of N prompts, with their numbers and which are active."""

    def __init__(self, prompts: int, group: int, device: torch.device) -> None:
        self.number = torch.arange(prompts * group, device=device).view(prompts, group)
        self.going = torch.ones(prompts, group, dtype=torch.bool, device=device)

    def regroup(self) -> tuple[Tensor, Tensor] | None:
        """Drops finished rows if that makes the block smaller.

        Returns:
            Indices (N') of the prompts kept and (N', G') of each one's rows kept, or None if nothing was dropped.
        """
        left = self.going.sum(dim=1)
        prompts = left.nonzero().squeeze(1)
        group = int(left.max())
        if len(prompts) * group >= 0.8 * self.going.numel():
            return None
        order = torch.argsort(self.going[prompts].int(), dim=1, descending=True, stable=True)[:, :group]
        self.number = self.number[prompts].gather(1, order)
        self.going = self.going[prompts].gather(1, order)
        return prompts, order


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
    if model.config.model_type != "qwen2":
        raise BadInput(f"the fast rollout is for Qwen2 models, not {model.config.model_type}: set rollout = 'trl'")
    decoder = _Decoder(model, bf16=bf16)
    prompt = _read_prompts(model, prompts, bf16=bf16)
    end: Any = model.config.eos_token_id
    rows = _Rows(len(prompts), group, model.device)
    chances = torch.rand(max_tokens, len(prompts) * group, generator=torch.Generator().manual_seed(seed))
    chances = chances.to(model.device)
    ids: list[list[int]] = [[] for _ in range(len(prompts) * group)]
    logprobs: list[list[float]] = [[] for _ in range(len(prompts) * group)]
    shape = (len(prompts), group, decoder.key_heads, max_tokens, decoder.size)
    written = [
        (torch.empty(shape, device=model.device), torch.empty(shape, device=model.device)) for _ in decoder.layers
    ]
    logits = prompt.logits[:, None, :].expand(-1, group, -1)
    for step in range(max_tokens):
        if forbid is not None:
            logits = logits.clone()
            forbid(logits.view(-1, logits.shape[-1]), ids, rows.number.flatten().tolist())
        tokens, chosen = _draw(logits, temperature, chances[step, rows.number])
        going = rows.going.flatten().tolist()
        drawn = zip(rows.number.flatten().tolist(), tokens.flatten().tolist(), chosen.flatten().tolist(), strict=True)
        for goes_on, (row, token, logprob) in zip(going, drawn, strict=True):
            if goes_on:
                ids[row].append(token)
                logprobs[row].append(logprob)
        rows.going &= tokens != end
        if step + 1 == max_tokens or not rows.going.any():
            break
        if (step + 1) % REGROUP_EVERY == 0 and (kept := rows.regroup()) is not None:
            tokens, prompt = tokens[kept[0]].gather(1, kept[1]), prompt.select(kept[0])
            written = [(_regrouped(keys, *kept), _regrouped(values, *kept)) for keys, values in written]
        logits = decoder.logits(tokens, prompt.lengths + step, step, prompt, written)
    return Rollout(ids, logprobs)


def _regrouped(block: Tensor, prompts: Tensor, order: Tensor) -> Tensor:
    """Returns ``block`` (N, G, ...) with only the kept prompts and rows."""
    return block[prompts[:, None], order]


def _draw(logits: Tensor, temperature: float, chances: Tensor) -> tuple[Tensor, Tensor]:
    """Returns tokens and log-probabilities, both (N, G), at which the cumulative distribution reaches ``chances``."""
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
                if self._end in new:  # a row that has ended stays in its block for a while
                    continue
                if not matcher.accept(new):
                    raise ValueError("a rollout holds a token that its grammar forbids")
                accepted[row] += len(new)
                allowed[place, : self._vocabulary] = matcher.allowed(self._vocabulary)
            logits.masked_fill_(~allowed.to(logits.device), -torch.inf)

        return forbid

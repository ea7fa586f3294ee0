"""TRL's GRPO trainer, adapted to small models on a CPU: it keeps groups together and adds a supervised loss."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from conductor_core.lab.training.folder import SafeCheckpoints
from conductor_core.lab.training.supervised import rounded

# Log-probabilities.


def completion_logprobs(
    model: PreTrainedModel, prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities and entropies (nats), both (B, C) in float32, with gradients if these are on.

    A group's plans share their prompt, so the model reads it once for all of them: a third of the work.

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


_BY_TOKEN = ("completion_ids", "completion_mask", "old_per_token_logps", "sampling_per_token_logps")


class ConductorTrainer(SafeCheckpoints, GRPOTrainer):
    """Uses TRL's loss, advantages and clipping, with two differences:

    1. A micro-batch is one prompt's whole group, not a random part of the batch. The model then reads the prompt once
       (``completion_logprobs``), and completions are padded to the longest of the group. An update's sum is the same.
    2. ``guard`` adds a supervised loss to each update.

    Args:
        guard: returns the supervised batch of an update by its number: arguments of the model with ``labels``.
        guard_weight: weight of that batch's mean loss.
    """

    def __init__(
        self, *, guard: Callable[[int], Mapping[str, Any]] | None = None, guard_weight: float = 0.0, **options: Any
    ) -> None:
        with _without_known_warnings():
            super().__init__(**options)
        self._guard, self._guard_weight = guard, guard_weight
        self._parts: list[dict[str, Any]] = []
        self.rollout_s = 0.0
        """Seconds spent on completions since the trainer was made."""
        self.guard_loss: float | None = None
        """Supervised loss of the last update, before its weight is applied."""

    def _generate(self, prompts: list[Any]) -> Any:
        began = time.monotonic()
        written = super()._generate(prompts)
        self.rollout_s += time.monotonic() - began
        return written

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with _without_known_warnings():
            return super()._generate_and_score_completions(inputs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        parts: int = self.args.gradient_accumulation_steps
        if self._step % (parts * self.num_iterations) == 0 or not self._parts:
            scored = self._generate_and_score_completions(generation_batch)
            self._parts = [trimmed(part) for part in split_tensor_dict(scored, parts)]
        return self._parts[self._step % parts]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        size = batch_size or len(input_ids)
        logprobs, entropies = [], []
        for at in range(0, len(input_ids), size):
            rows = slice(at, at + size)
            with self.accelerator.autocast():
                found = completion_logprobs(
                    model,
                    input_ids[rows, :-logits_to_keep],
                    attention_mask[rows, :-logits_to_keep],
                    input_ids[rows, -logits_to_keep:],
                    temperature=self.temperature,
                )
            logprobs.append(found[0])
            entropies.append(found[1])
        return torch.cat(logprobs), torch.cat(entropies) if compute_entropy else None, None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        loss: Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self._guard is not None and self._step % self.args.gradient_accumulation_steps == 0:
            # Added once per update, in its first micro-batch. TRL divides the other losses itself.
            batch = send_to_device(self._guard(self.state.global_step), loss.device)
            with self.accelerator.autocast():
                supervised: Tensor = model(**batch).loss
            self.guard_loss = float(supervised.detach())
            loss = loss + self._guard_weight * supervised
        return loss


@contextmanager
def _without_known_warnings() -> Iterator[None]:
    """Hides TRL's warnings about its own interface, and transformers' warnings about names that TRL uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'", category=UserWarning)
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


def trimmed(part: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a micro-batch without the columns that are padding in all its rows; the width is rounded up."""
    mask = part["completion_mask"]
    width = min(rounded(int(mask.sum(dim=1).max()), 16), mask.shape[1])
    cut: Sequence[str] = [name for name in _BY_TOKEN if isinstance(part.get(name), Tensor)]
    return dict(part) | {name: part[name][:, :width] for name in cut}

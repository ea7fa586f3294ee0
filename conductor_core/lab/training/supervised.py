"""Supervised rows and their batches: what every training by next-token prediction shares."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import Dataset
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from conductor_core.lab.training.config import AdapterConfig, ColdStartConfig, common
from conductor_core.lab.training.folder import SafeCheckpoints
from conductor_core.lab.training.recorder import RecordCallback, StageRecord, continue_training, without_console

IGNORED = -100
EVAL_BATCH_SIZE = 16

Row = tuple[list[int], list[int]]
"""Token ids of a prompt, and of the completion to learn."""


def token_ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


class Batched(Dataset[Row]):
    """Rows shuffled by ``seed``, but with rows of similar length in each batch of ``batch_size``, because padding
    costs as much as text.
    """

    def __init__(self, rows: Sequence[Row], batch_size: int, seed: int = 0) -> None:
        rng, pool = random.Random(seed), batch_size * 40
        shuffled = rng.sample(rows, len(rows))
        self.rows: list[Row] = []
        for start in range(0, len(shuffled), pool):
            alike = sorted(shuffled[start : start + pool], key=lambda row: len(row[0]) + len(row[1]))
            batches = [alike[at : at + batch_size] for at in range(0, len(alike), batch_size)]
            rng.shuffle(batches)
            self.rows += [row for batch in batches for row in batch]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]


@dataclass(frozen=True)
class LeftPadded:
    """Pads on the left, so that all completions end together and logits are needed for the last tokens only."""

    pad_id: int

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Returns ``input_ids`` and ``attention_mask`` (batch, longest), ``labels`` (batch, longest completion + 1)."""
        longest = rounded(max(len(prompt) + len(completion) for prompt, completion in rows))
        kept = rounded(max(len(completion) for _, completion in rows) + 1)
        ids, mask, labels = [], [], []
        for prompt, completion in rows:
            text = prompt + completion
            missing = longest - len(text)
            ids.append([self.pad_id] * missing + text)
            mask.append([0] * missing + [1] * len(text))
            labels.append([IGNORED] * (kept - len(completion)) + completion)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
            "logits_to_keep": kept,
        }


@torch.no_grad()
def mean_loss(model: PreTrainedModel, data: Batched, collate: LeftPadded, *, bf16: bool) -> float:
    """Returns the mean next-token loss over the completions' tokens."""
    total = tokens = 0.0
    for at in range(0, len(data), EVAL_BATCH_SIZE):
        batch = collate(data.rows[at : at + EVAL_BATCH_SIZE])
        count = float((batch["labels"] != IGNORED).sum())
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            total += float(model(**send_to_device(batch, model.device)).loss) * count
        tokens += count
    return total / tokens


def train(
    model: Any,
    config: ColdStartConfig | AdapterConfig,
    rows: Sequence[Row],
    unseen: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
    record: StageRecord,
    *,
    seed: int,
    rows_at_once: int,
    optimiser: Optimizer | None = None,
) -> None:
    """Trains ``model`` on ``rows``, each once, and measures progress on ``unseen``.

    Args:
        rows_at_once: rows whose gradients are computed at once.
        optimiser: None means the trainer's own, AdamW for all weights.
    """
    steps, bf16 = config.steps, config.optimiser.bf16
    log_every = max(1, min(10, steps // 4))
    measure_every = max(log_every, min(250, steps // 4) // log_every * log_every)
    collate, held_out = LeftPadded(int(tokenizer.pad_token_id)), Batched(unseen, EVAL_BATCH_SIZE)
    arguments = TrainingArguments(
        **common(config.optimiser, seed=seed, steps=steps, cpu=record.cpu),
        output_dir=str(record.work),
        per_device_train_batch_size=rows_at_once,
        gradient_accumulation_steps=config.batch_size // rows_at_once,
        train_sampling_strategy="sequential",
        logging_steps=log_every,
        logging_nan_inf_filter=False,  # it would show 0 for a loss that is not a number
        save_steps=config.save_every,
        dataloader_pin_memory=False,
        label_names=["labels"],
    )
    trainer = SafeCheckpoints(
        model=model,
        args=arguments,
        data_collator=collate,
        train_dataset=Batched(rows, config.batch_size, seed),
        optimizers=(optimiser, None),
    )
    without_console(trainer)

    def details() -> dict[str, Any]:
        step = trainer.state.global_step
        due = step % measure_every == 0 or step == steps
        return {"supervised_loss": mean_loss(model, held_out, collate, bf16=bf16)} if due else {}

    trainer.add_callback(RecordCallback(record, details=details))
    continue_training(trainer, record)


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

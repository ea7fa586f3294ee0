"""The supervised cold start: from random weights to a model that writes coherent, varied plans.

A Qwen2-architecture model of a few million parameters learns the corpus' plans by next-token prediction, with the loss
on the completion only. This module prepares what transformers' Trainer needs. A cold start on random plans does not
serve: under later reinforcement learning its plans collapsed to a single step.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn
from torch.optim import AdamW, Muon, Optimizer
from transformers import (
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    set_seed,
)

from conductor_core.conductors.prompts import MARKERS
from conductor_core.lab.training.config import ColdStartConfig
from conductor_core.lab.training.corpus.plans import TrainingExample, examples
from conductor_core.lab.training.recorder import StageRecord
from conductor_core.lab.training.supervised import Row, attend_in_fp32, token_ids, train
from conductor_core.workflow.model import QUESTION

# The tokenizer.

END, PAD = "<|end|>", "<|pad|>"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Qwen2Tokenizer:
    """Trains a byte-level BPE of exactly ``vocab_size`` entries, or fewer if the texts do not give as many.

    Each digit is a token of its own, so that an ordinal is the same token wherever it occurs. Each marker of the short
    prompt is one special token. The ``{question}`` macro is one ordinary token, because decoding must keep it.

    It is a ``Qwen2Tokenizer``, because transformers opens every tokenizer in the folder of a Qwen2 model as one.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (END, PAD, *MARKERS)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.replace(QUESTION, "") for text in texts), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    merges: Any = [tuple(pair) for pair in learned["merges"]]
    opened = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=merges,
        unk_token=END,  # never used: every byte is known
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=list(MARKERS),
    )
    opened.add_tokens([AddedToken(QUESTION, special=False, normalized=False)])
    return opened


# The optimiser.


class MuonWithAdamW(Optimizer):
    """Updates the hidden matrices of a model by Muon, and embeddings, norms and biases by AdamW.

    torch has both, but a trainer takes and saves one optimiser. Muon is for hidden matrices only ("Muon: An optimizer
    for hidden layers in neural networks", Jordan and others, 2024). Its steps are scaled to the size of AdamW's ("Muon
    is Scalable for LLM Training", arXiv 2502.16982, section 2.2).

    Args:
        model: its output head counts as hidden if it is a matrix of its own.
        matrix_rate, rate: learning rates of Muon and of AdamW.
        weight_decay: decays matrices and embeddings only.
    Raises: ValueError if a rate is negative or the model has no hidden matrix.
    """

    def __init__(
        self, model: nn.Module, *, matrix_rate: float, rate: float, weight_decay: float, adam_beta2: float
    ) -> None:
        embeddings = dict.fromkeys(part.weight for part in model.modules() if isinstance(part, nn.Embedding))
        matrices = [each for each in model.parameters() if each.ndim == 2 and each not in embeddings]
        others = [each for each in model.parameters() if each.ndim != 2]
        self._adamw: Optimizer = AdamW(
            [{"params": list(embeddings), "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=rate,
            betas=(0.9, adam_beta2),
        )
        self._muon: Optimizer = Muon(
            matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})
        self._share()

    def _share(self) -> None:
        # Both share this optimiser's groups and state, so that a schedule reaches them and torch saves and loads them.
        self._adamw.param_groups, self._muon.param_groups = self.param_groups[:2], self.param_groups[2:]
        self._adamw.state = self._muon.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Takes one step with both. Raises: ValueError if there is a closure, which no trainer here gives."""
        if closure is not None:
            raise ValueError("this optimiser takes no closure")
        self._adamw.step()
        self._muon.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what ``state_dict`` returned. Raises: ValueError if its groups have other numbers of parameters."""
        super().load_state_dict(state_dict)
        self._share()


HELD_OUT_SEED = 1_000_003
"""Seed of the examples on which progress is measured. No training uses it."""
HELD_OUT = 128


def example_rows(
    drawn: Sequence[TrainingExample], tokenizer: PreTrainedTokenizerBase, *, thought_only: float = 0.0, seed: int = 0
) -> list[Row]:
    """Turns examples into token ids, with the end token after a whole completion.

    Args:
        thought_only: share of examples that end after the line of thought. These few tokens decide the shape of the
            plan and its agents, so the model learns both from more tasks at less cost.
    """
    rng = random.Random(seed)
    rows = []
    for example in drawn:
        if rng.random() < thought_only:
            ids = token_ids(example.completion.partition("\n")[0] + "\n", tokenizer)
        else:
            ids = [*token_ids(example.completion, tokenizer), int(tokenizer.eos_token_id)]
        rows.append((token_ids(example.prompt, tokenizer), ids))
    return rows


def build_model(config: ColdStartConfig, tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    set_seed(seed)
    shape = config.model.model_dump() | {"vocab_size": len(tokenizer), "tie_word_embeddings": True}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return Qwen2ForCausalLM(Qwen2Config(**shape, **ends))


def run(config: ColdStartConfig, seed: int, record: StageRecord) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer]:
    """Trains, and returns the model in float32. The seed repeats corpus, tokenizer and order."""
    drawn = list(itertools.islice(examples(seed, config.best_of), config.examples))
    texts = (example.prompt + example.completion for example in drawn[: config.tokenizer_examples])
    tokenizer = train_tokenizer(texts, config.model.vocab_size)
    model = build_model(config, tokenizer, seed)
    if config.optimiser.bf16 and record.cpu:
        attend_in_fp32(model)
    rows = example_rows(drawn, tokenizer, thought_only=config.thought_only, seed=seed)
    unseen = example_rows(list(itertools.islice(examples(HELD_OUT_SEED), HELD_OUT)), tokenizer)
    train(
        model,
        config,
        rows,
        unseen,
        tokenizer,
        record,
        seed=seed,
        rows_at_once=config.batch_size,
        optimiser=optimiser_of(config, model),
    )
    model.set_attn_implementation("sdpa")
    return model, tokenizer


def optimiser_of(config: ColdStartConfig, model: Qwen2ForCausalLM) -> MuonWithAdamW | None:
    """Returns the optimiser; None means the trainer's own, AdamW for all weights."""
    if config.matrix_rate is None:
        return None
    return MuonWithAdamW(
        model,
        matrix_rate=config.matrix_rate,
        rate=config.optimiser.learning_rate,
        weight_decay=config.optimiser.weight_decay,
        adam_beta2=config.optimiser.adam_beta2,
    )

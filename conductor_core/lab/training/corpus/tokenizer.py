"""The tiny Conductor's tokenizer: a byte-level BPE trained on its own corpus, so that no text is unknown to it.

Each digit is a token of its own, so that an ordinal is the same token wherever it occurs. Each marker of the short
prompt is one special token. The ``{question}`` macro is one ordinary token, because decoding must keep it.
"""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from conductor_core.conductors.prompts import MARKERS
from conductor_core.workflow.model import QUESTION

END, PAD = "<|end|>", "<|pad|>"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Qwen2Tokenizer:
    """Trains a tokenizer of exactly ``vocab_size`` entries, or fewer if the texts do not give as many.

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

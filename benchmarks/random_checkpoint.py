"""Checkpoints of Qwen2.5's exact configurations with random weights, for measurements without a download.

Configurations: config.json of Qwen/Qwen2.5-0.5B-Instruct and Qwen/Qwen2.5-7B-Instruct on the Hugging Face hub. The
tokenizer is a byte-level BPE trained on Python's standard library; tokens that it does not have get zero weights, so
that the model writes none of them.
"""

import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed

from conductor_core.lab.training.scale import chat_tokenizer

SIZES = {
    "0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
}


@contextmanager
def given_or_random(model: Path | None) -> Iterator[Path]:
    """Yields ``model``, or else the folder of a random Qwen2.5-0.5B, removed after."""
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            write_checkpoint(Path(folder), "0.5b")
        yield model or Path(folder)


def write_checkpoint(folder: Path, size: str, *, changes: Mapping[str, int] | None = None) -> int:
    """Writes configuration, tokenizer and bfloat16 weights into ``folder``; returns the number of parameters.

    Args:
        changes: sizes in place of those of ``size``, to try a measurement small.
    """
    settings = {
        "architectures": ["Qwen2ForCausalLM"],
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "eos_token_id": 2,  # <|im_end|>
    }
    library = Path(sysconfig.get_path("stdlib"))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("*.py")))
    tokenizer = chat_tokenizer(texts, 16_000)
    set_seed(0)
    config = Qwen2Config.from_dict(settings | SIZES[size] | dict(changes or {}))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # never in float32: the 7B would take twice its 15 GB
    try:
        model: Any = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for part in (model.get_input_embeddings(), model.get_output_embeddings()):
            part.weight[len(tokenizer) :] = 0
    model.save_pretrained(folder, max_shard_size="1GB")
    tokenizer.save_pretrained(folder)
    return int(model.num_parameters())

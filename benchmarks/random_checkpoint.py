"""Checkpoints of Qwen2.5's exact configurations with random weights, for measurements without a download.

Nothing heavy is imported before a checkpoint is written: a benchmark of starts must not load torch.

Written shard by shard: one shard is in memory at a time. Configurations: config.json of Qwen/Qwen2.5-0.5B-Instruct and
Qwen/Qwen2.5-7B-Instruct on the Hugging Face hub. The tokenizer is a byte-level BPE trained on Python's standard
library; tokens that it does not have get zero weights, so that the model writes none of them.
"""

import json
import math
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.chat.messages import WorkerSpec

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

SHARD_BYTES = 1_000_000_000
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

POOL = tuple(
    WorkerSpec(name=name, provider="rehearsal", model=name, description=description)
    for name, description in (("solver", "hard sums and proofs"), ("coder", "code"), ("writer", "clear prose"))
)


@contextmanager
def given_or_random(model: Path | None, size: str) -> Iterator[Path]:
    """Yields ``model``, or else the folder of a random Qwen2.5 of ``size`` (a key of ``SIZES``), removed after."""
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / f"qwen2.5-{size}-random"
        write_checkpoint(folder, size)
        yield folder


def write_checkpoint(folder: Path, size: str, *, seed: int = 0, changes: Mapping[str, int] | None = None) -> int:
    """Writes configuration, tokenizer and bfloat16 weights into ``folder``; returns the number of parameters.

    Args:
        changes: sizes in place of those of ``size``, to try a measurement small.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    settings = {
        "architectures": ["Qwen2ForCausalLM"],
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "eos_token_id": 2,  # <|im_end|>
        "torch_dtype": "bfloat16",
    }
    config = Qwen2Config.from_dict(settings | SIZES[size] | dict(changes or {}))
    tokenizer = _tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}  # tied weights are named once
    random = torch.Generator().manual_seed(seed)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(_shards(shapes)):
        file = f"model-{number:05d}.safetensors"
        shard = {name: _weights(name, shapes[name], random) for name in names}
        for name in names:
            if "embed_tokens" in name or "lm_head" in name:
                shard[name][len(tokenizer) :] = 0
        save_file(shard, folder / file, {"format": "pt"})
        del shard
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return sum(math.prod(shape) for shape in shapes.values())


def _shards(shapes: dict[str, tuple[int, ...]]) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        size += 2 * math.prod(shape)
        if names and size > SHARD_BYTES:
            yield names
            names, size = [], 2 * math.prod(shape)
        names.append(name)
    yield names


def _weights(name: str, shape: tuple[int, ...], random: "torch.Generator") -> "torch.Tensor":
    """Uniform with Qwen2's initial standard deviation of 0.02; norms are ones, biases zero."""
    import torch

    weights = torch.empty(shape, dtype=torch.bfloat16)
    if "norm" in name:
        return weights.fill_(1.0)
    if name.endswith("bias"):
        return weights.zero_()
    bound = 0.02 * 3**0.5
    return weights.uniform_(-bound, bound, generator=random)


def _tokenizer() -> "PreTrainedTokenizerFast":
    from conductor_core.lab.training.scale import chat_tokenizer

    library = Path(sysconfig.get_path("stdlib"))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("*.py")))
    return chat_tokenizer(texts, 16_000)

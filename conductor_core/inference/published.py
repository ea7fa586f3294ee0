"""Models of the hub that people will want to try: their sizes and licences are known before anything is downloaded.

Sizes are those of each model's ``config.json``, licences those that its page on the hub names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conductor_core.inference.pace import Shape


@dataclass(frozen=True)
class Published:
    """A model of the hub. ``size_bytes``: of its weights, in bfloat16 unless ``config.json`` says otherwise."""

    shape: Shape
    licence: str
    size_bytes: int


def _qwen2(parameters: int, licence: str, **sizes: Any) -> Published:
    config = {"vocab_size": 151_936, "max_position_embeddings": 32_768, "tie_word_embeddings": True, **sizes}
    return Published(Shape("qwen2", parameters, config), licence, 2 * parameters)


def _sizes(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


_APACHE = "apache-2.0"
_HALF_BILLION = _qwen2(494_032_768, _APACHE, **_sizes(896, 4864, 24, 14, 2))
_LLAMA_3B = _sizes(3072, 8192, 28, 24, 8) | {
    "head_dim": 128,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
}
_QWEN3 = _sizes(1024, 3072, 28, 16, 8) | {
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}

CONDUCTORS: Mapping[str, Published] = MappingProxyType(
    {
        "di-zhang-fdu/openfugu-conductor-3b": Published(
            Shape("llama", 3_212_749_824, _LLAMA_3B), "llama3.2", 2 * 3_212_749_824
        ),
        "Qwen/Qwen2.5-7B-Instruct": _qwen2(
            7_615_616_512,
            _APACHE,
            **_sizes(3584, 18_944, 28, 28, 4),
            vocab_size=152_064,
            tie_word_embeddings=False,
        ),
        "Qwen/Qwen2.5-3B-Instruct": _qwen2(3_085_938_688, "qwen-research", **_sizes(2048, 11_008, 36, 16, 2)),
        "Qwen/Qwen2.5-1.5B-Instruct": _qwen2(1_543_714_304, _APACHE, **_sizes(1536, 8960, 28, 12, 2)),
        "Qwen/Qwen2.5-0.5B-Instruct": _HALF_BILLION,
    }
)
"""Those that plan. The first is a Conductor that others have trained, on Llama-3.2-3B-Instruct."""

SMALL_WORKERS: Mapping[str, Published] = MappingProxyType(
    {
        "Qwen/Qwen2.5-0.5B-Instruct": _HALF_BILLION,
        "Qwen/Qwen2.5-Coder-0.5B-Instruct": _HALF_BILLION,
        # Its file on the hub also holds what the embeddings share.
        "Qwen/Qwen3-0.6B": Published(Shape("qwen3", 596_049_920, _QWEN3), _APACHE, 1_500_000_000),
    }
)
"""Those of the small pool."""

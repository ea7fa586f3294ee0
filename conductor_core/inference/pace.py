"""Measures how long an answer of a model takes on this machine, before the model is downloaded.

It builds the model's own architecture twice, with few layers and all weights zero: the difference is what a layer
takes, and the rest is what the vocabulary takes. It imports torch when it measures.
"""

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

from conductor_core.inference.hardware import place

log = logging.getLogger(__name__)

READ_TOKENS, WRITTEN_TOKENS = 256, 150
"""The tokens of the answer that is timed: a short question with what an earlier step said, and a paragraph."""
_FEW, _MORE = 1, 4
_PASSES = 3

_measured: dict[str, "Future[float]"] = {}
_lock = threading.Lock()
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pace")
"""It runs one measurement at a time: two would slow each other."""


@dataclass(frozen=True)
class Shape:
    """A model's architecture. ``kind`` is its name in transformers; ``config`` has its sizes, as in ``config.json``."""

    kind: str
    parameters: int
    config: Mapping[str, Any]


def measure_soon(name: str, shape: Shape) -> None:
    """Begins ``answer_seconds`` in the background, once a process for each name."""
    with _lock:
        if name not in _measured:
            _measured[name] = _thread.submit(_logged, name, shape)


def _logged(name: str, shape: Shape) -> float:
    try:
        return answer_seconds(shape)
    except Exception:
        log.exception("what an answer of %s takes here could not be measured", name)
        raise


def known_s(name: str) -> float | None:
    """Returns the seconds that were measured; None if there was no measurement, or it failed."""
    found = _measured.get(name)
    return found.result() if found is not None and found.done() and found.exception() is None else None


def is_measured(name: str) -> bool:
    """Tells whether the measurement goes on or waits for its turn."""
    found = _measured.get(name)
    return found is not None and not found.done()


def answer_seconds(shape: Shape) -> float:
    """Returns the seconds for ``WRITTEN_TOKENS`` tokens after ``READ_TOKENS``, on the device the model would have."""
    config = tuple(sorted(shape.config.items()))
    layers = int(shape.config["num_hidden_layers"])
    few, more = (_timed(shape.kind, shape.parameters, config, count) for count in (_FEW, _MORE))
    return sum(
        tokens * (one + max(0.0, other - one) / (_MORE - _FEW) * (layers - _FEW))
        for tokens, one, other in zip((1, WRITTEN_TOKENS), few, more, strict=True)
    )


@cache
def _timed(kind: str, parameters: int, config: tuple[tuple[str, Any], ...], layers: int) -> tuple[float, float]:
    """Returns the seconds to read the prompt, and to write one token, with so many layers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    placement = place(parameters)
    small = AutoConfig.for_model(kind, **dict(config) | {"num_hidden_layers": layers})
    with torch.device("meta"):
        dtype = getattr(torch, placement.dtype)
        model: Any = AutoModelForCausalLM.from_config(small, dtype=dtype)  # type: ignore[no-untyped-call]
    model = model.to_empty(device=placement.device).eval()
    with torch.inference_mode():
        for each in (*model.parameters(), *model.buffers()):
            each.zero_()
        asked = torch.zeros((1, READ_TOKENS), dtype=torch.long, device=placement.device)
        read_s, written_s = [], []
        for _ in range(_PASSES):
            began = perf_counter()
            cache = model(asked, use_cache=True, logits_to_keep=1).past_key_values
            read_s.append(perf_counter() - began)
            began = perf_counter()
            model(asked[:, :1], past_key_values=cache, use_cache=True).logits[0, -1, 0].item()
            written_s.append(perf_counter() - began)
    return min(read_s), min(written_s)

"""Times a model's architecture with few layers, all weights zero. Imports torch.

It builds the architecture twice: the difference is what a layer takes, and the rest is what the vocabulary takes.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from conductor_core.inference.generation import InferenceError
from conductor_core.inference.hardware import free_ram_bytes, place, precision_name
from conductor_core.inference.model import choose_threads

READ_TOKENS = 256
_FEW, _MORE = 1, 4
_PASSES = 3

Notify = Callable[[int, int], None]


def trial(kind: str, parameters: int, config: Mapping[str, Any], notify: Notify) -> tuple[float, float, str]:
    """Returns the seconds for a token that is read, and for one that is written, and the precision of the weights.

    The model is timed on the device that it would have. ``notify`` learns how many passes of how
    many are done. Raises: InferenceError if the architecture is not known here or has no room; what ``notify`` raises.
    """
    if type(layers := config.get("num_hidden_layers")) is not int or layers < 1:
        raise InferenceError("it cannot be timed: its config.json does not say how many layers it has")
    done = 0

    def passed() -> None:
        nonlocal done
        notify(done, 2 * _PASSES)
        done += 1

    passed()
    placement = place(parameters)
    torch.set_num_threads(choose_threads(parameters))

    def build(layers: int) -> Any:
        return _model(kind, config, layers, placement.dtype)

    few, more = (_timed(build(count), placement.device, passed) for count in (_FEW, _MORE))
    read, written = (
        one + max(0.0, other - one) / (_MORE - _FEW) * (layers - _FEW) for one, other in zip(few, more, strict=True)
    )
    return read / READ_TOKENS, written, precision_name(placement)


def _timed(model: Any, device: str, passed: Callable[[], None]) -> tuple[float, float]:
    """Returns the seconds to read the prompt, and to write one token. ``model`` has no memory for its weights yet."""
    _require_room(model, device)
    model = model.to_empty(device=device).eval()
    with torch.inference_mode():
        for each in (*model.parameters(), *model.buffers()):
            each.zero_()
        asked = torch.zeros((1, READ_TOKENS), dtype=torch.long, device=device)
        read_s, written_s = [], []
        for _ in range(_PASSES):
            began = perf_counter()
            read = model(asked, use_cache=True, logits_to_keep=1)
            read.logits[0, -1, 0].item()  # a graphics card has read by then
            cache = read.past_key_values
            read_s.append(perf_counter() - began)
            began = perf_counter()
            model(asked[:, :1], past_key_values=cache, use_cache=True).logits[0, -1, 0].item()
            written_s.append(perf_counter() - began)
            passed()
    return min(read_s), min(written_s)


def _model(kind: str, config: Mapping[str, Any], layers: int, dtype: str) -> Any:
    """Builds the architecture without memory for its weights. Raises: InferenceError."""
    try:
        small = AutoConfig.for_model(kind, **dict(config) | {"num_hidden_layers": layers})
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                small, dtype=getattr(torch, dtype), trust_remote_code=False
            )
    except Exception as error:  # a configuration from elsewhere makes the library raise anything
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InferenceError(f"it cannot be timed: {first[:200]}") from error


def _require_room(model: Any, device: str) -> None:
    """Raises: InferenceError where a configuration describes more than this machine can hold."""
    needed = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    free = free_ram_bytes() if device == "cpu" else None
    if free is not None and needed > 0.9 * free:
        raise InferenceError(
            f"it cannot be timed now: the measurement needs {needed / 1e9:.1f} GB of memory, "
            f"{free / 1e9:.1f} GB are free"
        )

"""Loads a model's weights, tells how far it is, and ends when nobody waits any more. Imports transformers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from conductor_core.chat.progress import Notify
from conductor_core.inference.generation import Interrupted, Meter, ModelUnavailable
from conductor_core.inference.hardware import SMALL_PARAMETERS
from conductor_core.inference.source import ModelFiles

_BAR = "Loading weights"
"""What transformers calls the bar of its one pass over all weights."""


def load_weights(
    files: ModelFiles, dtype: torch.dtype | Literal["auto"], notify: Notify, cancelled: Callable[[], bool]
) -> Any:
    """Returns the model of ``files``, on the processor. Its weights are in ``dtype``; ``auto``: as in its files.

    Raises: ModelUnavailable if weights are missing, Interrupted once ``cancelled``, and what transformers raises.
    """
    with progress_reported_to(files.folder, notify, cancelled):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            # Mapped files make large models load at once and share the page cache; but a small one may be trained anew
            # in place, and a mapped file that shrinks ends the process.
            disable_mmap=files.parameters < SMALL_PARAMETERS,
        )
    model, report = loaded
    if report["missing_keys"]:
        # transformers would fill them with random numbers.
        raise ModelUnavailable(f"{files.folder} lacks weights, among them {sorted(report['missing_keys'])[0]}")
    return model.eval()


def to_device(model: Any, device: str, notify: Notify, cancelled: Callable[[], bool]) -> Any:
    """Returns ``model`` on ``device``. Its parts move one by one: those of a 7B take two seconds to a graphics card.

    Raises: Interrupted, before the next part, once ``cancelled``.
    """
    if device == "cuda":
        # The same plan must come out again. cuDNN's attention rounds otherwise from pass to pass (decision 0227).
        torch.backends.cuda.enable_cudnn_sdp(False)
    if device != "cpu":
        parts = [part for part in model.modules() if next(part.children(), None) is None]
        meter, done = Meter("loading", sum(map(_bytes, parts)), notify), 0
        for part in parts:
            if cancelled():
                raise Interrupted
            meter.at(done)
            part.to(device)
            done += _bytes(part)
        meter.at(done)
    return model.to(device)


def _bytes(part: torch.nn.Module) -> int:
    return sum(each.nbytes for each in (*part.parameters(), *part.buffers()))


@contextmanager
def progress_reported_to(folder: Path, notify: Notify, cancelled: Callable[[], bool]) -> Iterator[None]:
    """While transformers loads the model in ``folder``, ``notify`` learns the bytes loaded. One model at a time.

    Raises: Interrupted, before the next tensor, once ``cancelled``.
    """
    sizes = _tensor_bytes(folder)

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("desc") == _BAR and args:
            return _counted(args[0], sizes, notify, cancelled)
        return factory(*args, **kwargs)

    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)


def _counted(weights: Any, sizes: dict[str, int], notify: Notify, cancelled: Callable[[], bool]) -> Iterator[Any]:
    """Yields each of ``weights``, pairs that begin with a name. A name that the files lack counts as the mean size."""
    items = list(weights)
    total = sum(sizes.values())
    mean = total / max(1, len(items))
    done = 0.0
    meter = Meter("loading", total, notify)
    for item in items:
        if cancelled():
            raise Interrupted
        meter.at(min(total, round(done)))
        yield item
        done += sizes.get(item[0], mean) if isinstance(item, tuple) else mean
    meter.at(total)


def _tensor_bytes(folder: Path) -> dict[str, int]:
    """Returns the bytes of each tensor, by the headers of its files, which ``source`` has checked."""
    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                first, end = entry["data_offsets"]
                sizes[name] = end - first
    return sizes

"""Finds out which precision writes quicker on this machine, and how prompts are best read with it. Imports torch.

Nothing is decided by a processor's name. A trial takes about a second, and its outcome is kept: a choice that changed
with the load of the machine would change plans.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import process_time
from typing import Any, get_args

import torch
from pydantic import Field, ValidationError

from conductor_core.inference.quantization.linear import Int4Linear, Int8Linear, Reading
from conductor_core.precision import Packed
from conductor_core.workflow.model import Frozen

log = logging.getLogger(__name__)

WORTH_IT = 0.8
"""Packed weights are taken for speed if a token takes at most this share of its time: conversion and disk cost, too."""
_FEW = (4, 8, 16, 32, 64)
_COLD_BYTES = 128 * 2**20
"""More than a processor's caches hold: of a model that is larger than they are, each weight is read from memory."""
_BYTES = {"bfloat16": 2.0, "float32": 4.0, "int8": 1.0, "int4": 0.5}
_GROUP = 128
_READ_ROWS = 2048
_REPEATS = 3


class Trial(Frozen):
    """What was measured, in milliseconds of processor time of one product.

    Attributes:
        token_ms: with one vector, by number format or precision (``bfloat16``, ``float32``, ``int8``, ``int4``).
        few: of each precision the most vectors for which the packed weights are used as they are.
        read: the number format with which prompts are read quicker.
    """

    token_ms: dict[str, float]
    few: dict[Packed, int]
    read: str = Field(pattern="^(bfloat16|float32)$")

    def packed_for_speed(self, dtype: str) -> Packed | None:
        """Returns what ``auto`` takes in place of weights in ``dtype``; None: it leaves them.

        int8 or nothing: int4 changes one token in several, and only a person may choose that for speed.
        """
        return "int8" if self.token_ms["int8"] <= WORTH_IT * self.token_ms[dtype] else None

    def reading(self, precision: Packed, dtype: torch.dtype) -> Reading:
        """``dtype``: the model's own. One in float32 stays exact."""
        return Reading(self.few[precision], dtype if dtype == torch.float32 else getattr(torch, self.read))


def kept_trial(folder: Path, rows: int, columns: int) -> Trial:
    """Returns the outcome of the trial with a weight of that shape; it is made unless ``folder`` has it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    of = [torch.__version__, torch.backends.cpu.get_cpu_capability(), cores, rows, columns]
    path = folder / f"trial-{hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]}.json"
    try:
        return Trial.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValidationError) as error:
        log.warning("%s is made again: %s", path, str(error).splitlines()[0])
    trial = measured(rows, columns)
    log.info("a product of %d x %d weights takes %s ms", rows, columns, trial.token_ms)
    fresh = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # the next start measures again
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(trial.model_dump_json())
        fresh.replace(path)
    return trial


@torch.inference_mode()
def measured(rows: int, columns: int) -> Trial:
    """Measures products with a weight (rows, columns), with the threads that torch has now."""
    rows, columns = max(64, rows - rows % 64), max(_GROUP, columns - columns % _GROUP)
    token_ms = {name: _token_ms(name, rows, columns) for name in _BYTES}
    read = min(("bfloat16", "float32"), key=lambda name: _best_ms([_product(name, _READ_ROWS, columns)], name, 64))
    return Trial(token_ms=token_ms, few={each: _most_few(each, columns, read) for each in get_args(Packed)}, read=read)


def _token_ms(name: str, rows: int, columns: int) -> float:
    """Returns the milliseconds of a product with one vector, with weights that no cache holds."""
    copies = max(1, round(_COLD_BYTES / (rows * columns * _BYTES[name])))
    return _best_ms([_product(name, rows, columns) for _ in range(copies)], name, 1)


def _most_few(precision: Packed, columns: int, read: str) -> int:
    layer = _product(precision, _READ_ROWS, columns)
    few = _FEW[0]
    for count in _FEW:
        layer.reading = Reading(count, getattr(torch, read))
        packed_ms = _best_ms([layer], precision, count)
        layer.reading = Reading(0, getattr(torch, read))
        if _best_ms([layer], precision, count) < packed_ms:
            break
        few = count
    return few


def _product(name: str, rows: int, columns: int) -> Any:
    """Returns a layer with weights of that number format or precision; their values do not matter."""
    if name in ("bfloat16", "float32"):
        layer = torch.nn.Linear(columns, rows, bias=False, dtype=getattr(torch, name), device="meta").to_empty(
            device="cpu"
        )
        layer.weight.fill_(1.0)
        return layer
    kind, dtype, width = (
        (Int8Linear, torch.int8, columns) if name == "int8" else (Int4Linear, torch.uint8, columns // 2)
    )
    scales = torch.ones((rows,) if name == "int8" else (columns // _GROUP, rows, 2), dtype=torch.bfloat16)
    weight = torch.ones(rows, width, dtype=dtype)
    return kind(weight, scales, None, torch.Size((rows, columns)), Reading(_FEW[0], torch.bfloat16))


def _best_ms(products: Sequence[Any], name: str, count: int) -> float:
    """Returns the least processor time of one of ``products`` with ``count`` vectors, of several passes over all.

    Other programs change it little: the choice lasts longer than their load.
    """
    inputs = products[0].in_features
    vectors = torch.ones(count, inputs, dtype=torch.float32 if name == "float32" else torch.bfloat16)
    best_s = inf
    for _ in range(_REPEATS):
        began = process_time()
        for product in products:
            product(vectors)
        best_s = min(best_s, process_time() - began)
    return 1000 * best_s / len(products)

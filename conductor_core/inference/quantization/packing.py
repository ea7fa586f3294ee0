"""Packs weights into integers with scales, and finds out how torch lays out 4-bit ones. Imports torch.

int8: one scale a row (output), weight = integer * scale.
int4: a scale and a zero for each group of weights of a row, weight = (integer - 8) * scale + zero.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from conductor_core.precision import Packed

_GROUPS = (128, 64, 32)
"""Sizes of groups that torch's kernel knows, and that we use: the largest that divides a row."""
_WEIGHTS_AT_ONCE = 2**20
"""Weights that are packed at once: what it takes stays in a processor's cache, and a cancellation is seen at once."""
_BLOCK_ROWS = 64
"""The most rows of a block of torch's layout: what is packed at once holds whole blocks."""
_LEAST_SCALE = 1e-8
"""Of a row or group without a range: it may not be divided by zero."""
_aten = torch.ops.aten


BeforePart = Callable[[int], None]
"""Is called before so many bytes of weights are packed; what it raises ends the packing."""


def _nothing(_: int) -> None:
    """Nobody wants to know."""


class NibbleLayout(NamedTuple):
    """How two 4-bit weights share a byte. Rows come in blocks; a block is (columns, rows / 2) bytes.

    ``halves``: the low nibbles are the first half of a block's rows; otherwise its even rows.
    """

    rows: int
    halves: bool


def group_of(columns: int) -> int | None:
    """Returns how many weights of a row share a scale in int4; None for a row that cannot be divided."""
    return next((group for group in _GROUPS if columns % group == 0), None)


def packable(rows: int, columns: int, precision: Packed) -> bool:
    """Tells whether torch's kernel takes a weight of this shape. That for int8 reads beyond other rows' ends."""
    return group_of(columns) is not None and (precision == "int8" or rows % _BLOCK_ROWS == 0)


@torch.no_grad()
def pack_int8(
    weight: torch.Tensor, dtype: torch.dtype, before_part: BeforePart = _nothing
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns integers (rows, columns) and scales (rows) in ``dtype``.

    Raises: ValueError for what is not finite; what ``before_part`` raises.
    """
    packed = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight), dtype=dtype)
    for part in _parts(weight):
        before_part(weight[part].nbytes)
        exact = weight[part].float()
        # Rounded first: the integers then make up for what the scale lost.
        scales[part] = (_finite(exact.abs().amax(1)) / 127).clamp(min=_LEAST_SCALE).to(dtype)
        packed[part] = (exact / scales[part].float()[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    return packed, scales


@torch.no_grad()
def pack_int4(
    weight: torch.Tensor, dtype: torch.dtype, before_part: BeforePart = _nothing
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns bytes (rows, columns / 2) in torch's layout, and scales and zeros (groups, rows, 2).

    Raises: as ``pack_int8``.
    """
    rows, columns = weight.shape
    group = group_of(columns)
    if group is None:
        raise ValueError(f"rows of {columns} weights cannot be divided into groups")
    packed = torch.empty(rows, columns // 2, dtype=torch.uint8)
    scales = torch.empty(columns // group, rows, 2, dtype=dtype)
    for part in _parts(weight):
        before_part(weight[part].nbytes)
        exact = weight[part].float().view(-1, columns // group, group)
        least, most = _finite(exact.amin(2)), _finite(exact.amax(2))
        scale = ((most - least) / 15).clamp(min=_LEAST_SCALE).to(dtype)
        zero = (least + 8 * scale.float()).to(dtype)
        integers = ((exact - zero.float()[..., None]) / scale.float()[..., None]).round_().add_(8).clamp_(0, 15)
        packed[part] = _aten._convert_weight_to_int4pack_for_cpu(integers.view(-1, columns).int(), 1)
        scales[:, part, 0], scales[:, part, 1] = scale.T, zero.T
    return packed, scales


def _parts(weight: torch.Tensor) -> list[slice]:
    rows, columns = weight.shape
    at_once = max(1, _WEIGHTS_AT_ONCE // columns // _BLOCK_ROWS) * _BLOCK_ROWS
    return [slice(first, min(first + at_once, rows)) for first in range(0, rows, at_once)]


def _finite(values: torch.Tensor) -> torch.Tensor:
    if not bool(values.isfinite().all()):
        raise ValueError("a weight is not a finite number")
    return values


@cache
def nibble_layout() -> NibbleLayout | None:
    """Returns the layout on this processor, found by packing a weight that is known; None: an unknown one."""
    rows, columns = 192, 32
    known = torch.randint(0, 16, (rows, columns), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    packed = _aten._convert_weight_to_int4pack_for_cpu(known, 1)
    for layout in (NibbleLayout(n, halves) for n in (64, 32, 16) for halves in (True, False)):
        blocks = packed.view(-1, columns, layout.rows // 2)
        nibbles = torch.stack((blocks & 15, blocks >> 4), 2 if layout.halves else 3)
        if torch.equal(nibbles.reshape(-1, columns, layout.rows).transpose(1, 2).reshape(rows, columns).int(), known):
            return layout
    return None

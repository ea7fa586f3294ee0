"""Layers with packed weights that take the place of ``nn.Linear``. Imports torch.

For few vectors, such as a token or a draft, torch's kernels for packed weights are bound by the bytes that they read,
and win. For many, as while a prompt is read, arithmetic counts, and those kernels are two to three times slower than a
product in bfloat16: then the weights are unpacked, in blocks that fit the processor's caches.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

from conductor_core.inference.quantization.packing import NibbleLayout, nibble_layout

_INT8_ROWS, _INT4_ROWS = 2048, 512
"""Rows of a weight that are unpacked at once."""
_aten = torch.ops.aten


@dataclass(frozen=True)
class Reading:
    """How many vectors are read at once.

    Attributes:
        few: up to so many vectors the packed weights are used as they are.
        dtype: the number format of unpacked weights: float32 where the processor has no quick bfloat16.
    """

    few: int
    dtype: torch.dtype


class PackedLinear(nn.Module, ABC):
    """What both kinds share. ``weight`` and ``scales`` are as ``packing`` makes them."""

    weight: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self, weight: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None, shape: torch.Size, reading: Reading
    ) -> None:
        """``shape``: outputs, inputs."""
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)
        self.out_features, self.in_features = shape
        self.reading = reading

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        vectors = given.reshape(-1, self.in_features)
        if len(vectors) <= self.reading.few:
            product = self._few(vectors)
        else:
            product = self._many(vectors.to(self.reading.dtype)).to(given.dtype)
        if self.bias is not None:
            product = product + self.bias
        return product.view(*given.shape[:-1], self.out_features)

    @abstractmethod
    def _few(self, vectors: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def _many(self, vectors: torch.Tensor) -> torch.Tensor: ...


class Int8Linear(PackedLinear):
    def _few(self, vectors: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _aten._weight_int8pack_mm(vectors.contiguous(), self.weight, self.scales)
        return product

    def _many(self, vectors: torch.Tensor) -> torch.Tensor:
        product = vectors.new_empty(len(vectors), self.out_features)
        for first in range(0, self.out_features, _INT8_ROWS):
            part = slice(first, first + _INT8_ROWS)
            product[:, part] = vectors @ self.weight[part].to(vectors.dtype).T
        return product.mul_(self.scales)


class Int4Linear(PackedLinear):
    @property
    def _group(self) -> int:
        return self.in_features // len(self.scales)

    def _few(self, vectors: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _aten._weight_int4pack_mm_for_cpu(
            vectors.contiguous(), self.weight, self._group, self.scales
        )
        return product

    def _many(self, vectors: torch.Tensor) -> torch.Tensor:
        layout = nibble_layout()
        if layout is None:
            return self._few(vectors)
        return self._unpacked(vectors, layout)

    def _unpacked(self, vectors: torch.Tensor, layout: NibbleLayout) -> torch.Tensor:
        """Returns the product by (integer - 8) * scale, and by the zeros of whole groups."""
        count, groups, half = len(vectors), len(self.scales), layout.rows // 2
        blocks = self.weight.view(-1, self.in_features, half)
        zeros = self.scales[..., 1].to(vectors.dtype)
        product = vectors.view(count, groups, self._group).sum(2) @ zeros
        # Low nibbles are the first half of a block's rows or its even ones, high nibbles the others.
        pair = (2, half) if layout.halves else (half, 2)
        nibble_axis = 2 if layout.halves else 3
        parts = product.view(count, len(blocks), *pair)
        scales = self.scales[..., 0].view(groups, len(blocks), *pair)
        at_once = max(1, _INT4_ROWS // layout.rows)
        for first in range(0, len(blocks), at_once):
            some = slice(first, first + at_once)
            packed = blocks[some].transpose(0, 1).contiguous().view(self.in_features, -1)
            for nibble, integers in enumerate((packed & 15, packed >> 4)):
                weights = integers.view(torch.int8).sub_(8).to(vectors.dtype)
                scale = scales[:, some].select(nibble_axis, nibble).reshape(groups, 1, -1)
                weights.view(groups, self._group, -1).mul_(scale)
                parts[:, some].select(nibble_axis, nibble).add_((vectors @ weights).view(count, -1, half))
        return product

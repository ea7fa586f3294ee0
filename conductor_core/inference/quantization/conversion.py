"""Packs the weights of a loaded model, layer by layer, and puts packed layers in place of its own. Imports torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from conductor_core.chat.progress import Notify
from conductor_core.inference.generation import Interrupted, Meter, ModelUnavailable
from conductor_core.inference.quantization.linear import Int4Linear, Int8Linear, Reading
from conductor_core.inference.quantization.packed_file import Form
from conductor_core.inference.quantization.packing import group_of, pack_int4, pack_int8, packable
from conductor_core.precision import Packed

_LEAST_SHARE = 0.5
"""Of the weights beside the embedding. Some architectures keep them in other layers than ``nn.Linear``."""


class Layer(NamedTuple):
    """A layer that will be packed."""

    rows: int
    columns: int
    precision: Packed

    def forms(self, name: str, dtype: torch.dtype) -> dict[str, Form]:
        """Returns what its tensors are called and look like; ``dtype`` is that of the scales."""
        if self.precision == "int8":
            weight, scales = Form(torch.int8, (self.rows, self.columns)), Form(dtype, (self.rows,))
        else:
            weight = Form(torch.uint8, (self.rows, self.columns // 2))
            scales = Form(dtype, (self.columns // (group_of(self.columns) or 1), self.rows, 2))
        return {f"{name}.weight": weight, f"{name}.scales": scales}


def layers_to_pack(model: Any, precision: Packed) -> dict[str, Layer]:
    """Returns the layers that will be packed, by name.

    The embedding stays: few of its rows are read. In int4 the output layer becomes int8, since the choice of each token
    hangs on it, and so do layers whose shape the kernel for int4 refuses. What that for int8 refuses stays, too.

    Raises: ModelUnavailable if too few weights could be packed.
    """
    head = model.get_output_embeddings()
    found = {}
    for name, part in model.named_modules():
        if type(part) is not nn.Linear:
            continue
        rows, columns = part.weight.shape
        wanted: tuple[Packed, ...] = ("int8",) if precision == "int8" or part is head else ("int4", "int8")
        fitting = next((each for each in wanted if packable(rows, columns, each)), None)
        if fitting is not None:
            found[name] = Layer(rows, columns, fitting)
    embedding = model.get_input_embeddings().weight.numel()
    others = sum(each.numel() for each in model.parameters()) - embedding
    if sum(each.rows * each.columns for each in found.values()) < _LEAST_SHARE * others:
        raise ModelUnavailable(f"most weights of a {model.config.model_type} model cannot be kept in {precision}")
    return found


def packed_tensors(
    model: Any, layers: Mapping[str, Layer], dtype: torch.dtype, notify: Notify, cancelled: Callable[[], bool]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the packed tensors of ``layers``, one layer in memory at a time.

    Raises: Interrupted once ``cancelled``, ModelUnavailable for a weight that is not finite.
    """
    weights = {name: model.get_submodule(name).weight for name in layers}
    meter = Meter("converting", sum(each.nbytes for each in weights.values()), notify)
    done = 0

    def before_part(part_bytes: int) -> None:
        nonlocal done
        if cancelled():
            raise Interrupted
        meter.at(done)
        done += part_bytes

    for name, layer in layers.items():
        pack = pack_int8 if layer.precision == "int8" else pack_int4
        try:
            weight, scales = pack(weights[name], dtype, before_part)
        except ValueError as error:
            raise ModelUnavailable(f"{name} cannot be kept in {layer.precision}: {error}") from error
        yield f"{name}.weight", weight
        yield f"{name}.scales", scales
    meter.at(done)


def put_in_place(
    model: Any, layers: Mapping[str, Layer], tensors: Mapping[str, torch.Tensor], readings: Mapping[Packed, Reading]
) -> None:
    """Replaces ``layers`` of ``model`` by packed ones. A tied embedding keeps its own weights."""
    for name, layer in layers.items():
        parent, _, last = name.rpartition(".")
        bias = model.get_submodule(name).bias
        kind = Int8Linear if layer.precision == "int8" else Int4Linear
        weight, scales = tensors[f"{name}.weight"], tensors[f"{name}.scales"]
        dtype = scales.dtype
        packed = kind(
            weight,
            scales,
            None if bias is None else bias.detach().to(dtype),
            torch.Size((layer.rows, layer.columns)),
            readings[layer.precision],
        )
        setattr(model.get_submodule(parent), last, packed)

"""How much memory a model needs at each precision that it could have here. It loads no torch."""

from dataclasses import dataclass
from typing import get_args

from conductor_core.inference.hardware import SMALL_PARAMETERS, Memory, Placement, needed_bytes, place
from conductor_core.precisions import Precision


@dataclass(frozen=True)
class Need:
    """What a model needs at one precision, in bytes, and whether the memory that it would run in has that."""

    precision: str
    needed_bytes: int
    fits: bool


def needs(parameters: int) -> tuple[tuple[Need, ...], Memory]:
    """Returns what a model of so many parameters needs, widest precision first, and the memory it would run in.

    A small model and one on a graphics card have one precision alone: that of ``place``.
    """
    placement = place(parameters)
    first = Need(precision_name(placement), placement.needed_bytes, placement.fits)
    if parameters < SMALL_PARAMETERS or placement.device != "cpu":
        return (first,), placement.memory
    on_cpu = {precision: needed_bytes(parameters, precision) for precision in get_args(Precision)}
    found = [Need(name, each, placement.memory.holds(each)) for name, each in on_cpu.items() if name != first.precision]
    return (first, *found), placement.memory


def precision_name(placement: Placement) -> str:
    """Returns what to call the number format of weights that are not packed."""
    return "bf16" if placement.dtype == "bfloat16" else placement.dtype

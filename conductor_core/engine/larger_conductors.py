"""Finds models of this machine that could plan in place of the shipped Conductor."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from conductor_core.chat import WorkerSpec
from conductor_core.conductors.catalogue import TINY, ConductorOption

LEAST_PARAMETERS = 1_000_000_000
"""Of a model that is proposed: those of the small pool are workers, and nobody has measured them as Conductors."""
_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?)\s?b(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class LargerConductor:
    """Attributes: ref: as ``open_conductor`` takes it. parameters: those that its name says, of one on a server."""

    ref: str
    name: str
    where: str
    parameters: int


def larger_conductors(options: Iterable[ConductorOption], served: Iterable[WorkerSpec]) -> tuple[LargerConductor, ...]:
    """Returns the models that are here and run: those on servers first, the largest first. Downloads nothing."""
    found = [
        LargerConductor(f"{spec.base_url}#{spec.model}", spec.model, spec.description.rpartition("served by ")[2], size)
        for spec in served
        if (size := parameters_by_name(spec.model)) >= LEAST_PARAMETERS
    ]
    found.sort(key=lambda each: -each.parameters)
    here = [
        LargerConductor(option.ref, option.name, "this machine's disk", option.parameters)
        for option in options
        if option.ref != TINY and option.downloaded and option.runnable and option.parameters >= LEAST_PARAMETERS
    ]
    return (*found, *sorted(here, key=lambda each: -each.parameters))


def parameters_by_name(model: str) -> int:
    """Returns 7,000,000,000 for ``qwen2.5:7b-instruct``; 0 if the name does not say."""
    sizes = _SIZE.findall(model)
    return int(float(sizes[-1]) * 1e9) if sizes else 0

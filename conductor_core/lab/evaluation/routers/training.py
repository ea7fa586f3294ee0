"""Helpers for the training of RouterDC and MasRouter. Imports torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from conductor_core.lab.evaluation.routers.encoder import Arrays

Module = TypeVar("Module", bound=nn.Module)


@contextmanager
def reproducible(seed: int) -> Iterator[torch.Generator]:
    """Sets one thread and the seed of torch, so that the same rows give the same router. Restores both afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield torch.default_generator
    finally:
        torch.set_num_threads(threads)


def numbers_of(module: nn.Module) -> Arrays:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def with_numbers(build: Callable[[], Module], numbers: Arrays) -> Module:
    """Builds a module with these weights, in evaluation mode. Raises: RuntimeError if they are not its own."""
    with reproducible(0):  # it is built with random weights, which must not change other draws
        module = build()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in numbers.items()})
    return module.eval()

"""Helpers for the training of RouterDC and MasRouter. Imports torch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.encoder import TfidfEncoder, read, read_encoder, write

_PREFIX = "module."

Config = TypeVar("Config")
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


def save_module(
    folder: Path, kind: str, *, agents: Sequence[str], config: Any, encoder: TfidfEncoder, module: nn.Module
) -> None:
    """Saves a router of one torch module above an encoder to a folder; ``config`` is a dataclass. Raises: OSError."""
    numbers = {f"{_PREFIX}{name}": value.numpy() for name, value in module.state_dict().items()}
    document = {"agents": agents, "config": asdict(config), **encoder.document()}
    write(folder, kind, document, {**numbers, **encoder.arrays()})


def load_module(
    folder: Path,
    kind: str,
    config_of: Callable[..., Config],
    build: Callable[[TfidfEncoder, Sequence[str], Config], Module],
) -> tuple[list[str], TfidfEncoder, Module, Config]:
    """Loads agents, encoder, module (in evaluation mode) and config that ``save_module`` wrote. Raises: BadInput."""
    document, arrays = read(folder, kind)
    encoder = read_encoder(document, arrays)
    try:
        config, agents = config_of(**document["config"]), document["agents"]
        module = build(encoder, agents, config)
        numbers = {name: torch.from_numpy(array) for name, array in arrays.items() if name.startswith(_PREFIX)}
        module.load_state_dict({name.removeprefix(_PREFIX): value for name, value in numbers.items()})
    except (KeyError, TypeError, RuntimeError) as error:
        raise BadInput(f"{folder} holds no {kind} router that is whole: {error}") from error
    return agents, encoder, module.eval(), config

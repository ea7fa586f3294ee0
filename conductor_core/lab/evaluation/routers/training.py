"""Helpers for the training of RouterDC and MasRouter. Imports torch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

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


class OfOneModule(Generic[Module, Config]):
    """A fitted router of one torch module above an encoder. ``config`` is a dataclass.

    Attributes:
        kind: its name in files. config_of: the class of its config. build: makes its module, untrained.
    """

    kind: str
    config_of: type
    build: Callable[..., Any]

    def __init__(self, agents: Sequence[str], encoder: TfidfEncoder, module: Module, config: Config) -> None:
        self.agents = tuple(agents)
        self._encoder, self._module, self._config = encoder, module, config

    def save(self, folder: Path) -> None:
        """Raises: OSError."""
        numbers = {f"{_PREFIX}{name}": value.numpy() for name, value in self._module.state_dict().items()}
        document = {"agents": self.agents, "config": vars(self._config), **self._encoder.document()}
        write(folder, self.kind, document, {**numbers, **self._encoder.arrays()})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads what ``save`` wrote, with the module in evaluation mode. Raises: BadInput."""
        document, arrays = read(folder, cls.kind)
        encoder = read_encoder(document, arrays)
        try:
            config, agents = cls.config_of(**document["config"]), document["agents"]
            module = cls.build(encoder, agents, config)
            numbers = {name: torch.from_numpy(array) for name, array in arrays.items() if name.startswith(_PREFIX)}
            module.load_state_dict({name.removeprefix(_PREFIX): value for name, value in numbers.items()})
        except (KeyError, TypeError, RuntimeError) as error:
            raise BadInput(f"{folder} holds no {cls.kind} router that is whole: {error}") from error
        return cls(agents, encoder, module.eval(), config)

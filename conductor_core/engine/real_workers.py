"""Lists what this machine can answer with besides the simulation: servers, keys, and small models in this process.

These are the offers for a first question of one's own that met the simulated workers, best first.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conductor_core.chat import WorkerSpec
from conductor_core.engine.catalogue import conductors_file_text, pool_file_text
from conductor_core.engine.pool import read_specs
from conductor_core.errors import BadInput
from conductor_core.inference import pace
from conductor_core.inference.downloads import Download, downloads
from conductor_core.inference.hardware import Memory, place
from conductor_core.inference.pace import WRITTEN_TOKENS, Shape
from conductor_core.keys import is_set
from conductor_core.settings import Settings

__all__ = [
    "WRITTEN_TOKENS",
    "Download",
    "SmallModel",
    "begin",
    "keyed_workers",
    "pause",
    "save_conductors",
    "save_pool",
    "small_models",
    "time_answers",
]

SMALL_POOL = "small"

_QWEN2_5 = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}
_QWEN3 = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}
_SHAPES = {
    "Qwen/Qwen2.5-0.5B-Instruct": (Shape("qwen2", 494_032_768, _QWEN2_5), 0.99e9),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": (Shape("qwen2", 494_032_768, _QWEN2_5), 0.99e9),
    "Qwen/Qwen3-0.6B": (Shape("qwen3", 596_049_920, _QWEN3), 1.5e9),
}
"""The models of the pool: their config.json on the hub, and the bytes of their weights until the hub is asked."""


@dataclass(frozen=True)
class SmallModel:
    """A model of the small pool.

    Attributes:
        size_bytes: of its weights, on disk or to be downloaded.
        needed_bytes, memory: what it needs to run here, and of which memory.
        answer_s: measured seconds for an answer of ``WRITTEN_TOKENS`` tokens here; None until ``time_answers`` has
            measured it. timing: whether it is being measured.
    """

    spec: WorkerSpec
    parameters: int
    size_bytes: int
    needed_bytes: int
    memory: Memory
    answer_s: float | None
    timing: bool
    download: Download

    @property
    def fits(self) -> bool:
        return self.memory.holds(self.needed_bytes)


def keyed_workers() -> tuple[WorkerSpec, ...]:
    """Returns the workers of the paper's pool whose key is in the environment."""
    return tuple(spec for spec in read_specs("paper") if spec.api_key_env is not None and is_set(spec.api_key_env))


def small_models() -> tuple[SmallModel, ...]:
    """Returns the models of the small pool as they are now. Asks no server."""
    found = []
    for spec in read_specs(SMALL_POOL):
        shape, size_bytes = _SHAPES[spec.model]
        placement = place(shape.parameters)
        download = downloads().state(spec.model)
        found.append(
            SmallModel(
                spec=spec,
                parameters=shape.parameters,
                size_bytes=download.all_bytes or int(size_bytes),
                needed_bytes=placement.needed_bytes,
                memory=placement.memory,
                answer_s=pace.known_s(spec.model),
                timing=pace.is_measured(spec.model),
                download=download,
            )
        )
    return tuple(found)


def time_answers() -> None:
    """Begins to measure how long an answer of each model takes here, unless measured: some processor seconds."""
    for name, (shape, _) in _SHAPES.items():
        if place(shape.parameters).fits:
            pace.measure_soon(name, shape)


def begin(models: Sequence[SmallModel]) -> None:
    """Downloads the missing files of ``models`` in the background, continuing where it stopped."""
    downloads().begin([model.spec.model for model in models])


def pause(models: Sequence[SmallModel]) -> None:
    downloads().pause([model.spec.model for model in models])


def save_pool(name: str, specs: Sequence[WorkerSpec], settings: Settings) -> Path:
    """Writes ``specs`` as the pool file ``name`` of the data folder, replacing its content. Raises: BadInput."""
    return _save(settings.pools_folder / f"{name}.toml", pool_file_text(specs), "pool file")


def save_conductors(name: str, specs: Iterable[WorkerSpec], settings: Settings) -> Path:
    """Saves the models of ``specs`` as the conductors file ``name``. Raises: BadInput."""
    return _save(settings.conductors_folder / f"{name}.toml", conductors_file_text(specs), "conductors file")


def _save(file: Path, text: str, what: str) -> Path:
    """Replaces the file as a whole: a full disk leaves the old content."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"the {what} {file} cannot be written: {error.strerror or error}") from error
    return file

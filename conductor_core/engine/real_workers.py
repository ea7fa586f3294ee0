"""Lists what this machine can answer with besides the simulation: servers, keys, and small models in this process.

These are the offers for a first question of one's own that met the simulated workers, best first.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.models import conductors_file_text, pool_file_text
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.inference.downloads import Download, downloads
from conductor_core.inference.hardware import Memory, place
from conductor_core.inference.pace import WRITTEN_TOKENS, paces
from conductor_core.inference.published import SMALL_WORKERS
from conductor_core.privacy.keys import is_set
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


def small_models(settings: Settings) -> tuple[SmallModel, ...]:
    """Returns the models of the small pool as they are now. Asks no server."""
    found = []
    for spec in read_specs(SMALL_POOL):
        known = SMALL_WORKERS[spec.model]
        shape, measured = known.shape, paces(settings.data_folder)
        pace = measured.known(shape)
        placement = place(shape.parameters)
        download = downloads().state(spec.model)
        found.append(
            SmallModel(
                spec=spec,
                parameters=shape.parameters,
                size_bytes=download.all_bytes or known.size_bytes,
                needed_bytes=placement.needed_bytes,
                memory=placement.memory,
                answer_s=None if pace is None else pace.answer_s,
                timing=measured.is_measured(shape),
                download=download,
            )
        )
    return tuple(found)


def time_answers(settings: Settings) -> None:
    """Begins to measure how long an answer of each model takes here, unless measured: some processor seconds."""
    for known in SMALL_WORKERS.values():
        if place(known.shape.parameters).fits:
            paces(settings.data_folder).measure_soon(known.shape)


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

"""Opens the workers of a run by name: the simulated pool, the paper's pool, or a pool file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conductor_core.chat import Worker, WorkerSpec
from conductor_core.endings import OnIncomplete
from conductor_core.errors import BadInput
from conductor_core.events import PoolInfo
from conductor_core.given_path import given_path, is_file, is_there
from conductor_core.pasted_keys import check_spec
from conductor_core.settings import Settings
from conductor_core.workers.pool_options import PoolFile

BUILT_IN_POOLS = ("rehearsal", "paper", "small")


@dataclass(frozen=True, slots=True)
class Pool:
    """Open workers.

    Attributes:
        workers: by name, in the order of the Conductor's ordinals.
        seed: of the simulated workers.
        excluded: names of the workers that were taken out, for the record.
        on_incomplete, give_question: what happens to a step whose answer is incomplete, and whether every step is told
            the task, unless a run says otherwise.
    """

    name: str
    workers: Mapping[str, Worker]
    seed: int = 0
    excluded: tuple[str, ...] = ()
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False

    @property
    def specs(self) -> tuple[WorkerSpec, ...]:
        return tuple(worker.spec for worker in self.workers.values())

    @property
    def info(self) -> PoolInfo:
        return PoolInfo(name=self.name, workers=self.specs, excluded=self.excluded)

    @property
    def simulated(self) -> bool:
        """Whether any worker is simulated. Then the run says so."""
        return any(spec.simulated for spec in self.specs)

    def without(self, names: tuple[str, ...]) -> "Pool":
        """See ``PoolInfo.without``."""
        left = self.info.without(names)
        workers = {spec.name: self.workers[spec.name] for spec in left.workers}
        return replace(self, workers=workers, excluded=left.excluded)

    def with_params(self, params: Mapping[str, Mapping[str, Any]], settings: Settings) -> "Pool":
        """Opens the pool anew with more parameters for the named workers: ``{"coder": {"max_tokens": 1}}``.

        A run on it records these parameters. Raises: BadInput for an unknown name.
        """
        unknown = [name for name in params if name not in self.workers]
        if unknown:
            raise BadInput(f"the pool {self.name} has no worker {', '.join(unknown)}; it has {', '.join(self.workers)}")
        specs = tuple(
            spec.model_copy(update={"params": {**spec.params, **params.get(spec.name, {})}}) for spec in self.specs
        )
        return reopen_pool(self.info.model_copy(update={"workers": specs}), settings, seed=self.seed)

    async def aclose(self) -> None:
        for worker in self.workers.values():
            await worker.aclose()


def read_specs(ref: str, settings: Settings | None = None) -> tuple[WorkerSpec, ...]:
    """Reads the workers of ``rehearsal``, ``paper``, ``small`` or a pool file, unopened, see ``read_pool``."""
    return read_pool(ref, settings).workers


def read_pool(ref: str, settings: Settings | None = None) -> PoolFile:
    """Reads ``rehearsal``, ``paper``, ``small`` or a pool file.

    Args:
        ref: as ``pool_file`` finds it. settings: by default those of the environment.

    Raises: PoolInvalid, with every fault; BadInput for a name without a file.
    """
    settings = settings or Settings()
    # Imported when used: a pool of one kind does not load the clients of the other.
    if ref == "rehearsal":
        from conductor_core.rehearsal import rehearsal_specs

        return PoolFile(rehearsal_specs())
    from conductor_core.workers.pool_file import POOL_FILES, read_pool_file

    if ref in POOL_FILES:
        return read_pool_file(POOL_FILES[ref])
    return read_pool_file(pool_file(ref, settings), settings.key_variables)


def pool_file(ref: str, settings: Settings) -> Path:
    """Returns the pool file that ``ref`` names: a path, or the name of a file in ``pools/`` of the data folder.

    Raises: BadInput for a name that is neither; it lists the existing names.
    """
    path, folder = given_path(ref), settings.pools_folder
    if is_file(path) or path.name != ref:
        return path
    own = folder / (ref if path.suffix == ".toml" else f"{ref}.toml")
    if is_file(own):
        return own
    if path.suffix or is_there(path):
        return path
    names = ", ".join(sorted(file.stem for file in folder.glob("*.toml") if file.is_file())) or "none yet"
    raise BadInput(f"no pool {ref[:80]!r}: name rehearsal, paper, small, a pool file, or one of {folder} ({names})")


def pool_info(ref: str | PoolInfo, settings: Settings, excluded: tuple[str, ...] = ()) -> PoolInfo:
    """Returns the workers that a run may call, without opening them.

    Args:
        ref: a name or file as ``read_pool`` takes it, or the pool of an earlier run.

    Raises: PoolInvalid; BadInput for an unknown name in ``excluded``, or a worker that ``open_worker`` refuses.
    """
    if isinstance(ref, str):
        ref = PoolInfo(name=_name(ref), workers=read_specs(ref, settings))
    for spec in ref.workers:
        check_spec(spec, settings.key_variables)
    return ref.without(excluded)


def _name(ref: str) -> str:
    return ref if ref in BUILT_IN_POOLS else Path(ref).stem


def open_pool(ref: str, settings: Settings, *, seed: int | None = None) -> Pool:
    """Opens ``rehearsal``, ``paper`` or a TOML file. Connects to nothing yet.

    Args:
        seed: of the simulated workers; by default the settings'.

    Raises: PoolInvalid, with every fault of the file.
    """
    read = read_pool(ref, settings)
    opened = reopen_pool(PoolInfo(name=_name(ref), workers=read.workers), settings, seed=seed)
    said = {key: value for key, value in read.options if value is not None}
    return replace(opened, **said)


def reopen_pool(info: PoolInfo, settings: Settings, *, seed: int | None = None) -> Pool:
    """Opens the workers of an earlier run as they were recorded.

    Raises: BadInput for a worker with a key in its fields, or in a variable that does not look like a key's.
    """
    seed = settings.seed if seed is None else seed
    workers = {spec.name: open_worker(spec, settings, seed) for spec in info.workers}
    return Pool(
        name=info.name,
        workers=workers,
        seed=seed,
        excluded=info.excluded,
        on_incomplete=settings.on_incomplete,
        give_question=settings.give_question,
    )


def open_worker(spec: WorkerSpec, settings: Settings, seed: int) -> Worker:
    """Opens one worker of any provider. Connects to nothing yet. ``seed``: of a simulated worker."""
    if spec.provider == "rehearsal":
        from conductor_core.rehearsal import open_rehearsal_worker

        return open_rehearsal_worker(spec, seed=seed, tokens_per_s=settings.rehearsal_tokens_per_s)
    from conductor_core.workers import pool

    return pool.open_worker(spec, settings)

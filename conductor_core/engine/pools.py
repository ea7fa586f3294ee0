"""Opens the workers of a run by name: the simulated pool, the paper's pool, or a pool file.

It also answers what is asked of a pool before a run: fallbacks, who can be given images, which keys are missing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import Message, OnIncomplete, Worker, WorkerSpec, images_in
from conductor_core.chat.tools import ToolServer, ToolServerSpec
from conductor_core.errors import BadInput
from conductor_core.files import expand_path, is_file, is_there
from conductor_core.privacy.masking import GONE, TYPED_KEY, TypedKeys, has_key
from conductor_core.run.values import PoolFile, PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT
from conductor_core.workflow.validation import ImagesGiven

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
        tool_servers: by name.
    """

    name: str
    workers: Mapping[str, Worker]
    seed: int = 0
    excluded: tuple[str, ...] = ()
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False
    tool_servers: Mapping[str, ToolServer] = field(default_factory=dict)

    @property
    def specs(self) -> tuple[WorkerSpec, ...]:
        return tuple(worker.spec for worker in self.workers.values())

    @property
    def info(self) -> PoolInfo:
        tools = tuple(server.spec for server in self.tool_servers.values())
        return PoolInfo(name=self.name, workers=self.specs, excluded=self.excluded, tools=tools)

    @property
    def simulated(self) -> bool:
        return any(spec.simulated for spec in self.specs)

    def without(self, names: tuple[str, ...]) -> "Pool":
        left = self.info.without(names)
        workers = {spec.name: self.workers[spec.name] for spec in left.workers}
        return replace(self, workers=workers, excluded=left.excluded)

    def with_params(self, params: Mapping[str, Mapping[str, Any]], settings: Settings) -> "Pool":
        """Opens the pool again with more parameters for the named workers: ``{"coder": {"max_tokens": 1}}``.

        A run on it records these parameters. Raises: BadInput for an unknown name.
        """
        unknown = [name for name in params if name not in self.workers]
        if unknown:
            raise BadInput(f"the pool {self.name} has no worker {', '.join(unknown)}; it has {', '.join(self.workers)}")
        specs = tuple(
            spec.model_copy(update={"params": {**spec.params, **params.get(spec.name, {})}}) for spec in self.specs
        )
        opened = reopen_pool(self.info.model_copy(update={"workers": specs}), settings, seed=self.seed)
        return replace(opened, tool_servers=self.tool_servers)

    @property
    def asks_typed_keys(self) -> bool:
        return any(spec.api_key_env == TYPED_KEY for spec in self.specs)

    def with_keys(self, keys: TypedKeys | None, settings: Settings) -> "Pool":
        workers = {spec.name: open_worker(spec, settings, self.seed, keys) for spec in self.specs}
        return replace(self, workers=workers)

    async def aclose(self) -> None:
        for worker in self.workers.values():
            await worker.aclose()
        for server in self.tool_servers.values():
            await server.aclose()


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
    path, folder = expand_path(ref), settings.pools_folder
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
        read = _read_to_run(ref, settings)
        return PoolInfo(name=_name(ref), workers=read.workers, tools=read.tools).without(excluded)
    from conductor_core.providers.model_files import check_spec  # when used: what is read from a file is checked there

    for spec in ref.workers:
        check_spec(spec, settings.key_variables)
    return ref.without(excluded)


def _read_to_run(ref: str, settings: Settings) -> PoolFile:
    """``read_pool``; from then on this machine reaches the file's tool servers also where a record names them."""
    read = read_pool(ref, settings)
    if read.tools:
        from conductor_core.tools.servers import allow

        allow(read.tools, settings.data_folder)
    return read


def _name(ref: str) -> str:
    return ref if ref in BUILT_IN_POOLS else Path(ref).stem


def open_pool(ref: str, settings: Settings, *, seed: int | None = None) -> Pool:
    """Opens ``rehearsal``, ``paper`` or a TOML file. Connects to nothing yet.

    Args:
        seed: of the simulated workers; by default the settings'.

    Raises: PoolInvalid, with every fault of the file.
    """
    read = _read_to_run(ref, settings)
    opened = reopen_pool(PoolInfo(name=_name(ref), workers=read.workers), settings, seed=seed)
    return replace(
        opened,
        tool_servers=_tool_servers(read.tools),
        on_incomplete=read.on_incomplete or settings.on_incomplete,
        give_question=settings.give_question if read.give_question is None else read.give_question,
    )


def reopen_pool(info: PoolInfo, settings: Settings, *, seed: int | None = None) -> Pool:
    """Opens the workers and tool servers of an earlier run as they were recorded.

    A tool server that no pool file of this machine named is not reached: it offers nothing, and says why.
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
        tool_servers=_tool_servers(info.tools, settings.data_folder),
    )


def _tool_servers(specs: Sequence[ToolServerSpec], known_in: Path | None = None) -> dict[str, ToolServer]:
    """``known_in``: the data folder that says which servers of a record may be reached; None: all may."""
    if not specs:
        return {}
    from conductor_core.tools.servers import open_server, refusal

    return {spec.name: open_server(spec, "" if known_in is None else refusal(spec, known_in)) for spec in specs}


def open_worker(spec: WorkerSpec, settings: Settings, seed: int, keys: TypedKeys | None = None) -> Worker:
    """Opens one worker of any provider. Connects to nothing yet.

    Args:
        seed: of a simulated worker. keys: where a typed key is found.
    """
    if spec.provider == "rehearsal":
        from conductor_core.rehearsal import RehearsalWorker

        return RehearsalWorker(spec, seed=seed, tokens_per_s=settings.rehearsal_tokens_per_s)
    from conductor_core.workers import pool

    return pool.open_worker(spec, settings, keys)


# Fallbacks.


def with_fallbacks(agent: str, workers: Mapping[str, WorkerSpec]) -> list[WorkerSpec]:
    """Returns the worker ``agent`` and those that may be called instead of it."""
    found: list[WorkerSpec] = []
    spec = workers.get(agent)
    while spec is not None and spec not in found:
        found.append(spec)
        spec = None if spec.fallback is None else workers.get(spec.fallback)
    return found


def who_may_be_called(agents: Collection[str], specs: Sequence[WorkerSpec]) -> list[WorkerSpec]:
    """Returns the workers that steps of ``agents`` may call: these, their fallbacks, and all for the Conductor's."""
    if CONDUCTOR_AGENT in agents:
        return list(specs)
    workers = {spec.name: spec for spec in specs}
    found = {spec.name for agent in agents for spec in with_fallbacks(agent, workers)}
    return [spec for spec in specs if spec.name in found]


# Images.


def images_given(
    conversation: Sequence[Message], workers: Mapping[str, WorkerSpec], *, every_step: bool
) -> ImagesGiven | None:
    """Returns who can be given the images of a conversation; None: it has none.

    A worker can only if each fallback that may be called instead of it accepts images, too. ``every_step``: every step
    receives the task.
    """
    if not any(images_in(turn.content) for turn in conversation):
        return None
    able = (name for name in workers if all("image" in spec.accepts for spec in with_fallbacks(name, workers)))
    return ImagesGiven(agents=frozenset(able), every_step=every_step)


def require_image_worker(given: ImagesGiven | None, specs: Sequence[WorkerSpec], pool: str) -> None:
    """Raises: BadInput if images come with the task and no worker can be given them."""
    if given is None or given.agents:
        return
    alone = [spec.name for spec in specs if "image" in spec.accepts]
    if alone:
        why = f"the fallback of {', '.join(alone)} accepts none: name one that does"
    else:
        why = 'give accepts = ["text", "image"] in the pool file to each worker whose model sees images'
    raise BadInput(
        f"an image comes with the task, but no worker of the pool {pool} accepts images; {why}, or leave the image out"
    )


# Keys.


def require_typed_keys(specs: Iterable[WorkerSpec], keys: TypedKeys | None) -> None:
    """Raises: BadInput if the key of one of the workers was typed, in another browser session or another process."""
    for spec in specs:
        if spec.api_key_env == TYPED_KEY and not has_key(TYPED_KEY, spec.base_url, keys):
            raise BadInput(f"worker {spec.name}: {GONE}")


def missing_keys(specs: Iterable[WorkerSpec], keys: TypedKeys | None = None) -> Mapping[str, tuple[str, ...]]:
    """Returns the variables of keys that are not set, in the pool's order, each with the workers that need it.

    ``keys``: those that were typed in this browser session.
    """
    missing: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        if spec.api_key_env is not None and not has_key(spec.api_key_env, spec.base_url, keys):
            missing[spec.api_key_env] = (*missing.get(spec.api_key_env, ()), spec.name)
    return missing


def also_missing(agent: str, specs: Iterable[WorkerSpec]) -> str:
    """Returns a note on the other missing keys once the worker ``agent`` has failed for its own; empty: none."""
    missing = missing_keys(spec for spec in specs if spec.api_key_env != TYPED_KEY)
    if not any(agent in needed_by for needed_by in missing.values()):
        return ""
    others = [variable for variable, needed_by in missing.items() if agent not in needed_by]
    if not others:
        return ""
    return f". Not set either, for other workers of the pool: {', '.join(others)}; set them too, or leave those out"

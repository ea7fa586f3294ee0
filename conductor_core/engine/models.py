"""The Conductors that this machine has or could have, and all else that pages list of models, servers and pools.

Of a Conductor: what it needs, how fast it plans here, its download, and whether it is larger than the shipped one.
The pages know the engine and no room below it. Functions that ask servers block: they are for callers without an event
loop.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import (
    TINY_FOLDER,
    ConductorOption,
    conductor_faults,
    found_files,
    list_conductors,
    listed_option,
)
from conductor_core.conductors.prompts import SMALL_STATIC_TOKENS
from conductor_core.conductors.roles import cast_of
from conductor_core.engine.pools import open_worker
from conductor_core.engine.preflight import preflight, run_checks
from conductor_core.errors import BadInput, InspectorError
from conductor_core.files import expand_path, is_folder
from conductor_core.inference import small_base
from conductor_core.inference.downloads import Download, downloads
from conductor_core.inference.found import OWNERS, Found, FoundFile, described
from conductor_core.inference.generation import InferenceError
from conductor_core.inference.hardware import (
    SHARE_FOR_A_MODEL,
    SMALL_PARAMETERS,
    Memory,
    Need,
    free_ram_bytes,
    needs,
    place,
)
from conductor_core.inference.pace import CONDUCTORS, Notify, Pace, Shape, paces, shape_of
from conductor_core.inference.source import GGUF_REF, HUB_ID, cached_folder, cached_hub_ids, inspect_folder, own_folder
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TypedKeys, is_set
from conductor_core.providers.model_files import variable_fault
from conductor_core.rehearsal import EXAMPLES, grade
from conductor_core.run.values import Limits
from conductor_core.settings import SHIPPED, SMALL, TINY, Settings
from conductor_core.settings import small_base as base_of_small
from conductor_core.workers import discovery
from conductor_core.workers.discovery import FoundServer, Health, check_health, key_state, ready_workers

__all__ = [
    "EXAMPLES",
    "OWNERS",
    "ConductorOption",
    "Found",
    "FoundFile",
    "FoundServer",
    "Health",
    "Need",
    "Pace",
    "cast_of",
    "conductor_faults",
    "found_files",
    "free_ram_bytes",
    "grade",
    "key_state",
    "list_conductors",
    "ready_workers",
]


# Larger Conductors than the shipped one.

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


Where = Literal["shipped", "hub", "folder", "file", "index", "server"]


@dataclass(frozen=True)
class MachineModel:
    """A Conductor of this machine.

    Attributes:
        ref: as ``open_conductor`` takes it. name: for people. where: whence its weights come.
        model: its hub id, its folder, its GGUF file, or its name on the server.
        parameters, size_bytes: 0 where nobody told; ``size_bytes`` of its weights, on disk or to be downloaded.
        licence: empty where nobody told.
        needs, memory: what it needs at each precision, and of which memory; of a server's model nothing is known.
        download: how far its download is; ``here`` for what needs none.
        fault: why it cannot be used though it is here; empty if it can.
        pace: what was measured here, or estimated (``is_estimate``).
        timing: whether it is being measured. timing_fault: why it could not be.
        can_be_timed: whether its architecture is known.
        owner: the program that has its GGUF file, as people call it. quantisation: of that file.
        note: what to know of that file before it is used; empty if nothing.
    """

    ref: str
    name: str
    where: Where
    model: str
    download: Download
    parameters: int = 0
    size_bytes: int = 0
    licence: str = ""
    needs: tuple[Need, ...] = ()
    memory: Memory | None = None
    fault: str = ""
    pace: Pace | None = None
    timing: bool = False
    timing_fault: str = ""
    can_be_timed: bool = False
    server: str = ""
    is_estimate: bool = False
    owner: str = ""
    quantisation: str = ""
    note: str = ""

    @property
    def here(self) -> bool:
        return self.download.state == "here" and not self.fault

    @property
    def fits(self) -> bool:
        """Whether some precision of it has room in memory; True where its size is not known."""
        return not self.needs or any(need.fits for need in self.needs)


def machine_models(settings: Settings, served: Iterable[WorkerSpec] = ()) -> tuple[MachineModel, ...]:
    """Lists the shipped Conductor, those that files and folders name, the published ones, and those ``served``.

    Those that are here come first, those that cannot be used last. It reads files and asks no server: ``served`` are
    models that servers were found to have.
    """
    options = {option.ref: option for option in list_conductors(settings)}
    found = [_of(option, settings) for option in options.values()]
    listed = {each.model for each in found}
    others = (hub_id for hub_id in cached_hub_ids() if HUB_ID.fullmatch(hub_id) and hub_id not in listed)
    begun = [each for each in others if downloads().state(each).state in ("waiting", "running", "paused", "failed")]
    begun += [ref for ref in downloads().refs() if GGUF_REF.fullmatch(ref) and downloads().state(ref).state != "here"]
    found += [_of(listed_option(ref, settings), settings) for ref in begun]
    if base_of_small(settings.models_folder) is None:
        found.append(_base(settings))
    for spec in served:
        if (ref := f"{spec.base_url}#{spec.model}") not in options:
            found.append(_on_server(ref, spec.model, spec.model, str(spec.base_url)))
    last = {"server": 0, "index": 0}
    found.sort(key=lambda each: (each.ref not in SHIPPED, not each.here, bool(each.fault), last.get(each.where, 1)))
    return tuple(found)


def model_folder(ref: str, settings: Settings) -> Path | None:
    return own_folder(ref, settings.models_folder)


def machine_model(ref: str, settings: Settings) -> MachineModel:
    """Returns one Conductor. Raises: UnknownConductor, ConductorsInvalid."""
    if ref == base_ref(settings) and base_of_small(settings.models_folder) is None:
        return _base(settings)
    return _of(listed_option(ref.strip(), settings), settings)


def _of(option: ConductorOption, settings: Settings) -> MachineModel:
    if option.server is not None:
        fault = "" if option.runnable else option.reason
        return _on_server(option.ref, option.name, option.model, option.server, fault)
    if option.owner:
        return _in_file(option)
    model = option.model or option.ref
    where, folder = _place_of(model)
    download = Download(option.ref, "here") if where != "hub" else downloads().state(model)
    shape = _shape(model, folder)
    measured = paces(settings.data_folder)
    needed, memory = needs(option.parameters)
    return MachineModel(
        ref=option.ref,
        name=option.name,
        where=where,
        model=model,
        parameters=option.parameters,
        size_bytes=max(option.size_bytes, download.all_bytes),
        licence=option.licence,
        needs=needed if option.parameters else (),
        memory=memory,
        download=download,
        fault=option.reason if folder is not None and not option.downloaded else "",
        pace=None if shape is None else measured.known(shape),
        timing=shape is not None and measured.is_measured(shape),
        timing_fault="" if shape is None else measured.fault(shape),
        can_be_timed=shape is not None,
    )


BASE = "small"
"""What ``models pull`` calls the model below the Conductor ``small``."""


def base_ref(settings: Settings) -> str:
    return str(settings.models_folder / small_base.NAME)


def _base(settings: Settings) -> MachineModel:
    return MachineModel(
        ref=base_ref(settings),
        name=small_base.TITLE,
        where="index",
        model=base_ref(settings),
        parameters=small_base.PARAMETERS,
        size_bytes=small_base.SIZE_BYTES,
        licence=small_base.LICENCE,
        memory=memory(),
        download=downloads().state(base_ref(settings)),
        quantisation="Q4_1",
    )


def pullable(ref: str, settings: Settings) -> str:
    """Returns the name of the download that gets ``ref``. Raises: BadInput, UnknownConductor, ConductorsInvalid."""
    if ref == BASE:
        return base_ref(settings)
    return ref if GGUF_REF.fullmatch(ref) else downloadable(machine_model(ref, settings), "is downloaded")


NO_TEMPLATE = "no chat template: it may continue a text instead of answering"


def _in_file(option: ConductorOption) -> MachineModel:
    most_bytes = option.memory_there_bytes * SHARE_FOR_A_MODEL
    need = Need(option.quantisation, option.memory_needed_bytes, option.memory_needed_bytes <= most_bytes)
    usable = option.downloaded and option.parameters > 0
    measured = _measured_pace(option) if option.runnable else None
    estimate = estimated_pace(option.parameters, option.size_bytes) if option.runnable else None
    pace = measured or estimate
    if option.ref == SMALL and pace is not None:
        pace = replace(pace, static_tokens=SMALL_STATIC_TOKENS)
    return MachineModel(
        ref=option.ref,
        name=option.name,
        where="file",
        model=option.model,
        parameters=option.parameters,
        size_bytes=option.size_bytes,
        licence=option.licence,
        needs=(need,) if usable else (),
        memory=Memory("cpu", option.memory_there_bytes, option.memory),
        download=Download(option.ref, "here"),
        fault="" if option.runnable else option.reason,
        pace=pace,
        is_estimate=measured is None,
        owner=option.owner,
        quantisation=option.quantisation,
        note="" if option.has_chat_template else NO_TEMPLATE,
    )


def _measured_pace(option: ConductorOption) -> Pace | None:
    # When used: most programs list no models.
    from conductor_core.inference.llama import known_pace

    seen = known_pace(Path(option.model))
    if not seen.read_per_s or not seen.written_per_s:
        return None
    return Pace(1 / seen.read_per_s, 1 / seen.written_per_s, "int4")


_READ_PER_CORE, _BYTES_PER_CORE, _MOST_BYTES_CORES, _TOKEN_S = 20e9, 5e9, 4, 0.02


def estimated_pace(parameters: int, size_bytes: int) -> Pace:
    """Estimates how fast llama.cpp reads and writes with a model of that size on the processors here.

    Reading multiplies each parameter once, and writing takes the whole file from memory for each token. The constants
    are those of two cores of a server with SmolLM2-135M in Q4_1 and Qwen2.5-Coder-0.5B in Q4_K_M, for which it says
    150 and 40 tokens/s read (95 and 42 to 64 measured), 25 and 15 written (18 to 27 and 10 to 24).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    read_s = 2 * parameters / (_READ_PER_CORE * cores)
    written_s = _TOKEN_S + size_bytes / (_BYTES_PER_CORE * min(cores, _MOST_BYTES_CORES))
    return Pace(max(read_s, 1e-6), written_s, "int4")


def _place_of(model: str) -> tuple[Where, Path | None]:
    """Returns where a model of this machine comes from, and its folder if that is here."""
    if model == TINY:
        return "shipped", TINY_FOLDER
    folder = expand_path(model)
    if is_folder(folder):
        return "folder", folder
    return "hub", cached_folder(model)


def _shape(model: str, folder: Path | None) -> Shape | None:
    if folder is not None:
        try:
            files = inspect_folder(folder)
        except InferenceError:
            return None
        return shape_of(files.config, files.parameters)
    known = CONDUCTORS.get(model)
    return None if known is None else known.shape


def _on_server(ref: str, name: str, model: str, server: str, fault: str = "") -> MachineModel:
    return MachineModel(
        ref=ref,
        name=name,
        where="server",
        model=model,
        parameters=parameters_by_name(model),
        download=Download(ref, "here"),
        fault=fault,
        server=server,
    )


def begin(models: Sequence[MachineModel]) -> None:
    downloads().begin([each.model for each in models if each.where in ("hub", "index")])


def pause(models: Sequence[MachineModel]) -> None:
    downloads().pause([each.model for each in models if each.where in ("hub", "index")])


def cancel(model: MachineModel) -> None:
    """Stops a download and deletes its part. Raises: ModelUnavailable."""
    downloads().cancel(model.model)


def remove(model: MachineModel, settings: Settings) -> int:
    """Deletes what was downloaded: a model of the hub's cache, or a GGUF file.

    Returns the bytes freed. Raises: BadInput for what others keep; ModelUnavailable if it is in use.
    """
    from conductor_core.inference import hub

    if is_deletable(model, settings) and model.where == "file":
        return hub.remove_file(Path(model.model))
    hub_id = downloadable(model, "can be deleted here")
    freed = hub.remove(hub_id)
    downloads().forget(hub_id)
    return freed


def is_deletable(model: MachineModel, settings: Settings) -> bool:
    """Tells whether ``remove`` may delete it: what this program downloads, and no file of a person or of Ollama."""
    if model.where == "hub":
        return model.here or bool(model.fault)
    return model.where == "file" and (model.owner == OWNERS["hub"] or model.model == base_ref(settings))


def downloadable(model: MachineModel, what: str) -> str:
    """Returns the hub id of a model. Raises: BadInput if it has none, which says why only such a one ``what``."""
    if model.where == "hub":
        return model.model
    why = {
        "shipped": f"{model.ref} comes with the program",
        "folder": f"{model.model} is a folder of yours",
        "file": f"{model.model} is a file that lies here",
        "index": f"{model.name} comes from the package index",
        "server": f"{model.model} belongs to the server {model.server}",
    }[model.where]
    raise BadInput(f"{why}: only a model of the hub's cache {what}")


def room() -> tuple[Path, int]:
    from conductor_core.inference import hub

    return hub.room()


def hub_answers() -> bool:
    """Tells whether the hub can be reached. Blocks for some seconds at most. With HF_HUB_OFFLINE nobody is asked."""
    from conductor_core.inference import hub

    return hub.is_reachable()


def hub_address() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.is_offline_mode())


def memory() -> Memory:
    return place(SMALL_PARAMETERS).memory


def is_away(ref: str, settings: Settings) -> bool:
    """Tells whether a Conductor would have to be downloaded first. A name that means nothing is not away."""
    try:
        option = listed_option(ref.strip(), settings)
    except InspectorError:
        return False
    return option.server is None and not option.downloaded and option.runnable


def require_file(model: MachineModel) -> None:
    """Raises: BadInput if the file of a model is gone, or cannot be used any more."""
    if model.where == "file" and (fault := described(Path(model.model)).fault):
        raise BadInput(f"{model.name}: {fault}")


def time_soon(model: MachineModel, settings: Settings) -> None:
    """Begins to measure in the background how fast the model reads and writes here. It need not be downloaded."""
    if (shape := _shape(model.model, _place_of(model.model)[1])) is not None:
        paces(settings.data_folder).measure_soon(shape)


def time_now(model: MachineModel, settings: Settings, notify: Notify) -> Pace:
    """Measures how fast the model reads and writes here. Blocks. Raises: BadInput, InferenceError."""
    if model.where == "server":
        raise BadInput(f"{model.model} runs on the server {model.server}: its pace is the server's")
    if model.where == "file":
        raise BadInput(f"{model.name} is a GGUF file: its pace is measured when it runs")
    shape = _shape(model.model, _place_of(model.model)[1])
    if shape is None:
        why = model.fault or f"its architecture is known once it is downloaded: conductor models pull {model.model}"
        raise BadInput(f"{model.ref} cannot be timed: {why}")
    return paces(settings.data_folder).measure(shape, notify)


# Servers, and files of models.


def check_worker(spec: WorkerSpec, settings: Settings, keys: TypedKeys | None = None) -> Health:
    """Checks whether the provider of ``spec`` would answer: asks it for its models, which costs nothing."""

    async def check() -> Health:
        async with aclosing(open_worker(spec, settings, settings.seed, keys)) as worker:
            return await check_health(worker)

    return asyncio.run(check())


def check_conductor(ref: str, settings: Settings) -> Health:
    """Checks whether the Conductor ``ref`` would write: asks its server for its models. Raises: BadInput."""
    [part] = preflight(ref, (), Limits(), settings).parts
    return part.health


def check_all(
    refs: Sequence[str], specs: Sequence[WorkerSpec], settings: Settings
) -> tuple[dict[str, Health], dict[str, Health]]:
    """Returns the health of Conductors and workers by name, all asked at once. An unknown Conductor has its fault."""

    async def conductor(ref: str) -> Health:
        try:
            [part] = (await run_checks(ref, (), Limits(), settings)).parts
        except InspectorError as error:
            return Health(ok=False, latency_ms=None, detail=str(error))
        return part.health

    async def ask() -> tuple[dict[str, Health], dict[str, Health]]:
        written, workers = await asyncio.gather(
            asyncio.gather(*map(conductor, refs)), run_checks(None, specs, Limits(), settings)
        )
        return dict(zip(refs, written, strict=True)), {part.name: part.health for part in workers.parts}

    return asyncio.run(ask())


def discover_local_servers(settings: Settings) -> tuple[WorkerSpec, ...]:
    return ready_workers(find_servers({}, settings))


def find_servers(
    key_variables: Mapping[str, str], settings: Settings, keys: TypedKeys | None = None
) -> tuple[FoundServer, ...]:
    """Returns the model servers on the settings' ports, including those that want a key.

    Args:
        key_variables: by base URL, the variable whose value is sent to that server as its key.
        keys: those that were typed, each for its server.

    Raises: BadInput for a variable that does not look like a key's, or is not set; then no server is asked.
    """
    for variable in key_variables.values():
        if fault := variable_fault(variable, settings.key_variables):
            raise BadInput(fault)
        if not is_set(variable):
            raise BadInput(f"{variable} is not set where the inspector was started")
        masking.remember_variable(variable)
    ports = discovery.titles(settings.server_ports)
    return asyncio.run(discovery.find_servers(ports, key_variables=key_variables, keys=keys))


def conductors_file_text(specs: Iterable[WorkerSpec]) -> str:
    """Returns a conductors file (TOML) with the models of ``specs`` as Conductors."""
    tables = (spec.model_dump(include={"name", "model", "base_url", "api_key_env"}) for spec in specs)
    return _tables("conductor", ({key: value for key, value in table.items() if value} for table in tables))


def pool_file_text(specs: Iterable[WorkerSpec]) -> str:
    """Returns a pool file (TOML) with ``specs``, to be saved and edited, without defaults."""
    return _tables("worker", (spec.model_dump(mode="json", exclude_defaults=True) for spec in specs))


def _tables(name: str, tables: Iterable[Mapping[str, object]]) -> str:
    lines = ([f"[[{name}]]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""] for table in tables)
    return "\n".join(map("\n".join, lines))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        names = [key if key.isidentifier() and key.isascii() else json.dumps(key) for key in value]
        items = ", ".join(f"{name} = {_toml(item)}" for name, item in zip(names, value.values(), strict=True))
        return f"{{ {items} }}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # A JSON string, number or boolean is the same in TOML, but for the character DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

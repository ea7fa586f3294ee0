"""Every Conductor that this machine has or could have, with what it needs, how fast it plans here, and its download."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import constants

from conductor_core.chat import WorkerSpec
from conductor_core.conductors.catalogue import TINY, TINY_FOLDER, ConductorOption, list_conductors, listed_option
from conductor_core.engine.larger_conductors import parameters_by_name
from conductor_core.errors import BadInput, InspectorError
from conductor_core.given_path import given_path, is_folder
from conductor_core.inference.downloads import Download, downloads
from conductor_core.inference.errors import InferenceError
from conductor_core.inference.generation import Packing
from conductor_core.inference.hardware import SMALL_PARAMETERS, Memory, place
from conductor_core.inference.needs import Need, needs
from conductor_core.inference.pace import Pace, Paces, Shape, Tell, paces, shape_of
from conductor_core.inference.published import CONDUCTORS
from conductor_core.inference.source import HUB_ID, cached_folder, cached_hub_ids, inspect_folder
from conductor_core.settings import Settings

__all__ = [
    "Download",
    "MachineModel",
    "Need",
    "Pace",
    "begin",
    "cancel",
    "downloadable",
    "hub_address",
    "hub_answers",
    "is_away",
    "is_offline",
    "machine_model",
    "machine_models",
    "memory",
    "pause",
    "remove",
    "room",
    "time_now",
    "time_soon",
]

Where = Literal["shipped", "hub", "folder", "server"]


@dataclass(frozen=True)
class MachineModel:
    """A Conductor of this machine.

    Attributes:
        ref: as ``open_conductor`` takes it. name: for people. where: whence its weights come.
        model: its hub id, its folder, or its name on the server.
        parameters, size_bytes: 0 where nobody told; ``size_bytes`` of its weights, on disk or to be downloaded.
        licence: empty where nobody told.
        needs, memory: what it needs at each precision, and of which memory; of a server's model nothing is known.
        download: how far its download is; ``here`` for what needs none.
        fault: why it cannot be used though it is here; empty if it can.
        pace: what was measured here. timing: whether it is being measured. timing_fault: why it could not be.
        can_be_timed: whether its architecture is known.
    """

    ref: str
    name: str
    where: Where
    model: str
    parameters: int
    size_bytes: int
    licence: str
    needs: tuple[Need, ...]
    memory: Memory | None
    download: Download
    fault: str = ""
    pace: Pace | None = None
    timing: bool = False
    timing_fault: str = ""
    can_be_timed: bool = False
    server: str = ""

    @property
    def here(self) -> bool:
        return self.download.state == "here" and not self.fault

    @property
    def fits(self) -> bool:
        """Whether some precision of it has room in memory; True where its size is not known."""
        return not self.needs or any(need.fits for need in self.needs)

    @property
    def hub_id(self) -> str | None:
        return self.model if self.where == "hub" else None


def machine_models(settings: Settings, served: Iterable[WorkerSpec] = ()) -> tuple[MachineModel, ...]:
    """Lists the shipped Conductor, those that files and folders name, the published ones, and those ``served``.

    Those that are here come first. It reads files and asks no server: ``served`` are models that servers were found
    to have.
    """
    options = {option.ref: option for option in list_conductors(settings)}
    found = [_of(option, settings) for option in options.values()]
    listed = {each.model for each in found}
    begun = (hub_id for hub_id in cached_hub_ids() if HUB_ID.fullmatch(hub_id) and hub_id not in listed)
    found += [_of(listed_option(hub_id, settings), settings) for hub_id in begun if _is_begun(hub_id)]
    found += [_served(spec) for spec in served if f"{spec.base_url}#{spec.model}" not in options]
    return tuple(sorted(found, key=lambda each: (each.ref != TINY, not each.here, each.where != "server")))


def machine_model(ref: str, settings: Settings) -> MachineModel:
    """Returns one Conductor. Raises: UnknownConductor, ConductorsInvalid."""
    return _of(listed_option(ref.strip(), settings), settings)


def _is_begun(hub_id: str) -> bool:
    return downloads().state(hub_id).state in ("waiting", "running", "paused", "failed")


def _of(option: ConductorOption, settings: Settings) -> MachineModel:
    if option.server is not None:
        fault = "" if option.runnable else option.reason
        return _on_server(option.ref, option.name, option.model, option.server, fault)
    model = option.model or option.ref
    where, folder = _place_of(model)
    download = Download(option.ref, "here") if where != "hub" else downloads().state(model)
    shape = _shape(model, folder)
    pace = timing = None
    fault = ""
    if folder is not None and not option.downloaded:
        fault = option.reason
    measured = _paces(settings)
    if shape is not None:
        pace, timing = measured.known(shape), measured.is_measured(shape)
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
        fault=fault,
        pace=pace,
        timing=bool(timing),
        timing_fault="" if shape is None else measured.fault(shape),
        can_be_timed=shape is not None,
    )


def _paces(settings: Settings) -> Paces:
    return paces(settings.data_folder, Packing(settings.precision, settings.packed_folder))


def _place_of(model: str) -> tuple[Where, Path | None]:
    """Returns where a model of this machine comes from, and its folder if that is here."""
    if model == TINY:
        return "shipped", TINY_FOLDER
    folder = given_path(model)
    if is_folder(folder):
        return "folder", folder
    return "hub", cached_folder(model)


def _shape(model: str, folder: Path | None) -> Shape | None:
    """Returns the architecture, by the files that are here or as it was published; None: it is not known."""
    if folder is not None:
        try:
            files = inspect_folder(folder)
        except InferenceError:
            return None
        return shape_of(files.config, files.parameters)
    known = CONDUCTORS.get(model)
    return None if known is None else known.shape


def _served(spec: WorkerSpec) -> MachineModel:
    return _on_server(f"{spec.base_url}#{spec.model}", spec.model, spec.model, str(spec.base_url))


def _on_server(ref: str, name: str, model: str, server: str, fault: str = "") -> MachineModel:
    return MachineModel(
        ref=ref,
        name=name,
        where="server",
        model=model,
        parameters=parameters_by_name(model),
        size_bytes=0,
        licence="",
        needs=(),
        memory=None,
        download=Download(ref, "here"),
        fault=fault,
        server=server,
    )


def begin(models: Sequence[MachineModel]) -> None:
    """Downloads the models of the hub among ``models`` in the background, continuing where it stopped."""
    downloads().begin([each.model for each in models if each.where == "hub"])


def pause(models: Sequence[MachineModel]) -> None:
    downloads().pause([each.model for each in models if each.where == "hub"])


def cancel(model: MachineModel) -> None:
    """Stops a download and deletes its part. Raises: ModelUnavailable."""
    downloads().cancel(model.model)


def remove(model: MachineModel, settings: Settings) -> int:
    """Deletes a downloaded model from the hub's cache, and its packed weights. Returns the bytes freed.

    Raises: BadInput for what is no model of that cache; ModelUnavailable if it is in use.
    """
    hub_id = downloadable(model, "can be deleted here")
    from conductor_core.inference.removal import remove as delete

    freed = delete(hub_id, settings.packed_folder)
    downloads().forget(hub_id)
    return freed


def downloadable(model: MachineModel, what: str) -> str:
    """Returns the hub id of a model. Raises: BadInput if it has none, which says why only such a one ``what``."""
    if model.where == "hub":
        return model.model
    why = {
        "shipped": f"{model.ref} comes with the program",
        "folder": f"{model.model} is a folder of yours",
        "server": f"{model.model} belongs to the server {model.server}",
    }[model.where]
    raise BadInput(f"{why}: only a model of the hub's cache {what}")


def room() -> tuple[Path, int]:
    """Returns the folder into which models are downloaded, and the bytes that are free there."""
    from conductor_core.inference import hub

    return hub.room()


def hub_answers() -> bool:
    """Tells whether the hub can be reached. Blocks for some seconds at most. With HF_HUB_OFFLINE nobody is asked."""
    from conductor_core.inference import hub

    return hub.is_reachable()


def hub_address() -> str:
    return constants.ENDPOINT


def is_offline() -> bool:
    """Tells whether HF_HUB_OFFLINE forbids downloads."""
    return bool(constants.is_offline_mode())


def memory() -> Memory:
    """Returns the memory that a large model would run in."""
    return place(SMALL_PARAMETERS).memory


def is_away(ref: str, settings: Settings) -> bool:
    """Tells whether a Conductor would have to be downloaded first. A name that means nothing is not away."""
    try:
        option = listed_option(ref.strip(), settings)
    except InspectorError:
        return False
    return option.server is None and not option.downloaded and option.runnable


def time_soon(model: MachineModel, settings: Settings) -> None:
    """Begins to measure in the background how fast the model reads and writes here. It need not be downloaded."""
    if (shape := _shape(model.model, _place_of(model.model)[1])) is not None:
        _paces(settings).measure_soon(shape)


def time_now(model: MachineModel, settings: Settings, tell: Tell) -> Pace:
    """Measures how fast the model reads and writes here. Blocks. Raises: BadInput, InferenceError."""
    if model.where == "server":
        raise BadInput(f"{model.model} runs on the server {model.server}: its pace is the server's")
    shape = _shape(model.model, _place_of(model.model)[1])
    if shape is None:
        why = model.fault or f"its architecture is known once it is downloaded: conductor models pull {model.model}"
        raise BadInput(f"{model.ref} cannot be timed: {why}")
    return _paces(settings).measure(shape, tell)

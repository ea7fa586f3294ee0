"""Opens a Conductor by its name, and lists the Conductors that this machine can run.

tiny, small                     the shipped ones; small once ``models pull small`` has fetched its model
NAME, FILE, FILE#NAME           of a conductors file (``conductors_file``)
NAME                            a folder in ``models/`` of the data folder
FILE.gguf, FILE.gguf#ADAPTER    a GGUF file, perhaps with a LoRA adapter in the same form
FOLDER                          a folder with config.json, tokenizer and *.safetensors
PROGRAM: NAME                   a GGUF file that another program has here, such as ``ollama: llama3.2:3b``
OWNER/NAME:TAG                  a GGUF file of the hub, such as ``Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M``
OWNER/NAME                      a model of the hub, which the Models page or ``models pull`` downloads
URL#MODEL                       an OpenAI-compatible server
"""

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conductor_core.chat.messages import FREE, Conductor, Price
from conductor_core.conductors.conductors_file import API_KEY_VARIABLE, ConductorSpec, find, listed
from conductor_core.conductors.local import LocalConductor, read_config
from conductor_core.errors import UnknownConductor
from conductor_core.files import expand_path, is_file, is_folder, is_there
from conductor_core.inference.found import OWNERS, Found, FoundFile, by_title, cached_gguf, described, find_files
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.gguf_file import choose_context
from conductor_core.inference.hardware import Memory, free_ram_bytes, place, ram_bytes
from conductor_core.inference.pace import CONDUCTORS
from conductor_core.inference.small_base import TITLE
from conductor_core.inference.source import (
    GGUF_REF,
    HUB_ID,
    cached_folder,
    cached_hub_ids,
    context_of,
    hub_cache,
    inspect_folder,
    is_gguf,
    licence_of,
    local_folder,
    not_here,
    own_folder,
)
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys, environment_keys, holds_a_key, is_set, one_line
from conductor_core.settings import SHIPPED, SMALL, TINY, Settings, small_base
from conductor_core.workflow.model import Frozen

TINY_FOLDER = Path(__file__).parent / "tiny"
ADAPTER = Path(__file__).parent / "small" / "adapter.gguf"
NO_BASE = "the model of the Conductor small is not here: `conductor models pull small` gets it (98 MB)"


class ConductorOption(Frozen):
    """One line of the page's list of Conductors. A Conductor on a server has no size here.

    Attributes:
        ref: what ``open_conductor`` takes.
        size_bytes: bytes of its weights on disk, or to be downloaded (bfloat16); 0 if only the hub knows.
        licence: as its README or the hub names it; empty if that is not known.
        memory_needed_bytes, memory_there_bytes: what it needs to run here and what there is; ``memory`` says which.
        downloaded: whether it is on this machine, whole. runnable: whether it would run if it were.
        reason: one sentence that says why it cannot run, how to get it, or what using it will do.
        server: its address; None for one that runs here. model: its name on the server, or its folder or hub id.
        named: whether a conductors file gives it its name.
        context: the most tokens that it reads, if its file or its configuration tells; a server is not asked.
        owner: of a GGUF file, whose path is ``model``: the program that has it, as people call it. Empty for others.
        quantisation: of that file. has_chat_template: whether it has one; without, a model may only continue texts.
    """

    ref: str
    name: str
    parameters: int = 0
    size_bytes: int = 0
    memory_needed_bytes: int = 0
    memory_there_bytes: int = 0
    memory: str = ""
    licence: str = ""
    downloaded: bool
    runnable: bool
    reason: str
    server: str | None = None
    model: str = ""
    usd_per_mtok: Price | None = None
    api_key_env: str | None = None
    named: bool = False
    context: int | None = None
    quantisation: str = ""
    has_chat_template: bool = True
    owner: str = ""

    @property
    def price(self) -> Price | None:
        """The price of the Conductor's tokens; None if it is unknown."""
        return FREE if self.usd_per_mtok is None and self.server is None else self.usd_per_mtok

    @property
    def key_state(self) -> str | None:
        """``NAME: present`` or ``NAME: missing``; None for one that needs no key."""
        if self.api_key_env is None:
            return None
        return f"{self.api_key_env}: {'present' if is_set(self.api_key_env) else 'missing'}"


def open_conductor(ref: str, settings: Settings, keys: TypedKeys | None = None) -> Conductor:
    """Returns the Conductor of that name. It loads, downloads and connects nothing yet.

    ``keys``: those typed in this browser session.

    Raises: UnknownConductor, saying what to do.
    """
    ref = ref.strip()
    if ref == TINY:
        return LocalConductor(TINY, str(TINY_FOLDER), settings, read_config(TINY_FOLDER))
    if ref == SMALL:
        if (base := small_base(settings.models_folder)) is None:
            raise UnknownConductor(NO_BASE)
        return _gguf(SMALL, base, str(ADAPTER), settings, None)
    if (spec := on_a_server(ref, settings, keys)) is not None:
        # When used: a run with a Conductor that runs here needs no client of servers.
        from conductor_core.conductors.remote import RemoteConductor

        return RemoteConductor(ref, spec, settings, keys)
    named = find(ref, settings)
    model = ref if named is None else named.model
    if (file := _gguf_file(model, settings)) is not None:
        return _gguf(ref, *file, settings, named)
    return _local(ref, model, settings, named)


def on_a_server(ref: str, settings: Settings, keys: TypedKeys | None = None) -> ConductorSpec | None:
    """Returns how to ask the Conductor of that name; None for one that runs here.

    Raises: UnknownConductor, ConductorsInvalid.
    """
    if "://" in ref:
        base_url, model = _server_and_model(ref)
        variable = API_KEY_VARIABLE if is_set(API_KEY_VARIABLE) else None
        if keys is not None and keys.of(base_url) is not None:
            variable = TYPED_KEY
        return ConductorSpec(name=ref, model=model, base_url=base_url, api_key_env=variable)
    named = None if ref in SHIPPED else find(ref, settings)
    return None if named is None or named.base_url is None else named


def _local(name: str, model: str, settings: Settings, spec: ConductorSpec | None) -> Conductor:
    """Opens a Conductor that runs here; ``model``: a folder or a hub id. Raises: UnknownConductor."""
    folder = own_folder(model, settings.models_folder)
    if folder is not None:
        try:
            inspect_folder(folder)
        except ModelUnavailable as error:
            raise UnknownConductor(str(error)) from error
        return LocalConductor(name, str(folder), settings, read_config(folder), spec)
    if HUB_ID.fullmatch(model) and not is_there(expand_path(model)):
        downloaded = cached_folder(model)
        return LocalConductor(name, model, settings, read_config(downloaded or expand_path(model)), spec)
    if spec is not None:
        raise UnknownConductor(
            f"Conductor {name}: {model} is neither a model folder nor a hub id, and it has no base_url"
        )
    raise unknown(name, settings)


def _gguf_file(model: str, settings: Settings) -> tuple[Path, str] | None:
    """Returns the GGUF file that ``model`` names, and its adapter or ""; None if it names none.

    Raises: UnknownConductor if it names one of the hub that is not here.
    """
    for name, lora in (model.rpartition("#")[::2], (model, "")):
        if is_gguf(name):
            return expand_path(name), lora
        if (found := by_title(name, settings.models_folder)) is not None:
            return found.path, lora
        if GGUF_REF.fullmatch(name):
            path = cached_gguf(name, hub_cache())
            if path is None:
                raise UnknownConductor(not_here(name))
            return path, lora
    return None


def _gguf(name: str, file: Path, lora: str, settings: Settings, spec: ConductorSpec | None) -> Conductor:
    """Opens a Conductor of a GGUF file. A ``conductor.json`` beside its adapter, or else beside it, says how to ask."""
    # When used: see ``RemoteConductor``.
    from conductor_core.conductors.remote import GgufConductor

    spec = spec or ConductorSpec(name=name, model=str(file), lora=lora or None)
    adapter = None if spec.lora is None else expand_path(spec.lora)
    if adapter is not None and not is_file(adapter):
        raise UnknownConductor(f"Conductor {name}: no file {adapter}: name a LoRA adapter in GGUF form")
    config = read_config((adapter or file).parent)
    files = {"model": str(file), "lora": None if adapter is None else str(adapter)}
    try:
        return GgufConductor(name, spec.model_copy(update=files), settings, config)
    except ModelUnavailable as error:
        raise UnknownConductor(str(error)) from error


def unknown(name: str, settings: Settings) -> UnknownConductor:
    """Returns the error for a Conductor of which nothing is known."""
    if name.partition(": ")[0] in OWNERS:
        return UnknownConductor(f"{one_line(name)} is no longer on this machine; `conductor models list` shows what is")
    names = ", ".join(listed(settings)[0])
    files = f"your conductors files ({names})" if names else f"{settings.conductors_folder}/*.toml (none yet)"
    return UnknownConductor(
        f"no Conductor {name[:80]!r}: name {TINY}, {SMALL}, one of {files}, a model folder, a GGUF file, a hub id "
        "(owner/name) or URL#MODEL of a server"
    )


def _server_and_model(ref: str) -> tuple[str, str]:
    url, _, model = ref.partition("#")
    if holds_a_key(ref, environment_keys()):
        raise UnknownConductor(
            "the Conductor's address holds a key, which every run would record; set CONDUCTOR_API_KEY"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UnknownConductor(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UnknownConductor(f"{url!r} is not an http address of a server")
    if parts.username or parts.password or parts.query:
        raise UnknownConductor(f"{parts.hostname}: an address holds no key; set CONDUCTOR_API_KEY instead")
    if not model.strip():
        raise UnknownConductor(f"which model of {url}? Write {url}#MODEL")
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}", model.strip()


def list_conductors(settings: Settings) -> list[ConductorOption]:
    """Lists what this machine has and could have: the shipped Conductor, the published ones, all downloaded ones.

    It reads folders only and asks no server. It also lists ``settings.conductor`` if that is a folder, and all
    Conductors of the data folder's files (``conductor_faults`` tells which files cannot be read).
    """
    options = [_downloaded(TINY, TINY_FOLDER)]
    if small_base(settings.models_folder) is not None:
        options.insert(0, listed_option(SMALL, settings))
    options += [_named(name, spec, settings) for name, spec in listed(settings)[0].items()]
    folder = expand_path(settings.conductor)
    if settings.conductor != TINY and is_folder(folder):
        options.append(_downloaded(settings.conductor, folder))
    for config in sorted(settings.models_folder.glob("*/config.json")):
        options.append(_downloaded(str(config.parent), config.parent))
    options += [_of_file(each.title, each) for each in found_files(settings).files if not each.is_adapter]
    for hub_id in CONDUCTORS:
        model_folder = local_folder(hub_id)
        options.append(_downloaded(hub_id, model_folder) if model_folder else _to_download(hub_id))
    for hub_id in cached_hub_ids():
        model_folder = cached_folder(hub_id)
        if hub_id not in CONDUCTORS and model_folder is not None:
            with suppress(ModelUnavailable):  # others write no text
                inspect_folder(model_folder)
                options.append(_downloaded(hub_id, model_folder))
    return options


def found_files(settings: Settings) -> Found:
    """Looks for the GGUF files of this machine."""
    return find_files(settings.models_folder, hub_cache())


def listed_option(ref: str, settings: Settings) -> ConductorOption:
    """Returns the line of one Conductor. Raises: UnknownConductor, ConductorsInvalid."""
    if ref == TINY:
        return _downloaded(TINY, TINY_FOLDER)
    if ref == SMALL:
        if (base := small_base(settings.models_folder)) is None:
            raise UnknownConductor(NO_BASE)
        made_of = f"{TITLE} with our adapter"
        return _of_file(SMALL, described(base)).model_copy(update={"name": SMALL, "owner": made_of})
    if (spec := on_a_server(ref, settings) or find(ref, settings)) is not None:
        return _named(ref, spec, settings)
    with_adapter, _, adapter = ref.rpartition("#")
    if adapter and (is_gguf(with_adapter) or with_adapter.partition(": ")[0] in OWNERS):
        return listed_option(with_adapter, settings).model_copy(update={"ref": ref})
    if (found := by_title(ref, settings.models_folder)) is not None:
        return _of_file(ref, found)
    of_the_hub = HUB_ID.fullmatch(ref) or GGUF_REF.fullmatch(ref)
    if own_folder(ref, settings.models_folder) is None and not of_the_hub and not _is_file(ref):
        raise unknown(ref, settings)
    return _here(ref, ref, settings)


def conductor_faults(settings: Settings) -> list[str]:
    """Returns a line for each faulty file of the data folder. The Conductors of such a file are not listed."""
    return listed(settings)[1]


def _named(name: str, spec: ConductorSpec, settings: Settings) -> ConductorOption:
    if spec.base_url is None:
        here = _here(name, spec.model, settings)
        contexts = [each for each in (spec.context, here.context) if each is not None]
        said = {"usd_per_mtok": spec.usd_per_mtok, "name": name, "model": spec.model, "named": True}
        return here.model_copy(update=said | {"context": min(contexts, default=None)})
    missing = spec.api_key_env is not None and not is_set(spec.api_key_env)
    key = f" Its key, {spec.api_key_env}, is not set." if missing else ""
    return ConductorOption(
        ref=name,
        name=name,
        downloaded=True,
        runnable=not missing,
        reason=f"{spec.model} at {spec.base_url}.{key}",
        server=spec.base_url,
        model=spec.model,
        named="://" not in name,
        usd_per_mtok=spec.usd_per_mtok,
        api_key_env=spec.api_key_env,
    )


def _here(ref: str, model: str, settings: Settings) -> ConductorOption:
    """Returns the line of a Conductor that runs here; ``model``: a folder, a file or a hub id, downloaded or not."""
    if _is_file(model):
        file = expand_path(model)
        return _of_file(ref, described(file if is_file(file) else expand_path(model.partition("#")[0])))
    if GGUF_REF.fullmatch(model) and (path := cached_gguf(model, hub_cache())) is not None:
        return _of_file(ref, described(path, "hub", model))
    own = own_folder(model, settings.models_folder)
    model_folder = own or local_folder(model)
    if model_folder is None:
        return _to_download(model).model_copy(update={"ref": ref, "name": _name(ref)})
    named = "" if own is None or str(own) == ref else str(own)
    return _downloaded(ref, model_folder, context=context_of(str(model_folder)), model=named)


def _is_file(model: str) -> bool:
    """Tells whether it names a GGUF file, there or not, perhaps with ``#`` and an adapter."""
    return is_file(expand_path(model)) or model.partition("#")[0].casefold().endswith(".gguf")


def _of_file(ref: str, file: FoundFile) -> ConductorOption:
    header, memory = file.header, Memory("cpu", ram_bytes(), "RAM")
    said: dict[str, Any] = {"ref": ref, "name": file.title, "model": str(file.path), "owner": OWNERS[file.owner]}
    said |= {"memory": memory.label, "memory_there_bytes": memory.total_bytes, "size_bytes": file.size_bytes}
    fault = file.fault or (f"{file.name} is an adapter of a model, not a model" if file.is_adapter else "")
    if header is None or fault:
        return ConductorOption(downloaded=not fault, runnable=False, reason=fault, **said)
    _, needed = choose_context(header, free_ram_bytes() or memory.total_bytes)
    fits = memory.holds(needed)
    reason = f"Runs on {memory.label} in {header.quantisation}."
    if not fits:
        reason = f"Needs {needed / 1e9:.1f} GB, this machine has {memory.total_bytes / 1e9:.1f} GB of {memory.label}."
    return ConductorOption(
        parameters=header.parameters,
        licence=header.licence,
        memory_needed_bytes=needed,
        downloaded=True,
        runnable=fits,
        reason=reason,
        quantisation=header.quantisation,
        has_chat_template=header.has_chat_template,
        context=header.context,
        **said,
    )


def _downloaded(ref: str, folder: Path, **said: Any) -> ConductorOption:
    """``said``: more fields of the line."""
    try:
        files = inspect_folder(folder)
    except ModelUnavailable as error:
        return _option(ref, 0, downloaded=False, runnable=False, reason=str(error), **said)
    known, placement = CONDUCTORS.get(ref), place(files.parameters)
    said |= {"licence": licence_of(folder) or (known.licence if known else "MIT" if folder == TINY_FOLDER else "")}
    said |= {"reason": f"Runs on {placement.memory.label} in {placement.dtype}.", "size_bytes": files.size_bytes}
    return _option(ref, files.parameters, downloaded=True, **said)


def _to_download(hub_id: str) -> ConductorOption:
    known, absent = CONDUCTORS.get(hub_id), not_here(hub_id)
    if known is None:
        return _option(hub_id, 0, downloaded=False, reason=f"{absent}.")
    absent = absent.replace(" downloads it", f" downloads it ({known.size_bytes / 1e9:.1f} GB)")
    said = {"size_bytes": known.size_bytes, "licence": known.licence, "reason": f"{absent}."}
    return _option(hub_id, known.shape.parameters, downloaded=False, **said)


def _option(ref: str, parameters: int, **said: Any) -> ConductorOption:
    """Returns the line of a Conductor of so many parameters. One that does not fit cannot run."""
    placement = place(parameters)
    memory = placement.memory
    if not placement.fits:
        lacks = f"Needs {placement.needed_bytes / 1e9:.1f} GB, this machine has {memory.total_bytes / 1e9:.1f} GB of "
        said |= {"runnable": False, "reason": f"{lacks}{memory.label}."}
    return ConductorOption(
        ref=ref,
        name=_name(ref),
        parameters=parameters,
        memory_needed_bytes=placement.needed_bytes,
        memory_there_bytes=memory.total_bytes,
        memory=memory.label,
        **{"runnable": True, **said},
    )


def _name(ref: str) -> str:
    return ref if ref == TINY or HUB_ID.fullmatch(ref) else Path(ref).name

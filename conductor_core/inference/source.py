"""Finds a model by its folder or hub id, and reads or refuses its files. It loads no torch.

It reads weights from safetensors alone, and never runs code that comes with a model.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from conductor_core.files import expand_path, is_file, is_folder, open_regular
from conductor_core.inference.generation import ModelNotHere, ModelUnavailable

HUB_ID = re.compile(r"(?!.*(?:--|\.\.|\.git$))[A-Za-z0-9](?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?", re.ASCII)
"""``owner/name`` as the hub takes it. It forbids ``--``, by which the cache's folders keep both names apart."""
GGUF_REF = re.compile(rf"({HUB_ID.pattern}):([A-Za-z0-9_.-]{{1,100}})", re.ASCII)
"""``owner/name:TAG``, one GGUF file of a repository, as llama.cpp and Ollama name it: ``TAG`` is such as ``Q4_K_M``."""
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = re.compile(r"[^/\\\x00]{1,200}\.safetensors")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_LICENCE = re.compile(r"^(license|license_name): *[\"']?([\w.+-]{1,60})[\"']?\s*$", re.MULTILINE | re.ASCII)
_MOST_README_BYTES = 65_536
_MAX_HEADER_BYTES = 100_000_000
_CONTEXT = ("max_position_embeddings", "n_positions")
"""The names of the longest text in configurations; the second is GPT-2's."""


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk that may be loaded.

    Attributes:
        config: its ``config.json``.
        parameters: counted from the headers of the weights.
        size_bytes: of all its weights.
    """

    folder: Path
    config: dict[str, Any]
    parameters: int
    size_bytes: int


def inspect_folder(folder: Path) -> ModelFiles:
    """Checks a model's files, of the weights only the headers. Raises: ModelUnavailable, saying what is wrong."""
    config = _read_config(folder)
    weights = _weights_of(folder)
    if not weights:
        if any(True for pattern in _PICKLES for _ in folder.glob(pattern)):
            raise ModelUnavailable(
                f"{folder} has pickled weights only, which can run code when loaded: convert them to safetensors"
            )
        raise ModelUnavailable(f"{folder} has no {_WHOLE}, and no index of its parts: the weights are missing")
    for name in sorted(_indexed(folder) or ()):
        if not _WEIGHTS.fullmatch(name):
            raise ModelUnavailable(
                f"{folder / _INDEX} names {name[:80]!r}: weights are read from *.safetensors files beside it"
            )
    if not _weights_complete(folder):
        raise ModelUnavailable(f"{folder} lacks some of the files that {_INDEX} names")
    if "transformers_weights" in config:
        raise ModelUnavailable(f"{folder} names its weights in config.json (transformers_weights): remove that line")
    architectures = config.get("architectures") or []
    if not any(str(name).endswith(("ForCausalLM", "ForConditionalGeneration")) for name in architectures):
        raise ModelUnavailable(
            f"{folder} is not a model that writes text: its config.json names {architectures or 'no architecture'}"
        )
    if not (folder / "tokenizer.json").is_file() and not (folder / "tokenizer_config.json").is_file():
        raise ModelUnavailable(f"{folder} has no tokenizer (tokenizer.json)")
    parameters = sum(map(_parameters_in, weights))
    return ModelFiles(folder, config, parameters, sum(path.stat().st_size for path in weights))


def _weights_of(folder: Path) -> list[Path]:
    """Returns the files of weights that are loaded. Others may lie beside them, such as the maker's own form."""
    names = {_WHOLE} if (folder / _WHOLE).is_file() else set()
    names |= _indexed(folder) or set()
    return [folder / name for name in sorted(names)]


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelUnavailable(f"{folder} has no config.json: it is not a model folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{path} must hold a JSON object")
    return config


def context_of(ref: str) -> int | None:
    """Returns the most tokens that a model on this machine reads, by its ``config.json`` alone; None: not told."""
    folder = local_folder(ref)
    try:
        config = {} if folder is None else _read_config(folder)
    except ModelUnavailable:
        return None
    # Models that also see pictures keep what is of text apart.
    text = config.get("text_config")
    for part in (text if isinstance(text, dict) else {}, config):
        for name in _CONTEXT:
            if type(tokens := part.get(name)) is int and tokens > 0:
                return tokens
    return None


def _parameters_in(path: Path) -> int:
    """Counts the numbers in the tensors of a safetensors file, by its header.

    The file is 8 bytes of length (little endian), a JSON header, the data. Raises: ModelUnavailable if it is not whole.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        end = max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
        if path.stat().st_size != 8 + length + end:
            raise ValueError(f"{path.stat().st_size:,} bytes instead of {8 + length + end:,}")
        return sum(prod(map(int, entry["shape"])) for entry in tensors)
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ModelUnavailable(f"{path} is not a whole safetensors file: {error}") from error


def hub_cache() -> Path:
    """Returns the folder of huggingface_hub's cache."""
    from huggingface_hub import constants  # when used: most programs look for no model of the hub

    return Path(constants.HF_HUB_CACHE)


def cache_folder(hub_id: str) -> Path:
    """Returns the folder in which the hub's cache has, or would have, a model."""
    return hub_cache() / f"models--{hub_id.replace('/', '--')}"


def cached_folder(hub_id: str) -> Path | None:
    """Returns the newest downloaded snapshot of a hub model that has weights. It does not ask the hub."""
    return _newest_snapshot(cache_folder(hub_id))


def holds_a_model(hub_id: str) -> bool:
    """Tells whether the hub's cache has something whole of a repository: its safetensors, or a GGUF file of it."""
    return cached_folder(hub_id) is not None or any(cache_folder(hub_id).glob("snapshots/*/*.gguf"))


def _newest_snapshot(repository: Path) -> Path | None:
    aged = []
    for each in (repository / "snapshots").glob("*"):
        with suppress(OSError):  # a link to nowhere, or deleted just now
            aged.append((each.stat().st_mtime, each))
    snapshots = [each for _, each in sorted(aged, reverse=True)]
    with suppress(OSError, ValueError):  # the commit that the hub named last as the newest comes first
        newest = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        snapshots.sort(key=lambda each: each.name != newest)
    return next((each for each in snapshots if (each / "config.json").is_file() and _weights_complete(each)), None)


def _weights_complete(folder: Path) -> bool:
    if (folder / _INDEX).is_file():
        names = _indexed(folder)
        return names is not None and all((folder / name).is_file() for name in names)
    return (folder / _WHOLE).is_file()


def _indexed(folder: Path) -> set[str] | None:
    """Returns the files that the index of a model in parts names; None without an index, or if it cannot be read."""
    try:
        return {str(name) for name in json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def cached_hub_ids() -> list[str]:
    """Returns the hub ids of all models that were downloaded on this machine, whole or not."""
    names = sorted(path.name for path in hub_cache().glob("models--*--*"))
    return [name.removeprefix("models--").replace("--", "/", 1) for name in names]


def own_folder(ref: str, models: Path) -> Path | None:
    """Returns the model folder that ``ref`` names; None if it names none.

    It is a path, or the name of a folder in ``models``. A model's folder in the hub's cache stands for its snapshot.
    """
    folder = expand_path(ref)
    if not is_folder(folder) and folder.name == ref and is_file(models / ref / "config.json"):
        folder = models / ref
    if not ref or not is_folder(folder):
        return None
    return folder if is_file(folder / "config.json") else _newest_snapshot(folder) or folder


def is_gguf(ref: str) -> bool:
    """Tells whether ``ref`` names a GGUF file: by its name, or by its first bytes, as Ollama's have other names."""
    path = expand_path(ref)
    if path.suffix.casefold() == ".gguf":
        return not is_folder(path)
    try:
        with open_regular(path) as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def local_folder(ref: str) -> Path | None:
    """Returns where a folder or hub id lies on this machine; None if it does not."""
    folder = expand_path(ref)
    if is_folder(folder):
        return folder
    return cached_folder(ref) if HUB_ID.fullmatch(ref) else None


def model_files(ref: str) -> ModelFiles:
    """Finds the model of a folder or hub id on this machine. It downloads nothing. Raises: ModelUnavailable."""
    folder = local_folder(ref)
    if folder is None:
        raise ModelNotHere(
            not_here(ref) if HUB_ID.fullmatch(ref) else f"{ref!r} is neither a folder nor a hub id (owner/name)"
        )
    return inspect_folder(folder)


def not_here(hub_id: str) -> str:
    """Says how to get a model that is not on this machine."""
    return f"{hub_id} is not on this machine: the Models page or `conductor models pull {hub_id}` downloads it"


def licence_of(folder: Path) -> str:
    """Returns the licence that a model's README names in its header; empty if it names none."""
    try:
        with (folder / "README.md").open("rb") as file:
            text = file.read(_MOST_README_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    header = text.removeprefix("\ufeff").partition("---")[2].partition("\n---")[0] if text.startswith("---") else ""
    said: dict[str, str] = dict(_LICENCE.findall(header))
    name = said.get("license", "")
    return said.get("license_name", name) if name == "other" else name

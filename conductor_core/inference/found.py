"""Finds the GGUF files that this machine has: of Ollama, LM Studio, the hub's cache, llama.cpp and our data folder.

Each keeps its owner's name for it. Nothing is copied, and nothing outside these folders is read. What lies there is
not trusted: a manifest names a digest and never a path, and a search ends after so many entries, levels and seconds.
"""

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from conductor_core.files import expand_path, open_regular
from conductor_core.inference import small_base
from conductor_core.inference.gguf_file import GgufFault, GgufHeader, read_header
from conductor_core.inference.source import GGUF_REF, hub_cache
from conductor_core.privacy.masking import one_line

Owner = Literal["models", "ollama", "lm studio", "hub", "llama.cpp"]
OWNERS: Final[Mapping[Owner, str]] = {
    "models": "models folder",
    "ollama": "Ollama",
    "lm studio": "LM Studio",
    "hub": "Hugging Face",
    "llama.cpp": "llama.cpp",
}
"""What people call whoever put a file there."""

_MOST_FILES, _MOST_ENTRIES, _MOST_LEVELS, _MOST_S = 300, 50_000, 4, 5.0
_MOST_PARTS = 200
_MOST_MANIFEST_BYTES = 1_000_000
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_OLLAMA: Final = "application/vnd.ollama.image."
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Of the user that Ollama's installer for Linux makes."""
_OLLAMA_HOST, _OLLAMA_NAMESPACE = "registry.ollama.ai", "library"
_WRITES_NO_TEXT = re.compile(r"bert|encoder|embed|^clip$|^flux$|^sd[13]")
"""Architectures that read text or images and write none."""


@dataclass(frozen=True)
class FoundFile:
    """A model, or an adapter of one, in a file that another program or a person put there.

    Attributes:
        name: as its owner says it, such as ``llama3.2:3b``.
        size_bytes: of all parts of a split model. header: None if it cannot be read.
        fault: why it cannot be used, in one line; empty if it can.
    """

    owner: Owner
    name: str
    path: Path
    size_bytes: int
    header: GgufHeader | None
    fault: str = ""

    @property
    def title(self) -> str:
        """Names it among all, such as ``ollama: llama3.2:3b``, on one line."""
        return one_line(f"{self.owner}: {self.name}", limit=200)

    @property
    def is_adapter(self) -> bool:
        return self.header is not None and self.header.kind == "adapter"


@dataclass(frozen=True)
class Place:
    """A folder that was looked through.

    Attributes:
        state: ``denied`` if its owner does not let us read it.
        files: how many models it gave.
    """

    owner: Owner
    folder: Path
    state: Literal["there", "missing", "denied"]
    files: int = 0


@dataclass(frozen=True)
class Found:
    """Attributes: is_complete: False if the search ended early, by the number of files or by time."""

    files: tuple[FoundFile, ...]
    places: tuple[Place, ...]
    is_complete: bool = True


def find_files(
    models_folder: Path, hub_folder: Path, environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> Found:
    """Returns the files of this machine that hold models. Reads folders and the beginnings of files. Raises nothing.

    ``models_folder``: ours. ``hub_folder``: the cache of huggingface_hub.
    """
    search = _Search()
    places: list[Place] = []
    folders: list[tuple[Owner, Path]] = [("models", models_folder)]
    if small_base.PROGRAM_FOLDER.is_dir():
        folders.append(("models", small_base.PROGRAM_FOLDER))
    folders += [*_folders(environment, home or home_folder()), ("hub", hub_folder)]
    for owner, folder in folders:
        before = len(search.found)
        state = _state(folder)
        if state == "there":
            for name, path in _named(owner, folder, search):
                search.add(owner, name, path)
        places.append(Place(owner, folder, state, len(search.found) - before))
    return Found(tuple(search.found), tuple(places), search.is_complete)


def by_title(title: str, models_folder: Path) -> FoundFile | None:
    """Returns the file that is listed as ``title``, such as ``ollama: llama3.2:3b``; None: there is none."""
    if title.partition(": ")[0] not in OWNERS:
        return None
    return next((each for each in find_files(models_folder, hub_cache()).files if each.title == title), None)


def gguf_path(model: str, models_folder: Path) -> Path:
    """Returns the file that ``model`` names by its path or its title, there or not."""
    found = by_title(model, models_folder)
    return expand_path(model) if found is None else found.path


def home_folder() -> Path:
    return expand_path("~")


def _state(folder: Path) -> Literal["there", "missing", "denied"]:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return "denied"
    except (OSError, ValueError):
        return "missing"
    return "there"


def described(path: Path, owner: Owner = "models", name: str = "") -> FoundFile:
    """Returns what there is to say of one file. Raises nothing: a file that is gone or damaged has its fault."""
    name = name or _stem(path)
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
        header = _with_parts(path, _header(path, status.st_ino, status.st_size, status.st_mtime_ns))
    except FileNotFoundError:
        return FoundFile(owner, name, path, 0, None, "the file is no longer there")
    except GgufFault as error:
        return FoundFile(owner, name, path, _size(path), None, error.why)
    except (OSError, ValueError) as error:
        return FoundFile(owner, name, path, 0, None, getattr(error, "strerror", None) or str(error))
    return FoundFile(owner, name, path, header.size_bytes, header, _fault(header))


@lru_cache(maxsize=2048)
def _header(path: Path, _inode: int, _size: int, _changed_ns: int) -> GgufHeader:
    """Reads a header once for each state of a file. Raises: GgufFault."""
    return read_header(path)


def _with_parts(path: Path, header: GgufHeader) -> GgufHeader:
    """Adds what the other parts of a split model hold. Raises: GgufFault if one is missing."""
    if header.parts == 1:
        return header
    if header.parts > _MOST_PARTS or not _PART.search(path.name):
        raise GgufFault(path, f"part {header.part} of {header.parts}, and its name does not say where the others are")
    others = []
    for number, other in enumerate(_parts(path, header.parts)[1:], 2):
        try:
            others.append(read_header(other))
        except GgufFault as error:
            raise GgufFault(path, f"part {number} of {header.parts} cannot be used: {error.why}") from error
    return replace(
        header,
        parameters=header.parameters + sum(each.parameters for each in others),
        size_bytes=header.size_bytes + sum(each.size_bytes for each in others),
        is_whole=header.is_whole and all(each.is_whole for each in others),
    )


def _parts(path: Path, count: int) -> list[Path]:
    return [path.with_name(_PART.sub(f"-{each:05}-of-{count:05}", path.name)) for each in range(1, count + 1)]


def parts_of(path: Path) -> list[Path]:
    """Returns the files of a model whose first part is ``path``, as far as they are here."""
    found = _PART.search(path.name)
    parts = [path] if found is None else _parts(path, min(int(found[2]), _MOST_PARTS))
    return [each for each in parts if os.path.lexists(each)]


def _fault(header: GgufHeader) -> str:
    if not header.is_whole:
        return "the file is cut: its download did not end, or the disk was full. Download it again"
    if header.kind == "model" and (header.embeds or _WRITES_NO_TEXT.search(header.architecture)):
        return f"it writes no text: {header.architecture} models embed texts or images"
    return ""


class _Search:
    """Collects files, each once, within bounds."""

    def __init__(self) -> None:
        self.found: list[FoundFile] = []
        self.is_complete = True
        self._seen: set[tuple[int, int]] = set()
        self._entries = 0
        self._until_s = time.monotonic() + _MOST_S

    def goes_on(self) -> bool:
        self._entries += 1
        if len(self.found) >= _MOST_FILES or self._entries > _MOST_ENTRIES or time.monotonic() > self._until_s:
            self.is_complete = False
        return self.is_complete

    def is_new(self, path: Path) -> bool:
        """Tells whether a file or folder is met for the first time, by whatever name."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return False
        fresh = (status.st_dev, status.st_ino) not in self._seen
        self._seen.add((status.st_dev, status.st_ino))
        return fresh

    def add(self, owner: Owner, name: str, path: Path) -> None:
        part = _PART.search(path.name)
        if (part and int(part[1]) != 1) or "mmproj" in path.name.casefold() or not self.is_new(path):
            return
        found = described(path, owner, name)
        if found.header is None or (found.header.kind in ("model", "adapter") and found.header.architecture != "clip"):
            self.found.append(found)


def _folders(environment: Mapping[str, str], home: Path) -> Iterator[tuple[Owner, Path]]:
    """Yields where each program keeps its models, as it documents that."""
    if given := environment.get("OLLAMA_MODELS"):
        yield "ollama", Path(given)
    yield "ollama", home / ".ollama" / "models"
    yield "ollama", OLLAMA_SERVICE
    yield from (("lm studio", folder) for folder in _lm_studio(home))
    if given := environment.get("LLAMA_CACHE"):
        yield "llama.cpp", Path(given)
    caches = (
        [Path(given)] if (given := environment.get("XDG_CACHE_HOME")) else [home / ".cache", home / "Library/Caches"]
    )
    yield from (("llama.cpp", each / "llama.cpp") for each in caches)


def _lm_studio(home: Path) -> Iterator[Path]:
    own = home / ".lmstudio"
    with suppress(OSError, ValueError):
        text = _beginning(home / ".lmstudio-home-pointer", 4096).decode().strip()
        if text and Path(text).is_absolute():
            own = Path(text)
    with suppress(OSError, ValueError):  # the person's own choice
        chosen = json.loads(_beginning(own / "settings.json", _MOST_MANIFEST_BYTES)).get("downloadsFolder")
        if isinstance(chosen, str) and Path(chosen).is_absolute():
            yield Path(chosen)
    yield own / "models"
    yield home / ".cache" / "lm-studio" / "models"


def _named(owner: Owner, folder: Path, search: _Search) -> Iterator[tuple[str, Path]]:
    """Yields the candidates in a folder: the name that the owner gives each, and its file."""
    if owner == "ollama":
        yield from _ollama(folder, search)
    elif owner == "hub":
        yield from _hub_cache(folder, search)
    else:
        yield from ((_stem(path), path) for path in _files(folder, search))


def _stem(path: Path) -> str:
    return _PART.sub("", path.name).removesuffix(".gguf")


def _files(folder: Path, search: _Search, levels: int = _MOST_LEVELS, ends: str = ".gguf") -> Iterator[Path]:
    """Yields the files below a folder whose names end so. A folder that links to one above it is met once."""
    if not search.is_new(folder):
        return
    for path in _entries(folder):
        if not search.goes_on():
            return
        if os.path.isdir(path):
            if levels:
                yield from _files(path, search, levels - 1, ends)
        elif path.name.casefold().endswith(ends):
            yield path


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError, ValueError):
        return sorted(folder.iterdir())
    return []


def _hub_cache(folder: Path, search: _Search) -> Iterator[tuple[str, Path]]:
    for repository in _entries(folder):
        if not search.goes_on():
            return
        if not repository.name.startswith("models--"):
            continue
        hub_id = repository.name.removeprefix("models--").replace("--", "/", 1)
        for path in _files(repository / "snapshots", search):
            yield f"{hub_id}:{_tag(hub_id, path)}", path


def cached_gguf(ref: str, hub_folder: Path) -> Path | None:
    """Returns the file of ``owner/name:TAG`` in the hub's cache, of a split model the first part; None: not here."""
    matched = GGUF_REF.fullmatch(ref)
    if matched is None:
        return None
    hub_id, tag = matched[1], matched[2]
    repository = hub_folder / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    for snapshot in _entries(repository):
        here = {path.name: path for path in _entries(snapshot) if os.path.isfile(path)}
        names = files_of_tag(hub_id, tag, here)
        part = _PART.search(names[0]) if names else None
        if names and len(names) == (1 if part is None else int(part[2])):
            return here[names[0]]
    return None


def files_of_tag(hub_id: str, tag: str, names: Iterable[str]) -> list[str]:
    """Returns the files that ``TAG`` means, all parts of one model in order; empty if none or several fit."""
    of: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.casefold().endswith(".gguf") and "mmproj" not in name.casefold():
            of.setdefault(_tag(hub_id, Path(name)).casefold(), []).append(name)
    wanted = tag.casefold()
    fitting = [each for each in of if each == wanted] or [each for each in of if each.endswith(wanted)]
    return of[fitting[0]] if len(fitting) == 1 else []


def tags_of(hub_id: str, names: Iterable[str]) -> list[str]:
    """Returns the tags of a repository's GGUF files."""
    ours = (each for each in names if each.casefold().endswith(".gguf") and "mmproj" not in each.casefold())
    return sorted({_tag(hub_id, Path(each)) for each in ours})


def _tag(hub_id: str, path: Path) -> str:
    """Returns how llama.cpp and Ollama name a file of a repository: by what its name adds to the repository's."""
    name = hub_id.rpartition("/")[2].casefold().removesuffix("-gguf")
    stem = _stem(path)
    return stem[len(name) :].lstrip("-._") or stem if stem.casefold().startswith(name) else stem


def _ollama(folder: Path, search: _Search) -> Iterator[tuple[str, Path]]:
    for manifest in _files(folder / "manifests", search, ends=""):
        parts = manifest.relative_to(folder / "manifests").parts
        if len(parts) < 3:
            continue
        *where, model, tag = parts
        if where[0] == _OLLAMA_HOST:
            where = where[1:]
        if where == [_OLLAMA_NAMESPACE]:
            where = []
        digest = _model_digest(manifest)
        if digest is not None:
            yield f"{'/'.join([*where, model])}:{tag}", folder / "blobs" / f"sha256-{digest}"


def _model_digest(manifest: Path) -> str | None:
    """Returns the digest of the model that a manifest names; None if it names none that is a GGUF file."""
    try:
        said = json.loads(_beginning(manifest, _MOST_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    layers = said.get("layers") if isinstance(said, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == f"{_OLLAMA}model":
            digest: Any = layer.get("digest")
            found = _SHA256.fullmatch(digest) if isinstance(digest, str) else None
            return found[1] if found else None
    return None


def _beginning(path: Path, most_bytes: int) -> bytes:
    """Reads a small file. Raises: OSError; ValueError for a larger one."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes")
    return content


def _size(path: Path) -> int:
    with suppress(OSError):
        status = path.stat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0

"""Downloads a model into the hub's own cache; tells its progress, stops at any time, and goes on where it stopped.

The cache's layout, the small files and the links are ``huggingface_hub``'s, and so is HTTP. Since its release 1.0 that
library begins a file again after every stop, so the weights are fetched here first: into ``blobs/SHA256.part``, from
where it left off. A part that is whole and has its digest gets the name under which the library looks for it.

Set ``HF_HOME`` for another cache, ``HF_ENDPOINT`` for another hub, ``HF_TOKEN`` for gated models.
"""

import errno
import glob
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import huggingface_hub
from huggingface_hub import constants, file_download
from huggingface_hub import errors as hub
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils.tqdm import tqdm

from conductor_core.files import FileLock, is_locked, write_whole
from conductor_core.inference.found import cached_gguf, files_of_tag, parts_of, tags_of
from conductor_core.inference.generation import ModelUnavailable, Unreachable
from conductor_core.inference.llama import end_all_of
from conductor_core.inference.shared import is_held, release
from conductor_core.inference.source import GGUF_REF, HUB_ID, cache_folder, holds_a_model

SPARE_BYTES = 200_000_000
"""Bytes that a download leaves free on the disk: a database that meets a full one loses more than a model."""

constants.DOWNLOAD_CHUNK_SIZE = None  # type: ignore[assignment]  # as it comes; httpx takes None for that
# Otherwise the library gathers 10 MB first: on a slow line minutes without progress, and until a pause is heard.
constants.HF_HUB_DISABLE_XET = True
# By Xet a hub may name any other host, which would be sent the key for the hub, and would choose the bytes.

_SHA256_LENGTH = 64
_LONGEST_WAIT_S = 86_400

Notify = Callable[[int, int], None]
"""Takes the bytes of the weights that are here, and those of all weights. What it raises ends the download."""


# What a hub says of a model is checked before we use it: its digests and tags become paths, its sizes take disk.

_ABOUT = ("README.md", "LICENSE*")
"""They say under which licence a model may be used."""
WANTED_FILES = (
    "*.json", "model*.safetensors", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model", "*.tiktoken", *_ABOUT,
)  # fmt: skip
"""What is downloaded of a model in safetensors."""
_TAG_OF_FILE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TAG = re.compile(r"[0-9A-Za-z_-]{1,128}")
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
_MOST_BYTES = 10**14
_UNSAID_BYTES = 50_000_000
"""Bytes for a file whose size the hub leaves out: more than any tokenizer takes."""
_SLACK_BYTES = 1_000_000


@dataclass(frozen=True)
class Weights:
    """One file of weights on the hub."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Listing:
    """A model at one commit. ``names``: the wanted files. ``other_bytes``: their size without the weights."""

    commit: str
    names: tuple[str, ...]
    weights: tuple[Weights, ...]
    other_bytes: int


def read_listing(hub_id: str, info: Any, tag: str = "") -> Listing:
    """Checks ``info``, the hub's description of the model with its files. Raises: ModelUnavailable.

    ``tag``: which GGUF file of it is wanted; empty: its safetensors.
    """
    named = [each for each in info.siblings or () if isinstance(each.rfilename, str)]
    if tag:
        files = files_of_tag(hub_id, tag, (each.rfilename for each in named if _NAME.fullmatch(each.rfilename)))
        listed = [each for each in named if each.rfilename in files or _is_wanted(each.rfilename, _ABOUT)]
    else:
        listed = [each for each in named if _is_wanted(each.rfilename)]
    ends = ".gguf" if tag else ".safetensors"
    weights = [each for each in listed if each.lfs is not None and each.rfilename.endswith(ends)]
    if not any(each.rfilename.endswith(ends) for each in listed):
        tags = [each for each in tags_of(hub_id, (each.rfilename for each in named)) if _TAG_OF_FILE.fullmatch(each)]
        if tags:
            raise ModelUnavailable(
                f"which GGUF file of {hub_id}? Write {hub_id}:TAG with one of {', '.join(tags[:20])}"
            )
        raise ModelUnavailable(f"{hub_id} offers no safetensors or GGUF weights on the hub: it is not downloaded")
    if not _COMMIT.fullmatch(str(info.sha)):
        raise _not_believed(hub_id, "its commit")
    for each in weights:
        if not isinstance(each.lfs.sha256, str) or not _SHA256.fullmatch(each.lfs.sha256):
            raise _not_believed(hub_id, f"the digest of {each.rfilename[:80]!r}")
        if type(each.lfs.size) is not int or not 0 <= each.lfs.size <= _MOST_BYTES:
            raise _not_believed(hub_id, f"the size of {each.rfilename[:80]!r}")
    return Listing(
        commit=info.sha,
        names=tuple(each.rfilename for each in listed),
        weights=tuple(Weights(each.rfilename, each.lfs.size, each.lfs.sha256) for each in weights),
        other_bytes=sum(
            each.size if type(each.size) is int and 0 <= each.size <= _MOST_BYTES else _UNSAID_BYTES
            for each in listed
            if each not in weights
        ),
    )


def _is_wanted(name: str, wanted: tuple[str, ...] = WANTED_FILES) -> bool:
    """Files of folders inside a model are other forms of it, which are not loaded from there."""
    return bool(_NAME.fullmatch(name)) and any(fnmatch(name, each) for each in wanted)


def meter_of(hub_id: str, most_bytes: int, on_bytes: Callable[[], None]) -> type[Any]:
    """Returns a progress bar that ends the library's downloads once more than ``most_bytes`` have come.

    The bar calls ``on_bytes`` while they go on; what that raises ends them too.
    """
    came = 0.0

    class Meter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The library also counts files, and the bytes a second time as they come over the wire.
            self._of_bytes = kwargs.get("unit") == "B" and str(kwargs.get("desc")).startswith("Reconstructing")
            kwargs["disable"] = True  # who wants to see progress is told by ``on_bytes``
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> Any:
            nonlocal came
            on_bytes()
            if self._of_bytes:
                came += n or 0
                if came > most_bytes + _SLACK_BYTES:
                    raise ModelUnavailable(f"{hub_id}: the hub sends more bytes than it listed: it is not downloaded")
            return super().update(n)

    return Meter


def _not_believed(hub_id: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"{hub_id}: the hub's answer cannot be used, {what} is none: it is not downloaded")


def _checked(find: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Wraps ``find``, which gets a file's address, tag, commit, ... for the library, with a check of tag and commit."""

    def metadata(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        found = find(*args, **kwargs)
        _, tag, commit, *_ = found
        if (tag is not None and not _TAG.fullmatch(tag)) or (commit is not None and not _COMMIT.fullmatch(commit)):
            raise _not_believed(str(kwargs.get("repo_id")), f"the tag or commit of {kwargs.get('filename')!r}")
        return found

    return metadata


# The library makes paths of both as they come.
file_download._get_metadata_or_catch_error = _checked(file_download._get_metadata_or_catch_error)


# Downloads.


def is_reachable(within_s: float = 3.0) -> bool:
    """Tells whether a hub answers. It sends one request without a body or a key. Blocks."""
    if constants.is_offline_mode():
        return False
    try:
        httpx2.head(constants.ENDPOINT, timeout=within_s)
    except (httpx2.HTTPError, OSError):
        return False
    return True


def room() -> tuple[Path, int]:
    """Returns the folder of the hub's cache, and the bytes that are free there."""
    folder = Path(constants.HF_HUB_CACHE)
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    return folder, shutil.disk_usage(there).free


def partly_here_bytes(hub_id: str) -> int:
    """Returns the bytes that are here of weights whose download was stopped."""
    total, patterns = 0, ("*.part",) if holds_a_model(hub_id) else ("*.part", "?" * _SHA256_LENGTH)
    for each in (file for pattern in patterns for file in (cache_folder(hub_id) / "blobs").glob(pattern)):
        with suppress(OSError):  # a link to nowhere, or renamed just now
            total += each.stat().st_size
    return total


def is_downloaded_elsewhere(hub_id: str) -> bool:
    """Tells whether another program downloads the model now."""
    parts = (cache_folder(hub_id) / "blobs").glob("*.part")
    return any(is_locked(part) for part in parts if not part.is_symlink())  # no download makes a link


def download(ref: str, notify: Notify = lambda _here, _all: None) -> Path:
    """Returns the folder of the model's newest revision, and downloads what is not there. Blocks.

    ``ref``: ``owner/name``, or ``owner/name:TAG`` for a GGUF file, whose path is returned.

    Raises: ModelUnavailable; what ``notify`` raises. Either way the next call goes on where this one stopped.
    """
    gguf = GGUF_REF.fullmatch(ref)
    hub_id, tag = (ref, "") if gguf is None else (gguf[1], gguf[2])
    try:
        folder = _download(hub_id, tag, notify)
        return (cached_gguf(ref, Path(constants.HF_HUB_CACHE)) or folder) if tag else folder
    except hub.GatedRepoError:
        raise ModelUnavailable(
            f"{hub_id} is gated: accept its licence on the hub, and set HF_TOKEN to a key of your account"
        ) from None
    except hub.RepositoryNotFoundError:
        raise ModelUnavailable(
            f"the hub has no public model {hub_id!r}: check its name, or set HF_TOKEN to a key that may read it"
        ) from None
    except (hub.HfHubHTTPError, hub.LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
        kind = Unreachable if _is_unreachable(_cause(error)) else ModelUnavailable
        raise kind(f"{hub_id} is not on this machine and {_why(_cause(error))}") from error


def _download(hub_id: str, tag: str, notify: Notify) -> Path:
    listing = _listing(hub_id, tag)
    weights = listing.weights
    blobs = cache_folder(hub_id) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    whole = sum(each.size_bytes for each in weights)
    here = {each.sha256: _size(blobs, each) for each in weights}
    _check_room(hub_id, whole - sum(here.values()) + listing.other_bytes)
    for each in weights:

        def more(size_bytes: int, of: str = each.sha256) -> None:
            here[of] = size_bytes
            notify(sum(here.values()), whole)

        more(here[each.sha256])
        if not (blobs / each.sha256).exists():
            _fetch(hub_id, listing.commit, each, blobs, more)
    folder = huggingface_hub.snapshot_download(
        hub_id,
        # The commit whose weights were fetched, though the hub may have a newer one by now.
        revision=huggingface_hub.ResolvedRevision(listing.commit, repo_id=hub_id),
        allow_patterns=[glob.escape(name) for name in listing.names],
        cache_dir=constants.HF_HUB_CACHE,
        tqdm_class=meter_of(hub_id, listing.other_bytes, lambda: notify(sum(here.values()), whole)),
    )
    # As the library does when it looks the newest revision up.
    main = cache_folder(hub_id) / "refs" / "main"
    main.parent.mkdir(parents=True, exist_ok=True)
    write_whole(main, listing.commit.encode())
    return Path(folder)


def _listing(hub_id: str, tag: str) -> Listing:
    try:
        info = huggingface_hub.HfApi().model_info(hub_id, files_metadata=True)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # The library expects JSON of its own form, and takes what else comes as it is.
        raise ModelUnavailable(
            f"{hub_id}: {constants.ENDPOINT} does not answer as a hub does: check HF_ENDPOINT and the network"
        ) from error
    return read_listing(hub_id, info, tag)


def _size(blobs: Path, weights: Weights) -> int:
    """Returns the bytes of ``weights`` that are here."""
    for name in (weights.sha256, f"{weights.sha256}.part"):
        if (blobs / name).exists():
            return (blobs / name).stat().st_size
    return 0


def _check_room(hub_id: str, needed_bytes: int) -> None:
    free = shutil.disk_usage(constants.HF_HUB_CACHE).free
    if needed_bytes + SPARE_BYTES > free:
        raise ModelUnavailable(
            f"{hub_id} needs {needed_bytes / 1e9:.1f} GB more in {constants.HF_HUB_CACHE}, where {free / 1e9:.1f} GB "
            "are free: make room, or set HF_HOME to a folder on another disk"
        )


def _fetch(hub_id: str, revision: str, weights: Weights, blobs: Path, more: Callable[[int], None]) -> None:
    """Downloads the rest of ``weights``."""
    part = blobs / f"{weights.sha256}.part"
    lock = FileLock(part)
    try:
        if not lock.try_acquire():
            raise ModelUnavailable(f"{hub_id} is being downloaded by another program on this machine: wait for it")
        with part.open("r+b") as file:
            begun = file.seek(0, 2)
            if begun > weights.size_bytes:
                begun = file.truncate(0)
                file.seek(0)

            def bounded(here_bytes: int) -> None:
                if here_bytes > weights.size_bytes:
                    part.unlink(missing_ok=True)
                    raise _other_bytes(hub_id, weights)
                more(here_bytes)

            url, headers = _address(hub_id, revision, weights.name)
            file_download.http_get(
                url,
                file,
                resume_size=begun,
                headers=headers,
                expected_size=weights.size_bytes,
                displayed_filename=weights.name,
                tqdm_class=_meter(begun, bounded),
            )
            file.flush()
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != weights.sha256:
            part.unlink()
            raise _other_bytes(hub_id, weights)
        part.rename(blobs / weights.sha256)
        more(weights.size_bytes)
    finally:
        lock.close()


def _other_bytes(hub_id: str, weights: Weights) -> ModelUnavailable:
    return ModelUnavailable(f"{weights.name} of {hub_id} came with other bytes than the hub says: try again")


def _address(hub_id: str, revision: str, name: str) -> tuple[str, dict[str, str]]:
    """Returns the address of the bytes, and the headers for it: a key for the hub goes to no other host."""
    url = huggingface_hub.hf_hub_url(hub_id, name, revision=revision)
    headers = build_hf_headers()
    location = file_download.get_hf_file_metadata(url, headers=headers).location
    if urlsplit(location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)
    return location, headers


def _meter(begun: int, more: Callable[[int], None]) -> Any:
    """Returns a class that takes the place of the library's progress bar."""

    class Meter:
        def __init__(self, **_: Any) -> None:
            self._here = begun

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was opened."""

        def update(self, more_bytes: float | None = 1) -> None:
            self._here += int(more_bytes or 0)
            more(self._here)

    return Meter


def _cause(error: Exception) -> BaseException:
    """Returns what is wrong: ``LocalEntryNotFoundError`` hides it."""
    return error.__cause__ or error if isinstance(error, hub.LocalEntryNotFoundError) else error


def _is_unreachable(cause: BaseException) -> bool:
    kinds = (hub.OfflineModeIsEnabled, httpx2.TransportError, ConnectionError, hub.LocalEntryNotFoundError)
    return isinstance(cause, kinds)


def _why(cause: BaseException) -> str:
    """Returns the rest of a sentence: what is wrong and what to do."""
    if isinstance(cause, hub.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids downloading it: unset it, or fetch the model elsewhere and give its folder"
    if _is_unreachable(cause):
        return (
            f"the hub {constants.ENDPOINT} cannot be reached: connect this machine, "
            "or fetch the model elsewhere and give its folder"
        )
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return f"the disk of {constants.HF_HUB_CACHE} is full: free some space and continue"
    if isinstance(cause, hub.HfHubHTTPError) and cause.response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        said = cause.response.headers.get("Retry-After", "")
        is_known = said.isascii() and said.isdigit() and len(said) < 9
        when = f"in {min(int(said), _LONGEST_WAIT_S)} s" if is_known else "in some minutes"
        return f"the hub takes no more requests now: try again {when}"
    reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause).partition("\n")[0]
    return f"could not be downloaded: {reason or type(cause).__name__}"


class ModelInUse(ModelUnavailable):
    """A model that somebody uses or downloads at this moment."""


def remove(hub_id: str) -> int:
    """Deletes all that the cache has of a model. Returns the bytes freed.

    Raises: ModelInUse; ModelUnavailable if there is nothing of it, or the system refuses.
    """
    folder = _folder(hub_id)
    if not release(hub_id):
        raise ModelInUse(f"{hub_id} is writing at this moment: wait until it is done, or cancel the run")
    if any(map(is_held, (folder / "snapshots").glob("*"))):
        raise ModelInUse(f"another program on this machine has {hub_id} in memory: end it, or wait until it is idle")
    return _delete(hub_id, folder)


def remove_file(path: Path) -> int:
    """Deletes a GGUF file, all its parts, and of the hub's cache what they link to. Returns the bytes freed.

    Raises: ModelInUse; ModelUnavailable if the system refuses. Another program that has it in memory keeps it.
    """
    if not end_all_of(path):
        raise ModelInUse(f"{path.name} is writing at this moment: wait until it is done, or cancel the run")
    freed = 0
    try:
        for part in parts_of(path):
            snapshots = next((each for each in part.parents if each.name == "snapshots"), part.parent)
            blob, is_link = part.resolve(), part.is_symlink()
            size = blob.stat().st_size
            part.unlink()
            if is_link:
                # Another revision may link to the same bytes. What lies elsewhere is a person's own.
                shared = any(each.resolve() == blob for each in snapshots.rglob(glob.escape(part.name)))
                if shared or blob.parent != snapshots.with_name("blobs").resolve():
                    continue
                blob.unlink()
            freed += size
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be deleted: {error.strerror or error}") from error
    return freed


def discard_part(hub_id: str) -> int:
    """Deletes what a stopped download has left. Returns the bytes freed. Raises: ModelInUse, ModelUnavailable."""
    folder = _folder(hub_id)
    if not holds_a_model(hub_id):
        return _delete(hub_id, folder)
    _require_idle(hub_id)
    freed = 0
    for part in (folder / "blobs").glob("*.part"):
        freed += part.stat().st_size
        part.unlink(missing_ok=True)
    return freed


def _folder(hub_id: str) -> Path:
    folder = cache_folder(hub_id)
    if not HUB_ID.fullmatch(hub_id) or not folder.is_dir():
        raise ModelUnavailable(f"the hub's cache has nothing of {hub_id[:200]!r}")
    if folder.is_symlink():
        raise ModelUnavailable(f"{folder} is a link to {folder.resolve()}: delete that folder and the link yourself")
    return folder


def _require_idle(hub_id: str) -> None:
    if is_downloaded_elsewhere(hub_id):
        raise ModelInUse(f"{hub_id} is being downloaded by another program on this machine: stop that first")


def _delete(hub_id: str, folder: Path) -> int:
    """Renames the folder first: whoever is killed in between leaves no half of a model under its name."""
    _require_idle(hub_id)
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    freed = sum(each.stat().st_size for each in files)
    gone = folder.with_name(f".deleted-{os.getpid()}-{folder.name}")
    try:
        for left in folder.parent.glob(f".deleted-*-{folder.name}"):
            shutil.rmtree(left)
        folder.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise ModelUnavailable(f"{folder} cannot be deleted: {error.strerror or error}") from error
    return freed

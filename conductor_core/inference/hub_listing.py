"""Checks what a hub says of a model before we use it: its digests and tags become paths, its sizes take disk."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from huggingface_hub import file_download
from huggingface_hub.utils.tqdm import tqdm

from conductor_core.inference.generation import ModelUnavailable

WANTED_FILES = (
    "*.json", "model*.safetensors", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model", "*.tiktoken",
    "README.md", "LICENSE*",
)  # fmt: skip
"""What is downloaded of a model. The last two say under which licence it may be used."""
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


def read_listing(hub_id: str, info: Any) -> Listing:
    """Checks ``info``, the hub's description of the model with its files. Raises: ModelUnavailable."""
    listed = [each for each in info.siblings or () if _is_wanted(each.rfilename)]
    if not any(each.rfilename.endswith(".safetensors") for each in listed):
        raise ModelUnavailable(f"{hub_id} offers no safetensors weights on the hub: it is not downloaded")
    weights = [each for each in listed if each.lfs is not None and each.rfilename.endswith(".safetensors")]
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
        other_bytes=sum(_size(each.size) for each in listed if each not in weights),
    )


def _is_wanted(name: object) -> bool:
    """Files of folders inside a model are other forms of it, which are not loaded from there."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and any(fnmatch(name, each) for each in WANTED_FILES)


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


def _size(said: object) -> int:
    return said if type(said) is int and 0 <= said <= _MOST_BYTES else _UNSAID_BYTES


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

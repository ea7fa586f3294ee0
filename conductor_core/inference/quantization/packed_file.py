"""Writes tensors to a safetensors file one at a time, checks such a file, and maps it. Imports torch.

A file appears under its name only when it is whole and on the disk. It says in its metadata what it was made of, and
has a digest of samples of its content: digests of all bytes would take longer than loading the model does.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from safetensors import safe_open

_NAMES = {torch.int8: "I8", torch.uint8: "U8", torch.bfloat16: "BF16", torch.float32: "F32"}
_DIGEST = "sha256_of_samples"
_ALIGNMENT = 64
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_MAX_HEADER_BYTES = 100_000_000


class Form(NamedTuple):
    """What a tensor of the file is to be."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def size_of(forms: Mapping[str, Form]) -> int:
    """Returns the bytes that a file of these tensors takes, but for its header."""
    return sum(form.size_bytes for form in forms.values())


def write(
    path: Path, forms: Mapping[str, Form], metadata: Mapping[str, str], tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Writes ``tensors``, which come in the order of ``forms``. What stops it leaves nothing under the name ``path``.

    Raises: OSError, and what ``tensors`` raises.
    """
    unfinished = path.with_suffix(".unfinished")
    try:
        with open(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "r+b") as file:
            file.write(_header(forms, {**metadata, _DIGEST: "0" * 64}))
            for _, tensor in tensors:
                file.write(tensor.contiguous().view(torch.uint8).numpy().data)
                file.flush()
                os.fdatasync(file.fileno())  # the last one then takes no longer than the others
            header = _header(forms, {**metadata, _DIGEST: _digest_of_samples(file)})
            file.seek(0)
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def check(path: Path, forms: Mapping[str, Form], metadata: Mapping[str, str]) -> None:
    """Raises: FileNotFoundError; ValueError, saying why the file is not the one that ``write`` would make."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if header_bytes > _MAX_HEADER_BYTES:
            raise ValueError("it is not a file of weights")
        header: Any = json.loads(file.read(header_bytes))
        if os.fstat(file.fileno()).st_size != 8 + header_bytes + size_of(forms):
            raise ValueError("it is cut, or of another model")
        made_with = header.pop("__metadata__", {})
        for name, value in metadata.items():
            if made_with.get(name) != value:
                raise ValueError(f"it was made with another {name}")
        if header != _entries(forms):
            raise ValueError("it has other tensors than this model")
        if made_with.get(_DIGEST) != _digest_of_samples(file):
            raise ValueError("its content is damaged")


def mapped(path: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file that was checked. Their pages are read when they are used."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping


def _entries(forms: Mapping[str, Form]) -> dict[str, Any]:
    entries, end = {}, 0
    for name, form in forms.items():
        begin, end = end, end + form.size_bytes
        entries[name] = {"dtype": _NAMES[form.dtype], "shape": list(form.shape), "data_offsets": [begin, end]}
    return entries


def _header(forms: Mapping[str, Form], metadata: Mapping[str, str]) -> bytes:
    """Returns the length and the JSON of a header. The form allows spaces at its end, which align what follows."""
    text = json.dumps({"__metadata__": dict(metadata), **_entries(forms)}).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _digest_of_samples(file: IO[bytes]) -> str:
    """Returns a digest of samples of what follows the header."""
    file.seek(0)
    begin = 8 + int.from_bytes(file.read(8), "little")
    last = max(begin, os.fstat(file.fileno()).st_size - _SAMPLE_BYTES)
    digest = hashlib.sha256()
    for place in _places(begin, last):
        file.seek(place)
        digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _places(begin: int, last: int) -> Sequence[int]:
    return [begin + sample * (last - begin) // (_SAMPLES - 1) for sample in range(_SAMPLES)]

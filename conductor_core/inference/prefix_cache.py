"""Keeps the attention caches of prompts' static beginnings, in memory and as files, so that they are read once.

A file spares a restart the reading. It holds the keys and values of one prefix of one model, as safetensors. Its name
is a digest of all that decides them: the model's files, the token ids, number format, device and libraries. It is
loaded only if it is whole and fits. Imports torch and transformers.
"""

import contextlib
import copy
import hashlib
import json
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from conductor_core.files import write_whole
from conductor_core.inference.generation import PrefixFolder
from conductor_core.inference.prefix_folder import make_room, writing_to
from conductor_core.inference.source import model_stamp

log = logging.getLogger(__name__)

FORM = 1
"""The version of these files. Raise it when a prefix is read in another way than before, such as in other chunks."""
_SUFFIX = ".safetensors"
_MAX_HEADER_BYTES = 2**20


class PrefixFiles:
    """The files of one loaded model. Nothing here raises for what is on the disk: it costs a line in the log."""

    def __init__(self, folder: PrefixFolder, model_folder: Path, stamp: str | None, config: Any, how: str) -> None:
        """Makes the files of a model that was loaded after its ``model_stamp`` was ``stamp``.

        Args:
            config: the model's, for text.
            how: device, number format and precision in which it runs.
        """
        self._folder = folder
        self._model_folder = model_folder
        self._stamp = stamp
        self._config = config
        self._how = how

    def load(self, ids: Sequence[int], dtype: torch.dtype, device: str) -> DynamicCache | None:
        """Returns a cache that has read ``ids``; None where there is no file that may be used."""
        path = self._path(ids)
        if path is None or not self._unchanged():
            return None
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                data = file.read()
            tensors = _checked(data, path.stem, self._shape(ids), dtype, self._layers)
            os.utime(path)  # the oldest leave first
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 a file from elsewhere makes its reader raise anything
            log.warning("%s is dropped, and the prompt is read again: %s", path, _first_line(error))
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        kept = {name: each.to(device) for name, each in tensors.items()}
        pairs = [(kept[f"{layer}.keys"], kept[f"{layer}.values"]) for layer in range(self._layers)]
        return DynamicCache(pairs, config=self._config)

    def save(self, ids: Sequence[int], cache: DynamicCache) -> None:
        """Writes ``cache``, which has read ``ids`` and nothing else, as a file; the oldest files leave for it."""
        path = self._path(ids)
        tensors = self._tensors(cache, ids)
        if path is None or tensors is None or not self._unchanged():
            return
        data = safetensors.torch.save(tensors, {"key": path.stem, "sha256": _digest(tensors)})
        try:
            self._write(path, data)
        except OSError as error:
            log.warning(
                "a prefix of %d MB is not kept in %s: %s", len(data) // 10**6, path.parent, error.strerror or error
            )

    def _write(self, path: Path, data: bytes) -> None:
        """Raises: OSError."""
        with writing_to(path.parent) as may_write:
            if not may_write:
                log.info("a prefix is not kept in %s: another process writes there", path.parent)
            elif not path.exists() and make_room(self._folder, len(data)):
                write_whole(path, data)

    @property
    def _layers(self) -> int:
        return int(self._config.num_hidden_layers)

    def _path(self, ids: Sequence[int]) -> Path | None:
        """Returns the file of ``ids``; None if the model could change unnoticed."""
        if self._stamp is None or self._shape(ids) is None:
            return None
        libraries = [torch.__version__, transformers.__version__, torch.backends.cpu.get_cpu_capability()]
        key = json.dumps([FORM, self._stamp, self._how, libraries, list(ids)])
        return self._folder.path / f"{hashlib.sha256(key.encode()).hexdigest()}{_SUFFIX}"

    def _unchanged(self) -> bool:
        """Whether the model's files are those that were loaded."""
        if model_stamp(self._model_folder) == self._stamp:
            return True
        log.warning("%s was changed after it was loaded: its prefixes are not kept", self._model_folder)
        self._stamp = None
        return False

    def _shape(self, ids: Sequence[int]) -> tuple[int, int, int, int] | None:
        """Returns the shape of a layer's keys, as of its values; None for models that keep something else."""
        heads = getattr(self._config, "num_attention_heads", None)
        hidden = getattr(self._config, "hidden_size", None)
        if not heads or not hidden:
            return None
        kept = getattr(self._config, "num_key_value_heads", None) or heads
        return 1, kept, len(ids), getattr(self._config, "head_dim", None) or hidden // heads

    def _tensors(self, cache: DynamicCache, ids: Sequence[int]) -> dict[str, torch.Tensor] | None:
        """Returns keys and values by name; None unless all layers keep all of ``ids``: sliding windows do not."""
        tensors = {}
        for number, layer in enumerate(cache.layers):
            if type(layer) is not DynamicLayer or layer.keys is None or layer.values is None:
                return None
            for what, each in (("keys", layer.keys), ("values", layer.values)):
                if each.shape != self._shape(ids):
                    return None
                tensors[f"{number}.{what}"] = each.to("cpu").contiguous()
        return tensors if len(cache.layers) == self._layers else None


def _checked(
    data: bytes, key: str, shape: tuple[int, ...] | None, dtype: torch.dtype, layers: int
) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file. Raises: ValueError and what safetensors raises if it is not whole, or another."""
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > min(len(data), _MAX_HEADER_BYTES):
        raise ValueError("it is cut or no file of a prefix")
    said = json.loads(data[8 : 8 + header_bytes]).get("__metadata__") or {}
    tensors = safetensors.torch.load(data)
    if said.get("key") != key:
        raise ValueError("it is the file of another prefix")
    if set(tensors) != {f"{layer}.{what}" for layer in range(layers) for what in ("keys", "values")}:
        raise ValueError("it has other layers than the model")
    if any(each.shape != shape or each.dtype != dtype for each in tensors.values()):
        raise ValueError("its tensors have another form than the model's")
    if said.get("sha256") != _digest(tensors):
        raise ValueError("its content is damaged")
    return tensors


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# In memory.

KEPT_PREFIXES = 4


class KeptPrefixes:
    """The caches of the last few prefixes of one model, by their token ids: in memory, and as files."""

    def __init__(self, dtype: torch.dtype, device: str, files: PrefixFiles | None = None) -> None:
        """``files`` None: only in memory."""
        self._caches: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()
        self._dtype, self._device = dtype, device
        self._files = files

    def copy(self, ids: tuple[int, ...]) -> DynamicCache | None:
        """Returns a cache that has read ``ids``, as the caller's own; None if there is none."""
        if ids not in self._caches:
            loaded = self._files.load(ids, self._dtype, self._device) if self._files is not None else None
            if loaded is None:
                return None
            self._remember(ids, loaded)
        self._caches.move_to_end(ids)
        return copy.deepcopy(self._caches[ids])

    def keep(self, ids: tuple[int, ...], cache: DynamicCache) -> None:
        """Keeps a copy of ``cache``, which has read ``ids`` and nothing else."""
        self._remember(ids, copy.deepcopy(cache))
        if self._files is not None:
            self._files.save(ids, cache)

    def _remember(self, ids: tuple[int, ...], cache: DynamicCache) -> None:
        self._caches[ids] = cache
        if len(self._caches) > KEPT_PREFIXES:
            self._caches.popitem(last=False)

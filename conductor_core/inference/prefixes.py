"""Keeps the attention caches of prompts' static beginnings, so that they are read once. Imports transformers."""

import copy
from collections import OrderedDict

import torch
from transformers import DynamicCache

from conductor_core.inference.prefix_files import PrefixFiles

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

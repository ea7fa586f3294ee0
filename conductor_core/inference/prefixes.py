"""Keeps the attention caches of prompts' static beginnings, so that they are read once. Imports transformers."""

import copy
from collections import OrderedDict

from transformers import DynamicCache

KEPT_PREFIXES = 4


class KeptPrefixes:
    """The caches of the last few prefixes of one model, by their token ids."""

    def __init__(self) -> None:
        self._caches: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()

    def copy(self, ids: tuple[int, ...]) -> DynamicCache | None:
        """Returns a cache that has read ``ids``, as the caller's own; None if there is none."""
        if ids not in self._caches:
            return None
        self._caches.move_to_end(ids)
        return copy.deepcopy(self._caches[ids])

    def keep(self, ids: tuple[int, ...], cache: DynamicCache) -> None:
        """Keeps a copy of ``cache``, which has read ``ids`` and nothing else."""
        self._caches[ids] = copy.deepcopy(cache)
        if len(self._caches) > KEPT_PREFIXES:
            self._caches.popitem(last=False)

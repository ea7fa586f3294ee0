"""What a model needs to write with drafts: its even passes, and what it wrote before. Imports torch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from conductor_core.inference.decoding import Reader
from conductor_core.inference.drafts import Drafts, Earlier
from conductor_core.inference.errors import Interrupted
from conductor_core.inference.row_passes import ATTENTION, Evenness, RowReader, Watched, try_passes

UsualRead = Callable[[Sequence[int]], torch.Tensor | None]
"""Reads tokens. Returns float32 logits (vocabulary) after the last one, None if cancelled."""


class Drafting:
    """Lives as long as its model.

    Attributes:
        even: the model's even passes; None if it has none, and until they were tried.
        tried: whether they were tried.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.even: Evenness | None = None
        self.tried = False
        self._earlier = Earlier()
        if model.config._attn_implementation == "sdpa":
            model.set_attn_implementation(ATTENTION)

    def begin(
        self, prompt: Sequence[int], cache: DynamicCache, watched: Watched, usual: UsualRead, *, drafted: bool
    ) -> tuple[Reader, Drafts]:
        """Returns what reads for one completion, and what guesses for it. The first call tries the model's passes.

        Args:
            usual: reads without drafts, for a model whose passes are not even.
            drafted: whether to guess. The tokens are the same with and without.

        Raises: Interrupted if the completion was cancelled meanwhile.
        """
        if not self.tried:
            with watched():
                self.even, self.tried = try_passes(self._model), True
        if self.even is None:
            return _UsualReader(usual), Drafts(prompt, self._earlier, None)
        times = self.even.times if drafted else None
        return RowReader(self._model, cache, self.even, watched), Drafts(prompt, self._earlier, times)

    def ended(self, written: Sequence[int], *, drafted: bool) -> None:
        """Keeps a completion, as a place to look for the tokens of the next ones, if any of them is to be guessed."""
        if drafted and self.even is not None:
            self._earlier.add(written)


class _UsualReader:
    """Reads without drafts."""

    def __init__(self, usual: UsualRead) -> None:
        self._usual = usual

    def read(self, ids: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        logits = self._usual(ids)
        if logits is None:
            raise Interrupted
        return logits.unsqueeze(0)

    def drop(self, tokens: int) -> None:
        """Has nothing to drop."""

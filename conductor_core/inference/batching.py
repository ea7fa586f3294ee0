"""Writes several completions of a small model in one batch. Imports torch.

A model of a few million parameters is bound by the overhead of a pass, not by its arithmetic: a pass for sixteen rows
takes little longer than one for a single row. Rows advance by different numbers of tokens, since the model is not asked
for what a grammar forces. The shorter rows are padded, and no row sees a padded place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from conductor_core.chat.messages import FinishReason
from conductor_core.inference.generation import Generation, Written
from conductor_core.inference.model import LoadedModel

Ending = Written | Exception
"""How it ended; or what went wrong."""


@dataclass(frozen=True)
class Wanted:
    """One completion, with what ``LoadedModel.generate`` takes.

    ``ended`` is called with the row's ending as soon as it has ended; never for a row that was cancelled.
    """

    generation: Generation
    emit: Callable[[str], None]
    cancelled: Callable[[], bool]
    ended: Callable[[Ending], None]


class _Row:
    """One completion being written."""

    def __init__(self, model: LoadedModel, wanted: Wanted) -> None:
        """Raises: PromptTooLong, and whatever a grammar's compiler raises."""
        self.wanted = wanted
        self.prompt, _ = model.encode(wanted.generation)
        self.read = len(self.prompt)
        self._limit = min(wanted.generation.max_tokens, model.room(self.prompt))
        self._stop_ids = model.vocabulary.stop_ids
        self._writer = model.writer(len(self.prompt), wanted.generation, wanted.emit)

    def go_on(self, logits: torch.Tensor) -> list[int]:
        """Draws a token. Returns the tokens that the model must read next, none if the row has ended.

        Raises: InferenceError.
        """
        if self.wanted.cancelled():
            return []
        writer = self._writer
        token = writer.draw(logits)
        if token in self._stop_ids:
            return self._end("stop", len(writer.ids) + 1)
        pending = writer.accept(token, self._limit)
        if writer.complete:
            return self._end("stop", len(writer.ids))
        if len(writer.ids) >= self._limit:
            return self._end("length", len(writer.ids))
        return pending

    def _end(self, reason: FinishReason, written: int) -> list[int]:
        self.wanted.ended(self._writer.ended(reason, written))
        return []


@torch.inference_mode()
def generate_together(model: LoadedModel, wanted: Sequence[Wanted]) -> None:
    """Writes all completions; a failure of one leaves the others alone."""
    model.choose_threads()
    rows = []
    for each in wanted:
        try:
            rows.append(_Row(model, each))
        except Exception as error:  # noqa: BLE001 it is the row's own, and reaches whoever asked for it
            each.ended(error)
    if rows:
        _write(model, rows)


def _write(model: LoadedModel, going: list[_Row]) -> None:
    cache = DynamicCache(config=model.model.config)
    longest = max(len(row.prompt) for row in going)
    ids = torch.zeros(len(going), longest, dtype=torch.long)
    seen = torch.zeros(len(going), longest, dtype=torch.long)
    for index, row in enumerate(going):
        ids[index, longest - len(row.prompt) :] = torch.tensor(row.prompt)
        seen[index, longest - len(row.prompt) :] = 1
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    logits = _pass(model, ids, seen, positions, cache)[:, -1]
    while going:
        pending: list[list[int]] = []
        for index, row in enumerate(going):
            try:
                pending.append(row.go_on(logits[index]))
            except Exception as error:  # noqa: BLE001 as above
                row.wanted.ended(error)
                pending.append([])
        kept = [index for index, tokens in enumerate(pending) if tokens]
        if not kept:
            return
        if len(kept) < len(going):
            cache.batch_select_indices(torch.tensor(kept, device=model.placement.device))
            going, pending, seen = [going[i] for i in kept], [pending[i] for i in kept], seen[kept]
        logits, seen = _read(model, going, pending, seen, cache)


def _read(
    model: LoadedModel, rows: Sequence[_Row], pending: Sequence[Sequence[int]], seen: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reads each row's pending tokens. Returns the logits after each row's last one, and the places it may see."""
    most = max(map(len, pending))
    ids = torch.zeros(len(rows), most, dtype=torch.long)
    new = torch.zeros(len(rows), most, dtype=torch.long)
    positions = torch.zeros(len(rows), most, dtype=torch.long)
    for index, (row, tokens) in enumerate(zip(rows, pending, strict=True)):
        ids[index, : len(tokens)] = torch.tensor(tokens)
        new[index, : len(tokens)] = 1
        positions[index] = torch.arange(row.read, row.read + most)
        row.read += len(tokens)
    seen = torch.cat([seen, new], dim=1)
    logits = _pass(model, ids, seen, positions, cache)
    last = torch.tensor([len(tokens) - 1 for tokens in pending])
    return logits[torch.arange(len(rows)), last], seen


def _pass(
    model: LoadedModel, ids: torch.Tensor, seen: torch.Tensor, positions: torch.Tensor, cache: Any
) -> torch.Tensor:
    """Returns logits (rows, tokens, vocabulary) in float32 on the processor."""
    device = model.placement.device
    output = model.model(
        input_ids=ids.to(device),
        attention_mask=seen.to(device),
        position_ids=positions.to(device),
        past_key_values=cache,
        use_cache=True,
    )
    logits: torch.Tensor = output.logits.to("cpu", torch.float32)
    return logits

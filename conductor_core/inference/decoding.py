"""Writes a completion after its prompt was read: draws tokens from the passes of a model. Imports torch.

A pass reads the tokens that were written since the last one, and a draft of the next ones after them. It gives one row
of logits for each place. The writer draws from row after row as long as what it draws is what the draft says.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from conductor_core.chat import FinishReason
from conductor_core.inference.drafts import Drafts
from conductor_core.inference.errors import Interrupted
from conductor_core.inference.writing import Writer


class Reader(Protocol):
    """A model that has read a prompt."""

    def read(self, ids: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        """Reads ``ids`` and ``draft``.

        Returns float32 logits (1 + draft, vocabulary): after the last of ``ids``, and after each of ``draft``.
        Raises: Interrupted if the completion was cancelled.
        """
        ...

    def drop(self, tokens: int) -> None:
        """Forgets the last ``tokens`` that were read."""
        ...


def write(
    writer: Writer,
    first: torch.Tensor,
    begin: Callable[[], tuple[Reader, Drafts]],
    limit: int,
    cancelled: Callable[[], bool],
    at: Callable[[], None],
) -> tuple[FinishReason, int]:
    """Writes until the model, the grammar or ``limit`` ends it.

    Args:
        first: logits (vocabulary) after the prompt.
        begin: is called once the first token is written.
        limit: how many tokens the completion may have.
        cancelled: is asked before each token.
        at: is called after each token.

    Returns how it ended, and how many tokens the model wrote that end it and are no text.
    Raises: Interrupted if it was cancelled, InferenceError.
    """
    rows, row = first.unsqueeze(0), 0
    draft: Sequence[int] = ()
    using: tuple[Reader, Drafts] | None = None
    while True:
        if cancelled():
            raise Interrupted
        token = writer.draw(rows[row])
        if token in writer.stop_ids:
            return "stop", 1
        new = writer.accept(token, limit)
        at()
        if writer.complete:
            return "stop", 0
        if len(writer.ids) >= limit:
            return "length", 0
        reader, drafts = using = using or begin()
        drafts.learn(new)
        while new and row < len(draft) and draft[row] == new[0]:
            row, new = row + 1, new[1:]
        if not new:
            continue
        reader.drop(len(draft) - row)
        draft, row = drafts.next(len(new), writer.allowed, limit - len(writer.ids)), 0
        rows = reader.read(new, draft)

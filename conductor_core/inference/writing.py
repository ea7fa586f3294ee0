"""Keeps a completion while it is written: its tokens, text and place in a grammar. Draws tokens. Imports torch."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import xgrammar

from conductor_core.inference.errors import InferenceError
from conductor_core.inference.generation import Forcing, Sampling

if TYPE_CHECKING:
    from conductor_core.inference.model import LoadedModel


class Writer:
    """The completion so far: its tokens, its text, its place in the grammar."""

    def __init__(
        self, model: "LoadedModel", matcher: Any, forcing: Forcing | None, emit: Callable[[str], None]
    ) -> None:
        self.ids: list[int] = []
        self.text = ""
        self._model = model
        self._matcher = matcher
        self._forcing = forcing
        self._emit = emit
        self._unread = 0  # ids from here on are not yet in the text
        self._bitmask = xgrammar.allocate_token_bitmask(1, model.vocabulary)

    @property
    def complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._matcher is not None and bool(self._matcher.is_terminated())

    def masked(self, logits: torch.Tensor) -> torch.Tensor:
        if self._matcher is not None:
            self._matcher.fill_next_token_bitmask(self._bitmask)
            xgrammar.apply_token_bitmask_inplace(logits[: self._model.vocabulary], self._bitmask)
        return logits

    def accept(self, token: int, limit: int) -> list[int]:
        """Takes a drawn token; returns the tokens that the model must read next, forced ones included."""
        if self._matcher is not None and not self._matcher.accept_token(token):
            raise InferenceError("the model wrote a token that its grammar does not allow")
        new = [token]
        self._append(new)
        if self._matcher is not None and not self.complete:
            new += self._forced(limit)
        return new

    def _forced(self, limit: int) -> list[int]:
        """Appends and returns the tokens that can only follow in one way, without asking the model.

        It leaves the last one of them to the model, which might join the following characters in one token.
        """
        demanded = self._forcing(self.text, len(self.ids), limit) if self._forcing is not None else None
        ids = self._model.encode_text(demanded) if demanded is not None else []
        if demanded is None or len(self.ids) + len(ids) > limit or not self._matcher.accept_string(demanded):
            ids = self._model.encode_text(self._matcher.find_jump_forward_string())[:-1]
            if not ids or len(self.ids) + len(ids) > limit:
                return []
            if not all(self._matcher.accept_token(token) for token in ids):
                raise InferenceError("the grammar refuses what it demands")
        self._append(ids)
        return ids

    def _append(self, ids: Sequence[int]) -> None:
        self.ids += ids
        # One token more on the left: some tokenizers drop a leading space. A character cut in two waits for its rest.
        context = max(0, self._unread - 1)
        known = self._decode(self.ids[context : self._unread])
        now = self._decode(self.ids[context:])
        if now.endswith("�"):
            return
        self._unread = len(self.ids)
        self._say(now[len(known) :])

    def flush(self) -> None:
        """Emits what was held back waiting for the rest of a character."""
        self._say(self._decode(self.ids[self._unread :]))
        self._unread = len(self.ids)

    def _say(self, text: str) -> None:
        if text:
            self.text += text
            self._emit(text)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._model.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def picker(sampling: Sampling) -> Callable[[torch.Tensor], int]:
    if sampling.temperature <= 0:
        return lambda logits: int(logits.argmax())
    generator = torch.Generator().manual_seed(sampling.seed % 2**63)

    def pick(logits: torch.Tensor) -> int:
        scores, tokens = (logits / sampling.temperature).sort(descending=True)
        if sampling.top_k > 0:
            scores, tokens = scores[: sampling.top_k], tokens[: sampling.top_k]
        probabilities = scores.softmax(0)
        before = probabilities.cumsum(0) - probabilities
        probabilities[before >= sampling.top_p] = 0
        return int(tokens[torch.multinomial(probabilities, 1, generator=generator)])

    return pick

"""Writes a completion after its prompt was read: draws tokens from the passes of a model. Imports torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from conductor_core.chat.messages import FinishReason, Sampling, TokenChoice
from conductor_core.inference.constraint import Matcher
from conductor_core.inference.generation import Generation, InferenceError, Interrupted, Written

MOST_OPTIONS = 8
CERTAIN = 0.9995
"""From this probability on a token is no choice."""
MOST_CHOICES = 512


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model: how many there are, and those that end an answer."""

    tokenizer: Any
    size: int
    stop_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class Writer:
    """The completion so far: its tokens, its text, its place in the grammar."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        matcher: Matcher | None,
        prompt_tokens: int,
        generation: Generation,
        emit: Callable[[str], None],
    ) -> None:
        """``matcher``: of the generation's grammar, at its beginning; None if it has none."""
        self.ids: list[int] = []
        self.text = ""
        self.stop_ids = vocabulary.stop_ids
        self._vocabulary = vocabulary
        self._prompt_tokens = prompt_tokens
        self._matcher = matcher
        self._forcing = generation.forcing
        self._pick = picker(generation.sampling, generation.seed)
        self._choices: list[TokenChoice] | None = [] if generation.keep_choices else None
        self._emit = emit
        self._unread = 0  # ids from here on are not yet in the text

    @property
    def complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._matcher is not None and self._matcher.complete

    def draw(self, logits: torch.Tensor) -> int:
        """Draws the next token from ``logits`` (vocabulary) among those that the grammar allows."""
        if self._matcher is not None:
            size = self._vocabulary.size
            logits[:size].masked_fill_(~self._matcher.allowed(size).to(logits.device), -torch.inf)
        token = self._pick(logits)
        if self._choices is not None and len(self._choices) < MOST_CHOICES and self._unread == len(self.ids):
            probabilities, tokens = logits.softmax(0).topk(min(MOST_OPTIONS, len(logits)))
            if probabilities[0] < CERTAIN:
                options = zip(tokens.tolist(), probabilities.tolist(), strict=True)
                likely = tuple((self._vocabulary.decode([each]), round(p, 4)) for each, p in options if p >= 0.0001)
                self._choices.append(
                    TokenChoice(at=len(self.text), picked=self._vocabulary.decode([token]), options=likely)
                )
        return token

    def ended(self, reason: FinishReason, completion_tokens: int) -> Written:
        """Emits what was held back, and returns how the completion ended."""
        self._flush()
        return Written(reason, self._prompt_tokens, completion_tokens, tuple(self._choices or ()))

    def accept(self, token: int, limit: int) -> list[int]:
        """Takes a drawn token; returns the tokens that the model must read next, forced ones included."""
        if self._matcher is not None and not self._matcher.accept([token]):
            raise InferenceError("the model wrote a token that its grammar does not allow")
        new = [token]
        self._append(new)
        if self._matcher is not None and not self.complete:
            new += self._forced(self._matcher, limit)
        return new

    def _forced(self, matcher: Matcher, limit: int) -> list[int]:
        """Appends and returns the tokens that can only follow in one way, without asking the model.

        It leaves the last one of them to the model, which might join the following characters in one token.
        """
        demanded = self._forcing(self.text, len(self.ids), limit) if self._forcing is not None else None
        ids = self._vocabulary.encode(demanded) if demanded is not None else []
        if demanded is None or len(self.ids) + len(ids) > limit or not matcher.accept(ids):
            ids = self._vocabulary.encode(matcher.must())[:-1]
            if not ids or len(self.ids) + len(ids) > limit:
                return []
            if not matcher.accept(ids):
                raise InferenceError("the grammar refuses what it demands")
        self._append(ids)
        return ids

    def _append(self, ids: Sequence[int]) -> None:
        self.ids += ids
        # One token more on the left: some tokenizers drop a leading space. A character cut in two waits for its rest.
        context = max(0, self._unread - 1)
        known = self._vocabulary.decode(self.ids[context : self._unread])
        now = self._vocabulary.decode(self.ids[context:])
        if now.endswith("�"):
            return
        self._unread = len(self.ids)
        self._say(now[len(known) :])

    def _flush(self) -> None:
        """Emits what was held back waiting for the rest of a character."""
        self._say(self._vocabulary.decode(self.ids[self._unread :]))
        self._unread = len(self.ids)

    def _say(self, text: str) -> None:
        if text:
            self.text += text
            self._emit(text)


def picker(sampling: Sampling, seed: int) -> Callable[[torch.Tensor], int]:
    if sampling.temperature <= 0:
        return lambda logits: int(logits.argmax())
    generator = torch.Generator().manual_seed(seed % 2**63)

    def pick(logits: torch.Tensor) -> int:
        scores, tokens = (logits / sampling.temperature).sort(descending=True)
        if sampling.top_k > 0:
            scores, tokens = scores[: sampling.top_k], tokens[: sampling.top_k]
        probabilities = scores.softmax(0)
        before = probabilities.cumsum(0) - probabilities
        probabilities[before >= sampling.top_p] = 0
        return int(tokens[torch.multinomial(probabilities, 1, generator=generator)])

    return pick


def write(
    writer: Writer,
    logits: torch.Tensor,
    read: Callable[[Sequence[int]], torch.Tensor],
    limit: int,
    cancelled: Callable[[], bool],
    at: Callable[[], None],
) -> tuple[FinishReason, int]:
    """Writes until the model, the grammar or ``limit`` ends it.

    Args:
        logits: of the vocabulary, after the prompt.
        read: reads tokens, and returns the float32 logits (vocabulary) after the last one.
        limit: how many tokens the completion may have.
        cancelled: is asked before each token.
        at: is called after each token.

    Returns how it ended, and how many tokens the model wrote that end it and are not text.
    Raises: Interrupted if it was cancelled, InferenceError, what ``read`` raises.
    """
    while True:
        if cancelled():
            raise Interrupted
        token = writer.draw(logits)
        if token in writer.stop_ids:
            return "stop", 1
        new = writer.accept(token, limit)
        at()
        if writer.complete:
            return "stop", 0
        if len(writer.ids) >= limit:
            return "length", 0
        logits = read(new)

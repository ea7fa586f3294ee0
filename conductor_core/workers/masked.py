"""What a worker says, with the keys in it hidden."""

from collections.abc import Iterable, Iterator

from conductor_core.chat.messages import ReasoningDelta, TextDelta
from conductor_core.privacy.masking import Mask, MaskedText

MOST_AT_ONCE = 32_768
"""Characters that are looked through before others may run: some milliseconds, however full of keys they are."""


class MaskedChunks:
    """The chunks of one answer. Text and thinking are a stream each: no key begins in one and ends in the other."""

    def __init__(self, mask: Mask) -> None:
        self._text = MaskedText(mask)
        self._reasoning = MaskedText(mask)

    def feed(self, chunk: TextDelta | ReasoningDelta) -> Iterable[TextDelta | ReasoningDelta | None]:
        """What of the answer can be shown now; None between the parts of a long one: others may run there."""
        kind, text = type(chunk), chunk.text
        stream = self._text if kind is TextDelta else self._reasoning
        if len(text) > MOST_AT_ONCE:
            return self._in_parts(kind, stream, text)
        shown = stream.feed(text)
        if shown == text:
            return (chunk,)
        return (kind(text=shown),) if shown else ()

    def _in_parts(
        self, kind: type[TextDelta | ReasoningDelta], stream: MaskedText, text: str
    ) -> Iterator[TextDelta | ReasoningDelta | None]:
        for at in range(0, len(text), MOST_AT_ONCE):
            if shown := stream.feed(text[at : at + MOST_AT_ONCE]):
                yield kind(text=shown)
            yield None

    def end(self) -> Iterator[TextDelta | ReasoningDelta]:
        """What was held back: nothing follows any more."""
        if rest := self._reasoning.end():
            yield ReasoningDelta(text=rest)
        if rest := self._text.end():
            yield TextDelta(text=rest)

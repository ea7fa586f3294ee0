"""Separates an answer from the reasoning that some models write first, between ``<think>`` and ``</think>``.

Only a block at the beginning of the text is reasoning: later on these words belong to the answer, for instance in an
answer about such models. A block inside the block belongs to it. If the block never closes, all of it is reasoning.
"""

import re
from collections.abc import Iterable, Iterator

from conductor_core.chat.messages import ReasoningDelta, TextDelta

_OPEN, _CLOSE = "<think>", "</think>"
_TAG = re.compile(f"{_OPEN}|{_CLOSE}")


class Thoughts:
    """Sorts the chunks of one answer.

    Args:
        passed: keeps reasoning, however it came, in the answer's text between the tags, so that later steps see it.
    """

    def __init__(self, *, passed: bool = False) -> None:
        self._passed = passed
        self._held = ""  # characters that may yet turn out to be a tag, or white space before the answer
        self._state = "begins"  # then "inside" a block, "behind" it, and "answer"
        self._depth = 0
        self._opened = False  # a block that is passed on, of reasoning that came apart from the text

    def feed(self, chunk: TextDelta | ReasoningDelta) -> Iterable[TextDelta | ReasoningDelta]:
        if self._state == "answer" and not self._passed and type(chunk) is TextDelta:
            return (chunk,)  # as nearly always
        return self._sorted_out(chunk)

    def _sorted_out(self, chunk: TextDelta | ReasoningDelta) -> Iterator[TextDelta | ReasoningDelta]:
        if isinstance(chunk, ReasoningDelta):
            yield from self._reasoning(chunk)
        elif self._passed:
            yield from self._closed()
            yield chunk
        else:
            self._held += chunk.text
            yield from self._sort()

    def rest(self) -> Iterator[TextDelta | ReasoningDelta]:
        """Returns what was held back when the answer ended."""
        yield from self._closed()
        if self._held and self._state != "behind":
            yield ReasoningDelta(text=self._held) if self._state == "inside" else TextDelta(text=self._held)
        self._held = ""

    def _reasoning(self, chunk: ReasoningDelta) -> Iterator[TextDelta | ReasoningDelta]:
        if not self._passed:
            yield chunk
            return
        yield TextDelta(text=chunk.text if self._opened else f"{_OPEN}\n{chunk.text}")
        self._opened = True

    def _closed(self) -> Iterator[TextDelta]:
        if self._opened:
            self._opened = False
            yield TextDelta(text=f"\n{_CLOSE}\n\n")

    def _sort(self) -> Iterator[TextDelta | ReasoningDelta]:
        if self._state == "begins":
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._held, self._state, self._depth = start.removeprefix(_OPEN), "inside", 1
            elif not _OPEN.startswith(start):
                self._state = "answer"
        if self._state == "inside" and (thought := self._thought()):
            yield ReasoningDelta(text=thought)
        if self._state == "behind":
            self._held = self._held.lstrip()
            self._state = "answer" if self._held else "behind"
        if self._state == "answer" and self._held:
            yield TextDelta(text=self._held)
            self._held = ""

    def _thought(self) -> str:
        """Takes the reasoning off the held text, up to the end of its block or to a possible tag."""
        for tag in _TAG.finditer(self._held):
            self._depth += 1 if tag[0] == _OPEN else -1
            if self._depth == 0:
                thought, self._held = self._held[: tag.start()], self._held[tag.end() :]
                self._state = "behind"
                return thought
        end = len(self._held) - _possible_tag(self._held)
        thought, self._held = self._held[:end], self._held[end:]
        return thought


def _possible_tag(text: str) -> int:
    """Returns how many characters at the end of ``text`` may begin a tag."""
    for size in range(len(_CLOSE) - 1, 0, -1):
        if text.endswith(_CLOSE[:size]) or (size < len(_OPEN) and text.endswith(_OPEN[:size])):
            return size
    return 0

"""A text with its places, and the notes made while reading it."""

import re
from bisect import bisect_right

from conductor_core.workflow.model import Fault, Place
from conductor_core.workflow.parsed import Position

MAX_CHARACTERS = 2_000_000
"""Longest text that is read. A workflow file may carry its steps' results; a completion is a hundred times shorter."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Source:
    """A text and where its lines begin. Half characters (lone surrogates) are replaced: they cannot be stored.

    Attributes:
        replaced_at: offset of the first half character that was replaced, None if there was none.
    """

    def __init__(self, text: str) -> None:
        half = _SURROGATE.search(text)
        self.replaced_at = half.start() if half else None
        self.text = _SURROGATE.sub("\ufffd", text) if half else text
        self._line_starts = [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def position(self, offset: int) -> Position:
        """Line and column, from 1, of the character at ``offset``; the end of the text is a place too."""
        line = bisect_right(self._line_starts, offset)
        return Position(line=line, column=offset - self._line_starts[line - 1] + 1)


class Notes:
    """Collects the faults and repairs of one reading."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.faults: list[Fault] = []
        self._repairs: list[tuple[int, str]] = []
        if source.replaced_at is not None:
            self.repair(source.replaced_at, "replaced half a character (a lone surrogate), which no text can hold")

    def fault(
        self, code: str, message: str, offset: int, *, step: int | None = None, field: Place = "workflow"
    ) -> None:
        """Notes what is wrong at ``offset``, in one whole sentence."""
        at = self.source.position(offset)
        self.faults.append(Fault(code=code, message=message, step=step, field=field, line=at.line, column=at.column))

    def repair(self, offset: int, sentence: str) -> None:
        """Notes what was read otherwise than written; ``sentence`` has no capital and no full stop."""
        self._repairs.append((offset, sentence))

    def adopt_repairs(self, other: "Notes") -> None:
        """Takes over the repairs that ``other`` collected from the same source."""
        self._repairs += other._repairs

    def repairs(self) -> tuple[str, ...]:
        """One sentence each, beginning with line and column, in the order of the text."""
        sentences: list[str] = []
        for offset, sentence in sorted(set(self._repairs)):
            at = self.source.position(offset)
            sentences.append(f"Line {at.line}, column {at.column}: {sentence}.")
        return tuple(sentences)


def shorten(text: str, limit: int = 40) -> str:
    """``text`` on one line and no longer than ``limit`` characters, for a message."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return flat if len(flat) <= limit and len(text) <= 4 * limit else flat[: limit - 1] + "…"

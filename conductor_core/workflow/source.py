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
    """A text and where its lines begin. Half characters (lone surrogates) are replaced: they cannot be stored."""

    def __init__(self, text: str) -> None:
        self.text = _SURROGATE.sub("�", text)
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
        self.repairs: list[str] = []

    def fault(
        self, code: str, message: str, offset: int, *, step: int | None = None, field: Place = "workflow"
    ) -> None:
        at = self.source.position(offset)
        self.faults.append(Fault(code=code, message=message, step=step, field=field, line=at.line, column=at.column))

    def repair(self, offset: int, sentence: str) -> None:
        """``sentence`` continues "Line 3, column 7: " and ends without a full stop."""
        at = self.source.position(offset)
        self.repairs.append(f"Line {at.line}, column {at.column}: {sentence}.")


def shorten(text: str, limit: int = 40) -> str:
    """``text`` on one line and no longer than ``limit`` characters, for a message."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return flat if len(flat) <= limit and len(text) <= 4 * limit else flat[: limit - 1] + "…"

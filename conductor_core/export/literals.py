"""Text as Python literals that a person can read."""

import re
from collections.abc import Mapping

from conductor_core.export.words import shortened

_WIDTH = 100
_LINES = re.compile(r".*?\n|.+\Z", re.DOTALL)
_PIECES = re.compile(r"\S*\s*")


def literal(text: str, indent: int) -> str:
    """Returns Python text whose value is ``text``: one string, or a string for each line of it in parentheses.

    Control characters, marks that reorder text and halves of characters are escapes in it. ``indent``: of the line in
    which it begins, in spaces.
    """
    if len(text) <= _WIDTH - 30 and "\n" not in text[:-1]:
        return quoted(text)
    room = _WIDTH - indent - 6
    pieces = [piece for line in _LINES.findall(text) for piece in _broken(line, room)]
    inside = " " * (indent + 4)
    return "(\n" + "".join(f"{inside}{quoted(piece)}\n" for piece in pieces) + " " * indent + ")"


def quoted(text: str) -> str:
    """Returns ``repr`` of a text, in double quotes where that needs no more escapes."""
    single = repr(text)
    return f'"{single[1:-1]}"' if single[0] == "'" and '"' not in single else single


def value(given: object) -> str:
    """Returns Python text for a value that JSON could hold."""
    match given:
        case str():
            return quoted(given)
        case Mapping():
            return "{" + ", ".join(f"{quoted(name)}: {value(each)}" for name, each in given.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value, given)) + "]"
        case None | bool() | int() | float():
            return repr(given)
    raise TypeError(f"a {type(given).__name__} is not a value of a parameter")


def _broken(line: str, room: int) -> list[str]:
    """Breaks a line after white space, where it has some, else where it must."""
    pieces = [""]
    for word in _PIECES.findall(line):
        for start in range(0, len(word), room):
            part = word[start : start + room]
            if pieces[-1] and len(pieces[-1]) + len(part) > room:
                pieces.append("")
            pieces[-1] += part
    return [piece for piece in pieces if piece]


def plain_words(text: str) -> str:
    """Returns ``text`` for a comment or docstring: ASCII on one line, without what could end either."""
    return re.sub(r"[^A-Za-z0-9 .,:()_-]", "_", shortened(text, 80).replace("…", "..."))

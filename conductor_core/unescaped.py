"""Reads the escapes of JSON and of Python's literals, which a plan's text may have."""

import re
import sys
from array import array
from functools import lru_cache

_ESCAPE = re.compile(
    r"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<sign>[\"'\\/abfnrtv]))"
)
_SIGNS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_JSON = re.compile(r'\\(?:[nrtbf"\\/]|u[0-9a-fA-F]{4})')


def without_escapes(text: str) -> str:
    """Returns a JSON text without its escapes, for a search by letters and digits."""
    return _JSON.sub("", text) if "\\" in text else text


@lru_cache(maxsize=1)  # each pattern asks for the same text
def unescaped(text: str) -> tuple[str, "array[int] | None"]:
    """Returns the plain text, and where in ``text`` each of its characters begins.

    The end of ``text`` is the last of the places. They are None if ``text`` has no escapes.
    """
    parts: list[str] = []
    begins = array("Q")
    at = 0
    for found in _ESCAPE.finditer(text):
        parts += [text[at : found.start()], _character(found)]
        begins.extend(range(at, found.start()))
        begins.extend([found.start()] * len(parts[-1]))
        at = found.end()
    if not parts:
        return text, None
    begins.extend(range(at, len(text) + 1))
    return "".join([*parts, text[at:]]), begins


def _character(found: re.Match[str]) -> str:
    """Returns what an escape stands for. JSON writes a character above U+FFFF as two escapes."""
    if (pair := found["pair"]) is not None:
        return bytes.fromhex(pair[1:5] + pair[7:]).decode("utf-16-be")
    if (sign := found["sign"]) is not None:
        return _SIGNS.get(sign, sign)
    number = int(found["x"] or found["u"] or found["U"], 16)
    return chr(number) if number <= sys.maxunicode else "\N{REPLACEMENT CHARACTER}"

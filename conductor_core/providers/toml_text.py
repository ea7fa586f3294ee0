"""Checks the bounds of TOML from users before it reads it.

The standard library's reader takes time quadratic in the parts of a key, recurses with the nesting, and gives no place
for a number that is too long. This module refuses such a file and gives the place.
"""

import re
import tomllib
from typing import Any

MOST_PARTS = 16
MOST_DEPTH = 16
MOST_DIGITS = 300

_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<end>[=,\n])"
    r"|(?P<digits>(?<![\w.])[+-]?[0-9][\w]{300,})",
    re.DOTALL,
)


class NotToml(Exception):
    """The text cannot be read. ``place`` is "line 3, column 9: ", "at its end: " or empty; ``what`` is a clause."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}not TOML: {what}")
        self.place = place
        self.what = what


def read_toml(text: str) -> dict[str, Any]:
    """Reads ``text``. Raises: NotToml."""
    _check_bounds(text)
    try:
        # The added line end gives an error at the very end a line.
        return tomllib.loads(text + "\n")
    except tomllib.TOMLDecodeError as error:
        # tomllib puts the place at the end, "(at line 3, column 9)", and we put it first.
        message = str(error)
        found = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
        what = message[: found.start()] if found else message
        place = f"line {found[1]}, column {found[2]}: " if found and found[1] else "at its end: "
        raise NotToml(place, what.replace("Cannot overwrite a value", "a key is given twice")) from None
    except (RecursionError, ValueError):
        raise NotToml("", "too deeply nested, or a number or date that is none") from None


def _check_bounds(text: str) -> None:
    depth = dots = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                depth, dots = depth + 1, 0
            case "close":
                depth, dots = max(0, depth - 1), 0
            case "dot":
                dots += 1
            case "end":
                dots = 0
            case "digits":
                raise NotToml(_place(text, token.start()), f"a number of more than {MOST_DIGITS} digits")
        if depth > MOST_DEPTH:
            raise NotToml(_place(text, token.start()), f"brackets are nested more than {MOST_DEPTH} deep")
        if dots >= MOST_PARTS:
            raise NotToml(_place(text, token.start()), f"a key has more than {MOST_PARTS} parts")


def _place(text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - line_start + 1}: "

"""Characters of texts from elsewhere: joined where they arrive in pieces, written out where they would be obeyed."""

import re

_HIGH = range(0xD800, 0xDC00)
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that reorder text, and halves of characters."""


class Pieces:
    """Joins the halves of a character that a server split between two events, as JSON's escapes allow.

    A lone half cannot be stored and becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        text = self._half + text
        self._half = ""
        if text and ord(text[-1]) in _HIGH:
            text, self._half = text[:-1], text[-1]
        return whole_characters(text)


def whole_characters(text: str) -> str:
    """Joins surrogate pairs in ``text`` and replaces lone surrogates, so that it can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plain(text: str) -> str:
    r"""Writes out every character that a terminal or a page would obey, as in ``\x1b``; lines and tabs stay."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

"""Joins characters of text that arrives in pieces."""

_HIGH = range(0xD800, 0xDC00)


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

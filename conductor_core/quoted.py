"""Makes texts of others fit to be quoted in our messages."""

import re
import unicodedata

from conductor_core import masking

_QUOTED_CHARACTERS = 300
_KEY_LIKE = re.compile(
    r"\b(?:(?:sk|pk|rk|xai)-|(?:sk|gsk|hf|r8)_|AIza)[A-Za-z0-9_*.-]{12,}|(?i:\bbearer\s+[A-Za-z0-9_*.-]{12,})"
)


def one_line(text: str, *, limit: int = _QUOTED_CHARACTERS) -> str:
    """Returns ``text`` on one line, without keys, control and formatting characters, cut at ``limit``."""
    text = masking.known().text(text[: limit * 64])
    text = plain(_KEY_LIKE.sub("***", text)[: limit * 8])
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plain(text: str) -> str:
    """Returns ``text`` on one line, with one space for each run of spaces, control and formatting characters."""
    return " ".join("".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text).split())

"""Text for a terminal: nothing a model wrote may move the cursor, colour or hide anything."""

import re

from conductor_core.run_facts import Path, label

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that reorder text, and halves of characters."""


def plain(text: str) -> str:
    r"""Writes out every character that a terminal would obey, as in ``\x1b``; lines and tabs stay."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 200) -> str:
    """Puts ``plain`` text on one line of at most ``limit`` characters."""
    line = " ".join(plain(text[: 4 * limit + 100]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit + 100 else f"{line[: limit - 3]}..."


def indented(text: str, by: str = "    ") -> str:
    """Puts ``by`` before each line of ``plain`` text."""
    return "\n".join(f"{by}{line}".rstrip() for line in plain(text).split("\n"))


def labels(paths: tuple[Path, ...]) -> str:
    return ", ".join(map(label, paths)) or "none"


def duration(ms: float | None) -> str:
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms // 60_000:.0f} min {ms % 60_000 / 1000:.0f} s"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

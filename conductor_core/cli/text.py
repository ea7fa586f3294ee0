"""Text for a terminal: nothing a model wrote may move the cursor, colour or hide anything."""

from typing import TYPE_CHECKING

from conductor_core.text import plain

if TYPE_CHECKING:
    from conductor_core.run.values import Path


def one_line(text: str, limit: int = 200) -> str:
    """Puts ``plain`` text on one line of at most ``limit`` characters."""
    line = " ".join(plain(text[: 4 * limit + 100]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit + 100 else f"{line[: limit - 3]}..."


def indented(text: str, by: str = "    ") -> str:
    """Puts ``by`` before each line of ``plain`` text."""
    return "\n".join(f"{by}{line}".rstrip() for line in plain(text).split("\n"))


def labels(paths: "tuple[Path, ...]") -> str:
    from conductor_core.run.values import label  # it brings in pydantic, which a short command does without

    return ", ".join(map(label, paths)) or "none"

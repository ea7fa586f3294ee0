"""Words that pictures of a plan share."""

import re

from conductor_core.run.values import Path, label

_NOT_SHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]+"
)


def shortened(text: str, most: int) -> str:
    """Returns the text on one line of at most ``most`` characters, without characters that control or hide text."""
    line = " ".join(_NOT_SHOWN.sub(" ", text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def round_title(path: Path) -> str:
    return f"The plan that step {label(path)} asked for"

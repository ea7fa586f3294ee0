"""Tells whether two answers say the same, whatever their words."""

import re
import unicodedata

from conductor_core.answers.conclusion import conclude
from conductor_core.answers.final_answer import fenced_blocks

_WRAPPING = " \t\n\"'`*_$.,;:!“”‘’"
_LATEX_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def normal(text: str, *, fold: bool = True) -> str:
    r"""Returns words in the form for comparison; ``\text{}`` is replaced by its content."""
    text = unicodedata.normalize("NFKC", _LATEX_TEXT.sub(r"\1", text))
    text = re.sub(r"\s+", " ", text).strip(_WRAPPING)
    return text.casefold() if fold else text


def answer_key(text: str, task: str = "") -> tuple[str, str]:
    """Returns a value that is equal for answers with the same conclusion. ``task``: see ``conclude``.

    Code is compared as it is written: two functions of one name are two answers. Where nothing is left of a conclusion,
    the whole text is compared.
    """
    found = conclude(text, task)
    if found.kind == "code":
        blocks = [block.code.strip() for block in fenced_blocks(text) if block.code.strip()]
        return "code", "\n".join(blocks) or text.strip()
    if found.kind in ("declined", "empty"):
        return found.kind, ""
    return found.kind, normal(found.formula or found.text) or text.strip()

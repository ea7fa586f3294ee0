r"""Markdown and LaTeX as one would read them aloud in a line, and where a sentence ends. Nothing is reworded."""

import re
from collections.abc import Iterator

_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]{1,80})\}\s*\{([^{}]{1,80})\}")
_ROOT = re.compile(r"\\sqrt\s*\{([^{}]{1,80})\}")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname|boxed)\s*\{([^{}]{0,200})\}")
_DROPPED = re.compile(r"\\(?:left|right|displaystyle|quad|qquad|limits)(?![A-Za-z])|\\[()\[\]]|\\[,;:! ]")
_SYMBOLS = {
    "times": "×", "cdot": "·", "div": "÷", "pm": "±", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠",
    "neq": "≠", "approx": "≈", "pi": "π", "infty": "∞", "circ": "°", "degree": "°", "alpha": "α", "beta": "β",
    "theta": "θ", "to": "→", "rightarrow": "→", "in": "∈", "cup": "∪", "cap": "∩", "ldots": "…", "dots": "…",
    "cdots": "…",
}  # fmt: skip
_SYMBOL = re.compile(rf"\^?\\({'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})(?![A-Za-z])")
_INLINE_FORMULA = re.compile(r"(?<![\\$\w])(\$\$?)(?=[^\s$])([^$\n]{1,300})(?<=[^\s\\])\1(?![\d$])")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,500}\)")
_EMPHASIS = re.compile(r"(\*{1,3}|__|~~)(?=[^\s*_~])([^*_~\n]{1,400})(?<=[^\s*_~])\1")
_CODE = re.compile(r"(`{1,3})([^`\n]{1,400})\1")
_LEADING = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+•])\s+)+")
_LEFT_OVER = re.compile(r"\*\*|^[*_`]+|[*_`]+$")
_ESCAPED = re.compile(r"\\([$%&#_{}*`\\])")
_BOUNDARY = re.compile(r"(?<=[.!?؟۔।…])[\"'’”»)\]*_`]{0,4}\s+|(?<=[。！？])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:[A-Za-z]|[A-Za-z]\.[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|vs|etc|approx|ca|No|Nr|bzw|ggf|usw|Inc|Fig|cf|\d{1,3})\.$"
)
_LIST_NUMBER = re.compile(r"^\s*\d{1,3}\.$")


def plain(text: str) -> str:
    """``text`` without its markup, its white space drawn together; a formula is read as far as one line can hold it."""
    text = _ESCAPED.sub(lambda match: "\ue000" if match[1] == "$" else match[1], text)
    text = _INLINE_FORMULA.sub(r"\2", text)
    # From the inside out: a fraction of texts, a box with a fraction in it.
    for _ in range(4):
        before = text
        for pattern, reading in ((_TEXT, r"\1"), (_FRACTION, r"\1/\2"), (_ROOT, r"√\1")):
            text = pattern.sub(reading, text)
        if text == before:
            break
    text = _SYMBOL.sub(lambda match: _SYMBOLS[match[1]], _DROPPED.sub(" ", text))
    text = _LINK.sub(r"\1", _LEADING.sub("", text))
    text = _CODE.sub(r"\2", _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text)))
    text = _LEFT_OVER.sub("", text.replace("$$", " ").strip()).replace("\ue000", "$")
    return " ".join(text.split())


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of ``paragraph`` in order, with their end marks. A decimal point or an abbreviation ends none."""
    start = 0
    for boundary in _BOUNDARY.finditer(paragraph):
        said = paragraph[start : boundary.end()].strip()
        ended = paragraph[max(start, boundary.start() - 12) : boundary.start()]
        if said and not (_ABBREVIATION.search(ended) and not _is_number_at_end(said, ended)):
            yield said
            start = boundary.end()
    if rest := paragraph[start:].strip():
        yield rest


def _is_number_at_end(said: str, ended: str) -> bool:
    """Whether what looks like a list's number is the end of a sentence: "It costs 20. The rest" against "1. First"."""
    return bool(re.search(r"\d\.$", ended)) and not _LIST_NUMBER.match(said)

"""Turns Markdown and LaTeX into a line of plain text, and finds where sentences end. Rewords nothing."""

import re
from collections.abc import Iterator

from conductor_core.answers.formula_text import read_formula

_FORMULA = re.compile(
    r"\\\((?P<round>.{1,600}?)\\\)|\\\[(?P<square>.{1,600}?)\\\]"
    r"|(?<![\\$\w])(?P<dollars>\$\$?)(?=[^\s$])(?P<inside>[^$\n]{1,300})(?<=[^\s\\])(?P=dollars)(?![\d$])",
    re.DOTALL,
)
_COMMAND = re.compile(r"\\[A-Za-z]{2}")
_STRAY = re.compile(r"\\[()\[\],;:! ]")
_SHIELDED = {ord(mark): 0xE100 + ord(mark) for mark in "*_`~[]()#>+-$\\"}
_UNSHIELDED = {shield: mark for mark, shield in _SHIELDED.items()}
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,500}\)")
# A mark between two letters or digits opens nothing: 2*3*4 is a product, and x**2 a power.
_EMPHASIS = re.compile(
    r"(?<![A-Za-z0-9)\]](?=[*_]{1,3}[A-Za-z0-9(]))(?<!\*)"
    r"(\*{1,3}|__|~~)(?=[^\s*_~])([^*_~\n]{1,400})(?<=[^\s*_~])\1"
)
_CODE = re.compile(r"(`{1,3})([^`\n]{1,400})\1")
_LEADING = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+•])\s+)+")
_LEFT_OVER = re.compile(r"^[*_`]+|[*_`]+$|(?<![A-Za-z0-9)\]](?=\*\*[A-Za-z0-9(]))(?<!\s(?=\*\*\s))(?<!\*)\*\*")
_ESCAPED = re.compile(r"\\([$%&#_{}*`\\])")
_BOUNDARY = re.compile(r"(?<=[.!?؟۔।…])[\"'’”»)\]*_`]{0,4}\s+|(?<=[。！？])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:[A-Za-z]|[A-Za-z]\.[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|vs|etc|approx|ca|No|Nr|bzw|ggf|usw|Inc|Fig|cf|\d{1,3})\.$"
)
_LIST_NUMBER = re.compile(r"^\s*\d{1,3}\.$")


def plain(text: str) -> str:
    """Returns ``text`` without markup and with single spaces. A formula keeps its meaning."""
    text = _FORMULA.sub(_read, text.replace("\\$", "\ue000"))
    text = _ESCAPED.sub(r"\1", text)
    if _COMMAND.search(text):
        text = read_formula(_STRAY.sub(" ", text), raised=False)
    text = _CODE.sub(lambda code: code[2].translate(_SHIELDED), text)
    text = _LINK.sub(r"\1", _LEADING.sub("", text))
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    text = _LEFT_OVER.sub("", text.replace("$$", " ").strip()).replace("\ue000", "$")
    return " ".join(text.translate(_UNSHIELDED).split())


def _read(match: re.Match[str]) -> str:
    """What markup is made of is a formula's own: ``a*b*c`` is no emphasis there."""
    return read_formula(match["round"] or match["square"] or match["inside"] or "").translate(_SHIELDED)


def sentences(paragraph: str) -> Iterator[str]:
    """Returns the sentences of ``paragraph`` with their end marks. A decimal point or an abbreviation ends none."""
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

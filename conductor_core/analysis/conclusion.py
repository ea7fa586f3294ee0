"""Finds the conclusion of a model's text, in a line: the value that it marks, what its code defines, or how it begins.

It works by rule, for any model's text and without another model; ``marked`` says what counts as a mark. It rewords
nothing: the conclusion is in the text, but for its markup. ``defined_name`` finds the function, class or type that a
piece of code defines, in common languages; ``answer_key`` tells whether two answers say the same, whatever their words.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from conductor_core.analysis.answers import Block, fenced_blocks, open_fence, refuses
from conductor_core.analysis.marked import SHORT, alone, first_sentence, in_json, marked, opening, said_itself, stated
from conductor_core.analysis.plain_text import is_formula, plain, sentences
from conductor_core.text import plain as written_out

# Names that code defines.

_READ = 20_000
"""Characters of a piece that are looked at."""
_LONGEST_SIGNATURE = 120
_WITH_PARAMETERS = r" *(?P<rest>\([^\n]{0,200})?"
_DEFINES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # Python
        rf"^(?:async +)?def +(?P<name>\w+){_WITH_PARAMETERS}",
        # JavaScript and TypeScript
        rf"^[ \t]{{0,8}}(?:export +)?(?:default +)?(?:async +)?function\*? +(?P<name>\w+){_WITH_PARAMETERS}",
        r"^(?:export +)?(?:const|let|var) +(?P<name>\w+) *= *(?:async *)?(?P<rest>\([^()\n]{0,200}\))(?= *=>)",
        # Rust
        r"^[ \t]{0,8}(?:pub(?:\(\w+\))? +)?(?:const +|async +)?fn +(?P<name>\w+)(?:<[^>\n]{0,80}>)?" + _WITH_PARAMETERS,
        # Go
        rf"^func +(?:\([^)\n]{{0,60}}\) *)?(?P<name>\w+)(?:\[[^\]\n]{{0,80}}\])?{_WITH_PARAMETERS}",
        # C, C++, Java, C#
        r"^(?:(?:public|private|static|inline|constexpr|unsigned) +){0,3}[\w:<>\[\],*&]{2,40}[ *&]+(?P<name>\w+)"
        r"(?P<rest>\([^;{}\n]{0,200}\))(?= *\{?[ \t]*$)",
        # Types of any of them
        r"^(?:(?:export|public|final|abstract|pub|data) +){0,3}(?:class|struct|interface|trait|enum|record) +"
        r"(?P<name>\w+)(?P<rest>)",
    )
)
_BEGINS = re.compile(
    r"\s{0,20}(?:from [\w.]+ import|import [\w{*\"']|(?:async )?def \w|class \w+[:({ ]|(?:async )?function\*? \w+\("
    r"|#include ?[<\"]|package \w+;?\n|(?:pub )?fn \w+[(<]|func \w+\(|func \(|@\w+\n|#!/)"
)
_COMMENT = re.compile(r"\s*(?://|#|--|/\*|\*|;;|%|<!--|[{}()\[\]]+\s*$)")
_HELPER = re.compile(r"main$|_?test|check$|_")


def begins_as_code(text: str) -> bool:
    """Whether a text without fences is code: it has several lines and begins like a file of code."""
    return "\n" in text.strip() and _BEGINS.match(text) is not None


def defines_something(code: str) -> bool:
    return next(_definitions(code[:_READ]), None) is not None


def defined_name(pieces: Sequence[str], task: str) -> str:
    """Returns the last definition: what ``task`` names, else one that is no helper and no test if possible.

    The last one usually calls the others. It has its parameters if they are on its line. If nothing is defined, returns
    the first line that is no comment.
    """
    for piece in reversed(pieces):
        found = list(_definitions(piece[:_READ]))
        if not found:
            continue
        asked = [each for each in found if re.search(rf"\b{re.escape(each[0])}\b", task)]
        usual = [each for each in found if not _HELPER.match(each[0])]
        name, parameters = (asked or usual or found)[-1]
        return f"{name}{parameters}"
    lines = [line for line in "\n".join(pieces)[:_READ].split("\n") if line.strip()]
    return next((line for line in lines if not _COMMENT.match(line)), lines[0] if lines else "").strip()


def _definitions(code: str) -> Iterator[tuple[str, str]]:
    """Returns names with parameters, in order of place."""
    found: dict[int, tuple[str, str]] = {}
    for pattern in _DEFINES:
        for match in pattern.finditer(code):
            found.setdefault(match.start(), (match["name"], _parameters(match["rest"] or "")))
    for place in sorted(found):
        yield found[place]


def _parameters(rest: str) -> str:
    """Returns the parameters in brackets at the start of ``rest``; three dots for those on further lines."""
    depth = 0
    for place, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            whole = rest[: place + 1]
            return whole if len(whole) <= _LONGEST_SIGNATURE else "(…)"
    return "(…)" if rest else ""


LONGEST_CONCLUSION = 300
"""Characters. A longer one is cut: the text has all of it."""
_READ_FROM_START, _READ_FROM_END = 20_000, 40_000
"""Characters that are looked at: what a text says first, and what it concludes at its end."""
_LONGEST_REFUSAL = 1500
"""Characters: a longer text that begins with what it cannot do goes on to what it can."""
_ONE_FORMULA = re.compile(
    r"[\s*]*(?:\$\$?([^$]+)\$\$?|\\\(((?:(?!\\\)).)+)\\\)|\\\[((?:(?!\\\]).)+)\\\])[\s.,*]*", re.DOTALL
)


_NOTHING = re.compile(r"\W*(?:none|n/?a|nothing|unknown|not (?:known|available)|no answer)\W*", re.IGNORECASE)
_LETTER = re.compile(r"\s*(?:Hi|Hello|Hey|Dear)(?: [^\W\da-z]\w*[.]?){1,4}[,!:]|\s*Subject:")
_NO_WIDTH = re.compile("[\u00ad\u200b\u2060\ufeff]")

Kind = Literal["value", "code", "text", "declined", "empty"]


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a text.

    Attributes:
        kind: ``value``: what the text itself marks as its answer, or all of a short text; ``code``: the name of what
            its code defines; ``text``: it marks no value; ``declined``: it says that it cannot answer; ``empty``.
        text: one line without markup, at most ``LONGEST_CONCLUSION`` characters: the value or name, how a text begins,
            or the sentence that declines; "" for ``empty`` alone.
        formula: a ``value`` that is one formula as it was written, without its delimiters; else "".
    """

    kind: Kind
    text: str
    formula: str = ""

    @property
    def headline(self) -> str:
        """What may be shown large: a marked value, or what code defines; else ""."""
        return self.text if self.kind in ("value", "code") else ""


def conclude(text: str, task: str = "") -> Conclusion:
    """Returns the conclusion of ``text``. ``task`` tells echoes from answers, and the asked function from helpers."""
    body = _both_ends(text)
    if not body:
        return Conclusion("empty", "")
    blocks = [block for block in fenced_blocks(body) if block.code.strip()]
    if not blocks and begins_as_code(body):
        return Conclusion("code", _line(defined_name([body], task), markup=False))
    prose = said_itself(_without(blocks, body))
    mark = marked(prose)
    refusal = _refusal(prose) if mark is None or _NOTHING.fullmatch(mark[1]) else None
    refusal = mark[1] if mark is not None and refuses(mark[1]) else refusal
    if refusal is not None:
        return Conclusion("declined", _line(refusal))
    code = bool(blocks) and _is_code(body, blocks)
    found = in_json([body, *(block.code for block in blocks)]) if mark is None else None
    if found is None and not code and not _ends_in_code(body, blocks):
        mark = max(filter(None, (mark, stated(prose, task))), key=itemgetter(0), default=None)
    found = mark[1] if mark is not None else found
    if found is None and (written := _json([block.code for block in blocks] if code else [body])):
        short = written == body and written[0] == "[" and "\n" not in body and len(body) <= SHORT
        return Conclusion("value" if short else "code", _line(written, markup=False))
    if found is None and code:
        return Conclusion("code", _line(defined_name([block.code for block in blocks], task), markup=False))
    if found is not None:
        return _of_value(found, _formula(found))
    whole = alone(body, task) if prose.strip() == body else None
    if whole is not None:
        return _of_value(whole, _formula(whole) if _ONE_FORMULA.fullmatch(whole) else "")
    return Conclusion("text", opening(body, LONGEST_CONCLUSION) or _line(body))


def _of_value(found: str, formula: str) -> Conclusion:
    text = plain(f"\\({formula}\\)", line=False) if formula else first_sentence(found)
    return Conclusion("value", _cut(text or _line(found)), formula)


def _formula(marked_text: str) -> str:
    """Returns the formula to be drawn, between delimiters or in a box; "": a line shows it as well."""
    whole = _ONE_FORMULA.fullmatch(marked_text)
    inside = next(filter(None, whole.groups())).strip() if whole else marked_text.strip()
    in_a_box = "$" not in inside and "\\(" not in inside and re.search(r"\\[A-Za-z,;]|\^|_\{", inside)
    words = re.fullmatch(r"\\(?:text|textbf|mathrm|textrm|mbox)\s*\{[^{}]*\}", inside)
    return inside if (whole or in_a_box) and is_formula(inside) and not words else ""


def _both_ends(text: str) -> str:
    """Returns both ends of a long ``text``, without thoughts at its start and without a signature."""
    if text[:_READ_FROM_START].lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    if len(text) > _READ_FROM_START + _READ_FROM_END:
        # Whole lines, and both ends with the fences of the blocks that are cut.
        start = text[:_READ_FROM_START]
        start = start.rpartition("\n")[0] or start
        end = text[-_READ_FROM_END:].partition("\n")[2]
        opened = open_fence(text[: len(text) - len(end)])
        text = f"{start}\n{open_fence(start)}\n\n{opened}\n{end}"
    text = _NO_WIDTH.sub("", written_out(re.sub(r"\r\n?", "\n", text))).strip()
    return unsigned(text)


def unsigned(text: str) -> str:
    """Returns ``text`` without a signature in its last line, below an empty one."""
    above, _, last = text.rstrip().rpartition("\n")
    signed = last.startswith(("— ", "– ")) and len(last) <= 80 and not above.rpartition("\n")[2].strip()
    return above.strip() if signed else text


def _without(blocks: Sequence[Block], body: str) -> str:
    """Returns ``body`` with the lines of its fenced blocks left empty, so that line numbers stay."""
    lines = body.split("\n")
    for block in blocks:
        lines[block.first : block.end] = [""] * (block.end - block.first)
    return "\n".join(lines)


def _refusal(prose: str) -> str | None:
    """Returns which of the first two sentences says that the writer cannot answer."""
    if _LETTER.match(prose):
        return None
    first = list(sentences(" ".join(prose[:_LONGEST_REFUSAL].split())))[:2]
    long = len(prose.strip()) > _LONGEST_REFUSAL
    return next((said for said in first if refuses(said, simulated_only=long)), None)


def _json(texts: Sequence[str]) -> str:
    """Returns the first JSON object or list, whose stars and underscores are no markup; "": there is none."""
    for text in map(str.strip, texts):
        if text[:1] + text[-1:] in ("{}", "[]"):
            with suppress(ValueError, RecursionError):
                json.loads(text)
                return text
    return ""


def _ends_in_code(body: str, blocks: Sequence[Block]) -> bool:
    return bool(blocks) and not "\n".join(body.split("\n")[blocks[-1].end :]).strip()


def _is_code(body: str, blocks: Sequence[Block]) -> bool:
    """Whether ``body`` is mainly code, rather than text that mentions some."""
    return sum(len(block.code) for block in blocks) >= 0.4 * len(body) or defines_something(blocks[-1].code)


def _line(text: str, *, markup: bool = True) -> str:
    line = (plain(text[: 4 * LONGEST_CONCLUSION]) if markup else "") or " ".join(text[: 4 * LONGEST_CONCLUSION].split())
    return _cut(line)


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_CONCLUSION else f"{line[: LONGEST_CONCLUSION - 1].rstrip()}…"


# Answers that say the same.

_WRAPPING = " \t\n\"'`*_$.,;:!“”‘’"
_LATEX_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def normal(text: str, *, fold: bool = True) -> str:
    r"""Returns words in the form for comparison; ``\text{}`` is replaced by its content."""
    text = unicodedata.normalize("NFKC", _LATEX_TEXT.sub(r"\1", text))
    text = re.sub(r"\s+", " ", text).strip(_WRAPPING)
    return text.casefold() if fold else text


Likeness = Literal["same", "same value", "differ in wording", "differ"]
"""``same``: word by word. ``same value``: in other words. ``differ in wording``: nobody marked values to compare."""


def answer_key(text: str, task: str = "") -> tuple[Kind, str]:
    """Returns what answers are compared by, and a text that is equal for equal answers. ``task``: see ``conclude``.

    Values are compared where they are marked; code as it is written: two functions of one name are two answers; else
    the whole text, whose other wording is not known to be another answer.
    """
    return key_of(text, conclude(text, task))


def key_of(text: str, found: Conclusion) -> tuple[Kind, str]:
    """Returns the ``answer_key`` of ``text``, whose conclusion is ``found``."""
    if found.kind == "code":
        blocks = [block.code.strip() for block in fenced_blocks(text) if block.code.strip()]
        return "code", "\n".join(blocks) or text.strip()
    if found.kind in ("declined", "empty"):
        return found.kind, ""
    if found.kind == "text":
        return "text", normal(text)
    return "value", _written_alike(normal(found.formula or found.text)) or text.strip()


_NUMBER = re.compile(r"([$€£]?)(?:([-−]) ?)?(\d{1,3}(?:,\d{3}){1,9}|\d{1,40})(\.\d{1,40})?(\s?%)?")


def _written_alike(text: str) -> str:
    """Returns a number without separators and idle zeros, so that 1,250.0 and 1250 are one value; else ``text``."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    currency, sign, whole, fraction, percent = (part or "" for part in found.groups())
    whole = whole.replace(",", "").lstrip("0") or "0"
    return f"{currency}{sign and '-'}{whole}{fraction.rstrip('0').rstrip('.')}{percent.strip()}"


def likeness(one: str, other: str, task: str = "") -> Likeness:
    """Says how two answers to ``task`` differ: by their values where both have one, else by their texts."""
    if one == other:
        return "same"
    ours, theirs = answer_key(one, task), answer_key(other, task)
    if ours == theirs and ours[0] != "text":
        return "same value"
    return "differ in wording" if {ours[0], theirs[0]} in ({"text"}, {"text", "value"}) else "differ"

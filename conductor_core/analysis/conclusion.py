"""Finds the conclusion of a model's text, in a line: the value it gives, what its code defines, or a sentence.

It works by rule, for any model's text and without another model. Marks that models are taught (a box, a tag, a label)
come first, then words that introduce an answer, then emphasis at the end, then a concluding sentence. It rewords
nothing: the conclusion is in the text, but for its markup. ``defined_name`` finds the function, class or type that a
piece of code defines, in common languages; ``answer_key`` tells whether two answers say the same, whatever their words.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from conductor_core.analysis.answers import Block, boxed, fenced_blocks, introduced, refuses
from conductor_core.analysis.plain_text import is_formula, plain, sentences

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
"""Characters. A longer one is cut: all of it stands in the text."""
_READ_FROM_START, _READ_FROM_END = 20_000, 40_000
"""Characters that are looked at: what a text says first, and what it comes to at its end."""
_SHORT = 90
"""Characters up to which a text of one line is its own conclusion."""
_LONGEST_REFUSAL = 1500
"""Characters: a longer text that begins with what it cannot do goes on to what it can."""
_LONGEST_MARK = 2000

_LABELS = "|".join(
    (
        r"(?:the )?(?:final |correct |short )?(?:answer|result)",
        r"respuesta(?: final)?|resposta(?: final)?|réponse(?: finale)?|risposta(?: finale)?",
        r"antwort|antwoord|endergebnis|ergebnis|svar|vastaus|odpowied[źz]|cevap|jawaban|đáp án",
        r"ответ|відповідь|απάντηση",
        r"(?:最终|最終)?答案|(?:最終)?(?:答え|解答|回答)|정답|답",
        r"(?:الجواب|الإجابة)(?: النهائية| النهائي)?|پاسخ|(?:ה)?תשובה(?: הסופית| סופית)?|उत्तर|คำตอบ",
    )
)
_LABELLED = re.compile(
    rf"^[ \t>#*_-]{{0,8}}(?:{_LABELS})[*_]{{0,3}}[ \t]?(?:[:：=]|$)[ \t*_]{{0,6}}", re.IGNORECASE | re.MULTILINE
)
_TAGGED = re.compile(r"<answer>([^<]{1,2000})</answer>", re.IGNORECASE)
_HASHES = re.compile(r"#### ?([^\n#]+)")
_INTRODUCED = re.compile(
    r"\b(?:la respuesta (?:final )?es|a resposta (?:final )?é|la réponse (?:finale )?est|la risposta (?:finale )?è"
    r"|die antwort (?:lautet|ist)|het antwoord is)\b ?:?|答案(?:是|为|為)|答えは|정답은|답은"
    r"|(?:الجواب|الإجابة)(?: النهائية)? (?:هو|هي)|התשובה(?: הסופית)? היא",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"(?:not|as follows|the following|below|above|given|shown|unknown|wrong|that|correct)\b", re.IGNORECASE
)
_REASON = re.compile(r",? (?:because|since|given that|weil|porque|parce que) .*$", re.IGNORECASE | re.DOTALL)
_CONCLUDING = re.compile(
    r"(?:(?:therefore|thus|hence|so|consequently|overall|in (?:conclusion|summary|short)|to sum up|conclusion|tl;dr"
    r"|por (?:lo )?tanto|en conclusi[óo]n|portanto|donc|quindi|pertanto|daher|somit|fazit|dus|следовательно|итак"
    r"|таким образом|لذلك|إذن|وبالتالي|לכן|לסיכום|इसलिए)\b|因此|所以|综上|したがって|よって|つまり|따라서|그러므로)",
    re.IGNORECASE,
)
_BOLD = re.compile(r"(?:\*\*|__)([^*_\n]{1,120})(?:\*\*|__)")
_FORMULA = re.compile(r"(?:\$\$|\\\[)([^$]{1,400}?)(?:\$\$|\\\])[.,]?")
_ONE_FORMULA = re.compile(
    r"[\s*]*(?:\$\$?([^$]+)\$\$?|\\\(((?:(?!\\\)).)+)\\\)|\\\[((?:(?!\\\]).)+)\\\])[\s.,*]*", re.DOTALL
)
_FILLER = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|great question|good question|gladly|happy to help)\b"
    r"[^.]{0,40}[!.,:]?",
    re.IGNORECASE,
)
_NOT_PROSE = re.compile(r"\s*(?:#{1,6} |\||[-*_=]{3,}\s*$|<)")


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a text.

    Attributes:
        kind: ``value``: what it calls its answer, or all of a short text; ``code``: the name of what its code defines;
            ``sentence``: one of its own; ``declined``: where it says that it cannot answer; ``empty``: it says nothing.
        text: one line without markup, at most ``LONGEST_CONCLUSION`` characters; "" for ``empty`` alone.
        formula: a ``value`` that is one formula as it was written, without its delimiters; else "".
    """

    kind: Literal["value", "code", "sentence", "declined", "empty"]
    text: str
    formula: str = ""


def conclude(text: str, task: str = "") -> Conclusion:
    """Returns the conclusion of ``text``. ``task`` tells the function that it asks for from its helpers."""
    body = _both_ends(text)
    if not body:
        return Conclusion("empty", "")
    blocks = [block for block in fenced_blocks(body) if block.code.strip()]
    if not blocks and begins_as_code(body):
        return Conclusion("code", _line(defined_name([body], task), markup=False))
    prose = _without(blocks, body)
    marked = _marked(body, prose)
    if marked is None:
        refusal = _refusal(prose)
        if refusal is not None:
            return Conclusion("declined", _line(refusal))
        marked = _in_json([body, *(block.code for block in blocks)]) or _introduced(prose, blocks)
    code = marked is None and bool(blocks) and _is_code(body, blocks)
    if marked is None and (written := _json([block.code for block in blocks] if code else [body])):
        return Conclusion("value" if written == body and len(body) <= _SHORT else "code", _line(written, markup=False))
    if marked == "" or code:
        return Conclusion("code", _line(defined_name([block.code for block in blocks], task), markup=False))
    if marked is None:
        return _of_prose(body, prose)
    return _of_mark(marked, body)


def _of_mark(marked: str, body: str) -> Conclusion:
    formula = _formula(marked)
    text = plain(f"\\({formula}\\)") if formula else _value(marked)
    return Conclusion("value", _cut(text or _line(body)), formula)


def _formula(marked: str) -> str:
    """Returns the formula to be drawn, between delimiters or in a box; "": a line shows it as well."""
    alone = _ONE_FORMULA.fullmatch(marked)
    inside = next(filter(None, alone.groups())).strip() if alone else marked.strip()
    in_a_box = "$" not in inside and "\\(" not in inside and re.search(r"\\[A-Za-z,;]|\^|_\{", inside)
    words = re.fullmatch(r"\\(?:text|textbf|mathrm|textrm|mbox)\s*\{[^{}]*\}", inside)
    return inside if (alone or in_a_box) and is_formula(inside) and not words else ""


def _both_ends(text: str) -> str:
    """Returns both ends of a long ``text``, without thoughts and without a signature."""
    if len(text) > _READ_FROM_START + _READ_FROM_END:
        text = f"{text[:_READ_FROM_START]}\n\n{text[-_READ_FROM_END:]}"
    _, closed, after = text.rpartition("</think>")
    text = after if closed else text.partition("<think>")[0]
    text = text.strip()
    above, _, last = text.rpartition("\n")
    signed = last.startswith(("— ", "– ")) and len(last) <= 80 and not above.rpartition("\n")[2].strip()
    return above.strip() if signed else text


def _without(blocks: Sequence[Block], body: str) -> str:
    """Returns ``body`` with the lines of its fenced blocks left empty, so that line numbers stay."""
    lines = body.split("\n")
    for block in blocks:
        lines[block.first : block.end] = [""] * (block.end - block.first)
    return "\n".join(lines)


def _marked(body: str, prose: str) -> str | None:
    """Returns the last answer marked by a box, a tag or a label; "": it is code; None: there is no mark."""
    if boxes := boxed(prose):
        return boxes[-1][1]
    if tags := _TAGGED.findall(prose):
        return str(tags[-1])
    last = prose.strip().rpartition("\n")[2].strip()
    if hashes := _HASHES.fullmatch(last):
        return hashes[1]
    lines = body.split("\n")
    for label in reversed(list(_LABELLED.finditer(prose))[-20:]):
        rest, _, _ = prose[label.end() : label.end() + _LONGEST_MARK].partition("\n")
        if rest.strip(" *_"):
            return rest
        below = prose.count("\n", 0, label.end()) + 1
        following = next((line.strip() for line in lines[below : below + 4] if line.strip()), "")
        if following.startswith(("```", "~~~")):
            return ""
        if following:
            return following
    return None


def _refusal(prose: str) -> str | None:
    """Returns which of the first two sentences says that the writer cannot answer."""
    first = list(sentences(" ".join(prose[:_LONGEST_REFUSAL].split())))[:2]
    long = len(prose.strip()) > _LONGEST_REFUSAL
    return next((said for said in first if refuses(said, simulated_only=long)), None)


def _in_json(texts: Sequence[str]) -> str | None:
    """Returns the answer in a JSON object, by its usual names."""
    for text in texts:
        if not text.lstrip().startswith("{"):
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for name in ("final_answer", "answer", "result"):
            if isinstance(value := found.get(name), str | int | float) and str(value).strip():
                return str(value)
    return None


def _json(texts: Sequence[str]) -> str:
    """Returns the first JSON object or list, whose stars and underscores are no markup; "": there is none."""
    for text in map(str.strip, texts):
        if text[:1] + text[-1:] in ("{}", "[]"):
            with suppress(ValueError, RecursionError):
                json.loads(text)
                return text
    return ""


def _introduced(prose: str, blocks: Sequence[Block]) -> str | None:
    """Returns what follows the last "the answer is" after all code: before code, it is about the code."""
    marks = introduced(prose)
    for match in list(_INTRODUCED.finditer(prose))[-20:]:
        behind = prose[match.end() : match.end() + _LONGEST_MARK].lstrip(":： ")
        marks.append((match.start(), behind.partition("\n")[0]))
    after = max((block.end for block in blocks), default=0)
    for place, line in sorted(marks, reverse=True):
        if prose.count("\n", 0, place) < after:
            return None
        if line.strip() and not _SAYS_NOTHING.match(plain(line)):
            return line
    return None


def _is_code(body: str, blocks: Sequence[Block]) -> bool:
    """Whether ``body`` is mainly code, rather than text that mentions some."""
    return sum(len(block.code) for block in blocks) >= 0.4 * len(body) or defines_something(blocks[-1].code)


def _of_prose(body: str, prose: str) -> Conclusion:
    if "\n" not in body and len(body) <= _SHORT and (whole := _value(body)):
        return Conclusion("value", whole, _formula(body) if _ONE_FORMULA.fullmatch(body) else "")
    paragraphs = [part for part in (each.strip() for each in prose.split("\n\n")) if part]
    if emphasised := _emphasised(paragraphs[-1] if paragraphs else ""):
        return Conclusion(
            "value", emphasised, _formula(paragraphs[-1]) if _ONE_FORMULA.fullmatch(paragraphs[-1]) else ""
        )
    for paragraph in reversed(paragraphs[-2:]):
        concluding = [said for said in sentences(paragraph) if _CONCLUDING.match(said.lstrip("*_ "))]
        if concluding and (line := _line(concluding[-1])):
            return Conclusion("sentence", line)
    for paragraph in paragraphs:
        said = next((each for each in sentences(paragraph) if not _FILLER.fullmatch(each)), "")
        if not _NOT_PROSE.match(paragraph) and (line := _line(said)):
            return Conclusion("sentence", line)
    return Conclusion("sentence", _line(body))


def _emphasised(paragraph: str) -> str:
    """Returns the formula or bold words that end the last paragraph."""
    if formula := _FORMULA.fullmatch(paragraph):
        return _line(f"\\({formula[1]}\\)")
    line = paragraph.rpartition("\n")[2].strip()
    marks = list(_BOLD.finditer(line))
    if len(marks) != 1 or line.startswith("#"):
        return ""
    words, rest = marks[0][1], line[marks[0].end() :].strip(" .!。")
    return _value(words) if not rest and (marks[0].start() == 0 or any(map(str.isdigit, words))) else ""


def _value(marked: str) -> str:
    """Returns a value alone: its first sentence, without the reason behind it and without an end mark."""
    first = next(sentences(_line(marked)), "")
    return _REASON.sub("", first).rstrip(".。।;,").strip() or first


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

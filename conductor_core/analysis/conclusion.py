"""Finds the conclusion of a model's text, in a line: the value that it marks, what its code defines, or how it begins.

It works by rule, for any model's text and without another model; what counts as a mark stands above ``marked``. It
rewords nothing: the conclusion is in the text, but for its markup. ``defined_name`` finds the function, class or type
that a piece of code defines, in common languages; ``answer_key`` tells whether two answers say the same.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from operator import itemgetter
from typing import Literal

from conductor_core.analysis.answers import Block, boxed, fenced_blocks, open_fence, refuses
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, REPLAY_PURPOSE, TOUR_PURPOSE
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Conclusion, ConclusionKind
from conductor_core.text import plain as written_out

# Markdown and LaTeX as a line of plain text, and where sentences end. A formula becomes one line of the same meaning:
# ``\\frac{1}{x+1}`` is ``1/(x+1)``, never ``1/x+1``.


_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathbb|mathcal|mbox|operatorname|boxed|fbox)\s*\{([^{}]{0,200})\}"
)
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]{1,120})\}|(\w))\s*(?:\{([^{}]{1,120})\}|(\w))")
_ROOT = re.compile(r"\\sqrt\s*(?:\[([^\[\]{}]{1,9})\])?\s*(?:\{([^{}]{1,120})\}|(\w))")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*\{([^{}]{1,60})\}\s*\{([^{}]{1,60})\}")
_RAISED = re.compile(r"\s*([\^_])\s*(?:\{([^{}]{1,120})\}|([^\s{}()\\^_]))")
_DEGREE = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\}|\\degree)(?![A-Za-z])")
_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])\.?|\\!|\\label\{[^{}]*\}"
)
_SPACES = re.compile(r"\\(?:q?quad(?![A-Za-z])|[,;:> ])|~")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[A-Za-z]+\*?\}(?:\{[lcr| ]+\})?")
_SYMBOLS = {
    "times": "×", "cdot": "·", "div": "÷", "pm": "±", "mp": "∓", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "ne": "≠", "neq": "≠", "approx": "≈", "equiv": "≡", "sim": "∼",
    "infty": "∞", "degree": "°", "circ": "∘", "to": "→",
    "rightarrow": "→", "implies": "⇒", "Rightarrow": "⇒", "iff": "⇔", "in": "∈",
    "notin": "∉", "subset": "⊂", "subseteq": "⊆",
    "cup": "∪", "cap": "∩", "emptyset": "∅", "varnothing": "∅", "ldots": "…", "dots": "…", "cdots": "…", "sum": "∑",
    "prod": "∏", "int": "∫", "partial": "∂", "nabla": "∇", "forall": "∀", "exists": "∃", "neg": "¬", "land": "∧",
    "lor": "∨", "mid": "|", "angle": "∠", "perp": "⊥", "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε",
    "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ",
    "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
_NAMES = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|lim|max|min|gcd|lcm|det|dim|mod"
_SYMBOL = re.compile(rf"\\({'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})(?![A-Za-z])")
_NAME = re.compile(rf"\\({_NAMES})(?![A-Za-z])")
_HIGH = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")
_LOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_ONE_TERM = re.compile(r"-?[\w.√°²³⁰¹⁴-⁹₀-₉…]+")
_ONE_FACTOR = re.compile(r"\d+(?:\.\d+)?|\w|√\d+|√\w")
_IS_FORMULA = re.compile(r"\\[A-Za-z,;:!{]|[\^_]")


def is_formula(text: str) -> bool:
    """Whether ``text`` is more than letters and figures that a line can show as they are."""
    return bool(_IS_FORMULA.search(text))


def read_formula(tex: str, *, raised: bool = True) -> str:
    """``tex``, without its delimiters, in one line. What has no such reading stays as it is written.

    Args:
        raised: False for prose with commands in it: there ``_`` and ``^`` and braces are characters.
    """
    text = _SIZES.sub("", _ENVIRONMENT.sub(" ", tex)).replace("{,}", ",")
    text = _DEGREE.sub("°", text)
    # From the inside out: a fraction of texts, a box with a fraction in it.
    for _ in range(8):
        before = text
        text = _TEXT.sub(r"\1", text)
        text = _NAME.sub(r"\1", _SYMBOL.sub(lambda match: _SYMBOLS[match[1]], text))
        text = _RAISED.sub(_raised, text) if raised else text
        text = _BINOMIAL.sub(r"C(\1, \2)", _ROOT.sub(_root, text))
        text = _FRACTION.sub(_fraction, text)
        if text == before:
            break
    text = _SPACES.sub(" ", re.sub(r"\s*\\\\\s*", "; ", text)).replace("&", "")
    if raised and not re.search(r"\\[A-Za-z]", text):
        text = re.sub(r"(?<!\\)[{}]", "", text)
    text = re.sub(r"\\([$%&#_{}|])", r"\1", text)
    return re.sub(r"(?<=[(\[]) | (?=[)\]])", "", " ".join(text.split()))


def _fraction(match: re.Match[str]) -> str:
    above, below = (match[1] or match[2]).strip(), (match[3] or match[4]).strip()
    above = above if _ONE_TERM.fullmatch(above) else f"({above})"
    below = below if _ONE_FACTOR.fullmatch(below) else f"({below})"
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    said = f"{above}/{below}"
    if after and (after.isalnum() or after in "\\(√^/!"):
        said = f"({said})"
    return f" {said}" if before.isalnum() or before == ")" else said


def _root(match: re.Match[str]) -> str:
    inside = (match[2] or match[3]).strip()
    inside = inside if re.fullmatch(r"\d+(?:\.\d+)?|\w", inside) else f"({inside})"
    degree = (match[1] or "").strip()
    return f"{degree.translate(_HIGH) if degree.isdigit() or degree == 'n' else degree}√{inside}"


def _raised(match: re.Match[str]) -> str:
    inside = (match[2] or match[3]).strip()
    if match[1] == "_":
        return inside.translate(_LOW) if re.fullmatch(r"[0-9]+", inside) else f"_{_grouped(inside)}"
    return inside.translate(_HIGH) if re.fullmatch(r"[+\-−]?[0-9]+|n", inside) else f"^{_grouped(inside)}"


def _grouped(inside: str) -> str:
    return inside if re.fullmatch(r"\w+|[*′'+-]", inside) else f"({inside})"


_FORMULA = re.compile(
    r"\\\((?P<round>.{1,600}?)\\\)|\\\[(?P<square>.{1,600}?)\\\]"
    r"|(?<![\\$\w])(?P<dollars>\$\$?)(?=[^\s$])(?P<inside>[^$\n]{1,300})(?<=[^\s\\])(?P=dollars)(?![\d$])",
    re.DOTALL,
)
_COMMAND = re.compile(r"\\[A-Za-z]{2}")
_STRAY = re.compile(r"\\[()\[\],;:! ]")
_SHIELDED = {ord(mark): 0xE100 + ord(mark) for mark in "*_`~[]()#>+-$\\"}
_UNSHIELDED = {shield: mark for mark, shield in _SHIELDED.items()}
# A place in square brackets is no link: f[0](x).
_LINK = re.compile(
    r"(?<![\w)\]])!?\[([^\[\]\n]{0,300})\]\((?=[/#.]|mailto:|[^()\s]{0,80}(?:://|\.[A-Za-z]{2}))[^()\s]{0,500}\)"
)
# What Python writes with stars and underscores: *args, **kwargs, __init__.
_PYTHON = re.compile(
    r"(?<!\w)(?:__[a-z]\w{0,60}__(?!\w)|(?<!\*)\*{1,2}[a-z_]\w{0,60}(?=[,)]|$)(?![^\n]{0,300}[^\s(*]\*))"
)
# A mark between two letters or digits opens nothing: 2*3*4 is a product, and x**2 a power.
_EMPHASISED = re.compile(
    r"(?<![A-Za-z0-9)\]](?=[*_]{1,3}[A-Za-z0-9(]))(?<!\*)"
    r"(\*{1,3}|__|~~)(?=[^\s*_~])([^*_~\n]{1,400})(?<=[^\s*_~])\1"
)
_CODE = re.compile(r"(`{1,3})([^`\n]{1,400})\1")
_LEADING = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+•])\s+)+")
_LEFT_OVER = re.compile(r"^[*_`]+|[*_`]+$|(?<![A-Za-z0-9)\]](?=\*\*[A-Za-z0-9(]))(?<!\s(?=\*\*\s))(?<!\*)\*\*")
_ESCAPED = re.compile(r"\\([$%&#_{}*`\\])")
_BOUNDARY = re.compile(r"(?<=[.!?؟۔।…])[\"'’”»)\]*_`]{0,4}\s+(?![a-z=<≤≥≠≈])|(?<=[。！？])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:[A-Za-z]|[A-Za-z]\.[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|vs|etc|approx|ca|No|Nr|bzw|ggf|usw|Inc|Fig|cf|\d{1,3}"
    r"|Mt|Ft|Sgt|Lt|Col|Capt|Gen|Maj|Rev|Hon|Gov|Sen|Jr|Sr|Vol|Ch|Sec|Op|pp|Ed|al|Co|Ltd|Corp|Bros|Dept|Univ|Ave)\.$"
)
_LIST_NUMBER = re.compile(r"^\s*\d{1,3}\.$")


def plain(text: str, *, line: bool = True) -> str:
    """Returns ``text`` without markup and with single spaces. A formula keeps its meaning.

    Args:
        line: False for part of a line: no list and no quotation begins there, so that ``- 5`` and ``> 5`` are numbers.
    """
    text = _FORMULA.sub(_read, text.replace("\\$", "\ue000"))
    text = _ESCAPED.sub(r"\1", text)
    if _COMMAND.search(text):
        text = read_formula(_STRAY.sub(" ", text), raised=False)
    text = _CODE.sub(lambda code: code[2].translate(_SHIELDED), text)
    text = _PYTHON.sub(lambda name: name[0].translate(_SHIELDED), text)
    text = _LINK.sub(r"\1", _LEADING.sub("", text) if line else text)
    text = _EMPHASISED.sub(r"\2", _EMPHASISED.sub(r"\2", text))
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
        # "It costs 20. The rest" against "1. First": a number may end a sentence, or begin an item of a list.
        number = re.search(r"\d\.$", ended) and not _LIST_NUMBER.match(said)
        if said and (number or not _ABBREVIATION.search(ended)):
            yield said
            start = boundary.end()
    if rest := paragraph[start:].strip():
        yield rest


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
    # Mainly code, rather than text that mentions some.
    code = bool(blocks) and (
        sum(len(each.code) for each in blocks) >= 0.4 * len(body) or defines_something(blocks[-1].code)
    )
    ends_in_code = bool(blocks) and not "\n".join(body.split("\n")[blocks[-1].end :]).strip()
    found = in_json([body, *(block.code for block in blocks)]) if mark is None else None
    if found is None and not code and not ends_in_code:
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


def answer_key(text: str, task: str = "") -> tuple[ConclusionKind, str]:
    """Returns what answers are compared by, and a text that is equal for equal answers. ``task``: see ``conclude``.

    Values are compared where they are marked; code as it is written: two functions of one name are two answers; else
    the whole text, whose other wording is not known to be another answer.
    """
    return key_of(text, conclude(text, task))


def key_of(text: str, found: Conclusion) -> tuple[ConclusionKind, str]:
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


# Finds the value that a text itself marks as its answer, in any of many languages.
#
# A mark is a box (``\boxed{4}``), ``#### 4``, a labelled line ("Answer: 4"), a tag (``<answer>4</answer>``), JSON's
# key, or a last sentence "the answer is 4" with something short. A text that is one short sentence is its own value. Of
# several the last in the text counts. Nothing is guessed, for a wrong headline is worse than none: "answer is" in the
# middle of prose, an echo of the task, a question or a request, a lead-in, a placeholder, and what is denied, struck
# out, quoted or hidden mark nothing.

SHORT = 80
"""Characters up to which a text of one sentence is its own value."""
_LONGEST_LABELLED, _LONGEST_STATED = 120, 60
"""Characters of what is marked by a label, and by a sentence."""
_MOST_LABELS = 20
_LONGEST_LINE = 2000
_LONGEST_TASK = 20_000

_ANSWER_WORDS = "|".join(
    (
        r"(?:the )?(?:final |correct |short )?answer",
        r"respuesta(?: final)?|resposta(?: final)?|réponse(?: finale)?|risposta(?: finale)?",
        r"antwort|antwoord|svar|vastaus|odpowied[źz]|cevap|jawaban|đáp án",
        r"ответ|відповідь|απάντηση",
        r"(?:最终|最終)?答案|(?:最終)?(?:答え|解答|回答)|정답|답",
        r"(?:الجواب|الإجابة)(?: النهائية| النهائي)?|پاسخ|(?:ה)?תשובה(?: הסופית| סופית)?|उत्तर|คำตอบ",
    )
)
_RESULT_WORDS = r"(?:the )?(?:final )?result|endergebnis|ergebnis|resultado|résultat|risultato|результат|结果"
_COLON = r"[*_]{0,3}[ \t\u00a0]?[:：=][*_]{0,3}[ \t]{0,6}"
_LABEL = re.compile(
    rf"^[ \t]{{0,8}}(?:#{{1,6}} |[*_]{{1,3}})?(?:(?P<answer>{_ANSWER_WORDS})|(?P<result>{_RESULT_WORDS}))"
    rf"(?:{_COLON}|(?<=\S)[*_]{{0,3}}[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE_LABEL = re.compile(
    rf"^(?:[^\w`]{{0,3}}|.{{1,40}} \*\*)(?:{_ANSWER_WORDS}){_COLON}(?P<value>.+)$", re.IGNORECASE
)
_QUESTION = re.compile(
    r"^\W{0,6}(?:q|question|frage|pregunta|pergunta|вопрос|问题|質問)\W{0,3}\d{0,3}\W{0,3}[:：]|[?？]\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<answer>([^<]{1,2000})</answer>", re.IGNORECASE)
_HASHES = re.compile(r"^[ \t]{0,3}#### ?([^\n#]{1,200})$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_MARKED_NUMBER = re.compile(r"[-+−$€£¥]{0,2}\d[\d.,/:  ]*%?")

_LEAD = (
    r"(?:\d{1,2}[.)] )?(?:(?:so|thus|therefore|hence|finally|consequently|in conclusion|and|por (?:lo )?tanto|entonces"
    r"|portanto|donc|ainsi|quindi|dunque|daher|somit|also|dus|итак|таким образом|因此|所以|したがって|따라서),? ?)?"
)
_PHRASES = "|".join(
    (
        r"(?:the|our|my) (?:(?:final|correct|right) )?answer"
        r"(?: (?:to|for) (?:(?! (?:and|can|could|may|might|that|which) )[^.:?!]){1,80}?| here)?"
        r" (?:is|was|would be|must be|should be)(?: (?:therefore|thus|then))?",
        r"la respuesta (?:final |correcta )?es|a resposta (?:final |correta )?é|la réponse (?:finale |correcte )?est",
        r"la risposta (?:finale |corretta )?è|die (?:richtige )?antwort (?:lautet|ist)|het antwoord is",
        r"(?:最终|正确)?答案(?:是|为|為)|答えは|정답은|답은",
        r"(?:الجواب|الإجابة)(?: النهائية)? (?:هو|هي)|התשובה(?: הסופית)? היא",
    )
)
_STATES = re.compile(rf"^{_LEAD}(?:{_PHRASES})[*_]{{0,3}} ?[:：]? ?(?P<value>.+)$", re.IGNORECASE)
_STATES_LATER = re.compile(
    r"(?:[,;:.!][*_]{0,2}|\b(?:so|thus|hence|therefore|which means)),?(?: (?:and|so|thus|hence|therefore|that))?"
    r" (?:the (?:final |correct )?answer is|answer:) (?P<value>[^,;]+?)[.!]?$",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"^(?:if|when|unless|assuming|suppose|supposing|were)\b|\b(?:doubts?|unsure|not sure|unlikely)\b", re.IGNORECASE
)
_REASON = re.compile(r",? (?:because|since|given that|weil|porque|parce que) .*$", re.IGNORECASE | re.DOTALL)
_SAYS_NOTHING = re.compile(
    r"(?:not|no longer|as|the following|below|above|given|shown|unknown|unclear|undefined|that|based|still|in|on|to|at"
    r"|by|from|for|with|here|there|always|never|often|usually|actually|indeed|probably|correct|incorrect|right|wrong|clear"
    r"|complete|which|what|how|why|whether|when|if|very|more|most|too|so|also|only|just)\b|[不没未根正错]",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(
    r"(?:yes|no|true|false|none|both|neither|nothing|nobody|(?:option |choice )?[a-z]"
    r"|oui|non|sí|sim|ja|nein|да|нет|是|否)",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\W{0,2}(?:\*\*|__|[`\"'“‘«$]|\\\()")
_PLACEHOLDER = re.compile(
    r"\W*|[\[<{].*[\]>}]"
    r"|\W*(?:(?:your|the|final|insert|short) ){0,3}(?:answer|result|value|number|letter|text)\W*",
    re.IGNORECASE,
)
_NO_OTHER_SAYS = re.compile(r" (?:which|until|unless) ")
_ASKS = re.compile(
    r"^(?:(?:ok|okay|sure|well|great|certainly|of course|so|first|next|then)[,.!]? )?"
    r"(?:let me|let['’]s|let us|(?:i|we)(?:['’]ll| will|['’]m going to| am going to|['’]re going to| are going to)"
    r"|now,|here(?: is| are|['’]s)) |\b(?:please|por favor|bitte|s'il vous plaît|пожалуйста)\b|请提供|ください",
    re.IGNORECASE,
)
# Code in a line, comments, what is folded away, and what is struck out.
_HIDDEN = re.compile(
    r"(?P<code>(?P<ticks>(?<!`)`{1,3})[^`\n]{1,400}(?P=ticks)(?!`))"
    r"|<!--(?:.*?-->|.*)|<details\b.*?(?:</details>|\Z)"
    r"|~~[^~\n]{1,400}~~|<(?P<struck>s|del|strike)>[^<]{1,400}</(?P=struck)>",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"^ {0,3}>.*$", re.MULTILINE)
_ITEM = re.compile(r"\s{0,12}(?:[-*+]|\d{1,3}[.)])\s")
_DENIED = re.compile(
    r"(?:\b(?:not|never|(?:is|was)n['’]t|can(?:not|['’]t) be)(?: equal)?(?: to)?|≠| !=|\\neq?|\\not ?=)"
    r"[\s$({\\\[:*]{0,6}$",
    re.IGNORECASE,
)
_IS_WRONG = re.compile(
    r"[\s$)\\\]*]{0,6}(?:(?:is|was) (?:not|wrong|incorrect|false)\b|(?:isn|wasn)['’]t\b)", re.IGNORECASE
)
_JOINED = re.compile(r"[\s$]{0,3}?(, ?(?:or|and)?| or| and)[\s$]{0,3}(?:[A-Za-z] ?= ?)?")
_OPTION = re.compile(r"[(\[]?[A-Ha-h][).:\]]")


Mark = tuple[int, str]
"""Where in a text a mark is, and what it marks."""


def said_itself(text: str) -> str:
    """Returns ``text`` without what it quotes, hides or strikes out. It keeps its lines."""
    return _QUOTED.sub("", _indented_left_out(_HIDDEN.sub(_kept, text)))


def marked(prose: str) -> Mark | None:
    """Returns the last of what boxes, tags, hashes and labels mark; None: there is no such mark."""
    tags = (found for found in reversed(list(_TAG.finditer(prose))) if _usable(found[1]))
    found = (_boxes(prose), next(((tag.start(), tag[1]) for tag in tags), None), _hashes(prose), _labels(prose))
    return max((mark for mark in found if mark is not None), key=itemgetter(0), default=None)


def in_json(texts: Sequence[str]) -> str | None:
    """Returns the answer in a JSON object, by its usual names."""
    for text in texts:
        if not text.lstrip().startswith("{"):
            continue
        try:
            found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            continue
        for name in ("final_answer", "answer", "result"):
            value = found.get(name)
            value = json.dumps(value) if isinstance(value, bool) else value
            if isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_LABELLED:
                return value
    return None


def stated(prose: str, task: str) -> Mark | None:
    """Returns X if the last sentence says "the answer is X", or labels X, and X is short; None: it does not."""
    line = prose.rstrip().rpartition("\n")[2][-_LONGEST_LINE:].strip()
    said = [*sentences(line), ""][-2].strip() if line else ""
    said = said if said.count("**") in (2, 4) else said.strip("*_ ")
    found = _STATES.match(said)
    if found is None and not _LABEL.match(line):
        found = _INLINE_LABEL.match(said)
    later = None if found else _STATES_LATER.search(said)
    if later is not None and _UNSURE.search(said[: later.start()]):
        return None
    match = found or later
    if match is None or (_echoes(said, task) and not re.search(r"\d", match["value"])):
        return None
    value = _REASON.sub("", match["value"]).strip()
    good = _is_short(value) and (found or _MARKED_NUMBER.match(plain(value)))
    return (prose.rfind(match["value"]), value) if good else None


def alone(body: str, task: str) -> str | None:
    """Returns ``body`` if it is one short sentence that says something of its own; None otherwise."""
    if "\n" in body or len(body) > SHORT or body.endswith((":", "：", "?", "？", "…", "...")):
        return None
    if len(list(sentences(body))) != 1 or _STATES.match(body.lstrip("\"'“")):
        return None
    if _PLACEHOLDER.fullmatch(body) or _ASKS.search(body):
        return None
    return None if _echoes(body, task) else re.sub(r"^#{1,6} +", "", body)


def first_sentence(marked_text: str) -> str:
    """Returns a marked value alone, in a line and without an end mark."""
    line = plain(marked_text[:_LONGEST_LINE], line=False)
    said = next(sentences(line), "")
    said = line if re.fullmatch(r"\S+[^\s.!?]|\d", line[len(said) :].strip()) else said
    return said.rstrip(".。।;,").strip() or said


def _usable(value: str) -> bool:
    said = value.strip()
    return bool(said) and not _PLACEHOLDER.fullmatch(said) and not said.rstrip("*_ ").endswith((":", "：", "?", "？"))


def _kept(hidden: re.Match[str]) -> str:
    """Returns the line feeds of what is hidden; all of a piece of code that has no mark in it."""
    code = hidden["code"]
    return code if code and not re.search(r"\\f?(?:box|framebox)|<answer", code) else "\n" * hidden[0].count("\n")


def _indented_left_out(text: str) -> str:
    """Returns ``text`` without its blocks of indented code. Below the item of a list, indented lines belong to it."""
    lines, code, blank, listed = text.split("\n"), False, True, False
    for number, line in enumerate(lines):
        indented = line.startswith(("    ", "\t"))
        if line.strip():
            code = indented and not listed and (code or blank)
            listed = bool(_ITEM.match(line)) or (listed and (indented or not blank))
            lines[number] = "" if code else line
        blank = not line.strip()
    return "\n".join(lines)


def _boxes(prose: str) -> Mark | None:
    """Returns what is in the last box, together with the boxes that an "or", "and" or comma joins to it."""
    found: Mark | None = None
    joined_from = 0
    for start, content in reversed(boxed(prose)):
        end = prose.index("{", start) + len(content) + 2
        if found is not None:
            joined = _JOINED.fullmatch(prose[end:joined_from][:20])
            if joined is None:
                break
            found = found[0], f"{content}\\text{{{joined[1]} }}{found[1]}"
        elif _usable(content) and not _DENIED.search(prose[max(0, start - 40) : start]):
            found = None if _IS_WRONG.match(prose[end : end + 40]) else (start, content)
        joined_from = start
    return found


def _hashes(prose: str) -> Mark | None:
    """Returns what follows the last ``####``: a number on any line, else what ends a text without headings."""
    lines = list(_HASHES.finditer(prose))
    for line in reversed(lines):
        if _MARKED_NUMBER.fullmatch(line[1].strip()):
            return line.start(), line[1]
    if len(lines) == 1 and len(_HEADING.findall(prose)) == 1 and lines[0].end() == len(prose.rstrip()):
        return (lines[0].start(), lines[0][1]) if _usable(lines[0][1]) else None
    return None


def _labels(prose: str) -> Mark | None:
    """Returns what the last labelled line says. The labels of a list of questions mark no answer of the text."""
    labels = list(_LABEL.finditer(prose))[-_MOST_LABELS:]
    if len(labels) > 1 and _QUESTION.search(prose):
        return None
    for label in reversed(labels):
        value = _labelled(prose, label.end())
        if not _usable(value) or len(first_sentence(value)) > _LONGEST_LABELLED:
            continue
        if label["answer"] or re.search(r"\d", value):
            return label.start(), value
    return None


def _labelled(prose: str, end: int) -> str:
    """Returns what a label marks: the rest of its line, else a line of its own below it."""
    rest, _, below = prose[end : end + 2 * _LONGEST_LINE].partition("\n")
    if rest.strip(" *_"):
        return rest
    paragraph = below.lstrip("\n").partition("\n\n")[0].strip()
    return "" if "\n" in paragraph or re.match(r"[-*•#>|] |\d{1,2}[.)] ", paragraph) else paragraph


def _is_short(value: str) -> bool:
    """Whether ``value`` is a value and not the beginning of an explanation."""
    said = first_sentence(value)
    if not _usable(value) or len(said) > _LONGEST_STATED or _SAYS_NOTHING.match(said) or _NO_OTHER_SAYS.search(said):
        return False
    words = said.split()
    if re.search(r"\d", said) or _EMPHASIS.match(value):
        return len(words) <= 10
    return len(words) <= 5 and (not said[0].islower() or bool(_ONE_WORD.fullmatch(said)))


def _echoes(said: str, task: str) -> bool:
    """Whether ``said`` repeats the task: three words or more that are all in it, or four in five, in its order."""
    if _OPTION.match(said):
        return False
    task = task[:_LONGEST_TASK]
    if not re.search("[A-Za-zА-я]", said):
        return len(said) >= 8 and said.strip("。. ") in task
    ours, theirs = _words(said), _words(task)
    run = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match().size
    return run >= (3 if run == len(ours) else 4) and run >= 0.8 * len(ours)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def opening(body: str, most: int) -> str:
    """Returns how ``body`` begins, in a line of at most ``most`` characters."""
    lines: list[str] = []
    read = 0
    for line in body.split("\n"):
        if read <= most and not line.strip().startswith(("```", "~~~")):
            lines.append(plain(line[: 4 * most]))
            read += len(line)
    said = " ".join(filter(None, lines))
    return said if len(said) <= most else f"{said[: most - 1].rstrip()}…"


# Runs: an echo of what the last step was asked is not an answer.


def asked(trace: RunTrace, step: StepTrace | None = None) -> str:
    """Returns the task, and below it the instruction of ``step``; None: of the step whose answer is the run's."""
    step = step or trace.last
    if step is None:
        return trace.task
    return f"{trace.task}\n{step.instruction.replace('{question}', trace.task)}"


def concluded(trace: RunTrace) -> Conclusion | None:
    """Returns the conclusion of a run's answer; None: it has no answer."""
    return None if trace.answer is None else conclude(trace.answer, asked(trace))


def changes_of(trace: RunTrace) -> tuple[str, ...]:
    """Returns what was changed since the run that it came from, a text for each step and each given output."""
    return (*trace.root.edits, *trace.overrides.sentences)


_NAMED_BY_PURPOSE = {
    TOUR_PURPOSE: "Plan of the tour",
    PASS_PURPOSE: "Forwarded",
    JUDGE_PURPOSE: "Asked to judge",
}


def name_of(trace: RunTrace) -> str:
    """Names a re-run by its changes (``step 3 also reads step 1``, ``again``), any other by whose plan it is."""
    if trace.parent_run_id is None:
        if (name := _NAMED_BY_PURPOSE.get(trace.purpose)) is not None:
            return name
        if trace.tier is not None and trace.tier.easy:
            return f"Sent to {trace.tier.worker}"
        by_conductor = trace.conductor is not None and trace.root.source in (None, "conductor")
        return f"Plan by {trace.conductor.name if by_conductor and trace.conductor else 'hand'}"
    if trace.resumed:
        missing = sum(step.reused_from is None for step in trace.steps)
        return f"the {missing} missing steps" if missing > 1 else "the missing step" if missing else "its missing steps"
    before = trace.root.before_edit
    # What else a replay was told is the same in all of them.
    changes = trace.root.edits if trace.purpose == REPLAY_PURPOSE else changes_of(trace)
    return ", ".join(changes) or ("again" if before is None else "the plan's text changed, but no step")

r"""Turns Markdown and LaTeX into a line of plain text, and finds where sentences end. Rewords nothing.

A formula becomes one line of the same meaning: ``\frac{1}{x+1}`` is ``1/(x+1)``, never ``1/x+1``.
"""

import re
from collections.abc import Iterator

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
_EMPHASIS = re.compile(
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

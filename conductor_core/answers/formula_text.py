"""Writes a formula as one line of text with the same meaning: ``\\frac{1}{x+1}`` is ``1/(x+1)``, never ``1/x+1``."""

import re

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

"""Grades answers that are one number, and reads numbers as people and models write them.

Read are separators, signs, percent, fractions, powers of ten and units.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from conductor_core.analysis.answers import bold, last_paragraph, stated, tail
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Graded, Task

_UNITS: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(factor))
    for dimension, table in {
        "length": "mm 1/1000 cm 1/100 m 1 km 1000 metre 1 meter 1 kilometre 1000 kilometer 1000 centimetre 1/100 "
        "centimeter 1/100 inch 0.0254 foot 0.3048 feet 0.3048 yard 0.9144 mile 1609.344",
        "mass": "mg 1/1000000 g 1/1000 kg 1 gram 1/1000 kilogram 1 ton 1000 tonne 1000",
        "time": "ms 1/1000 s 1 second 1 min 60 minute 60 h 3600 hour 3600 day 86400 week 604800",
        "volume": "ml 1/1000 l 1 litre 1 liter 1 millilitre 1/1000 milliliter 1/1000",
        "money": "$ 1 dollar 1 usd 1 cent 1/100 ¢ 1/100",
    }.items()
    for name, factor in zip(table.split()[::2], table.split()[1::2], strict=True)
}
"""Maps a unit to what it measures, and to its size in the base unit of that kind."""
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_LONGEST = 60
"""Most digits of a number that is read. A longer row of digits is not an answer and is skipped."""
_LARGEST_POWER = 300

_DIGITS = r"(?:\d{1,3}(?:[ ,_\u00a0\u2009\u202f]\d{3})+(?![\d])|\d{1,60})(?:\.\d{1,60})?(?!\d)|\.\d{1,60}(?!\d)"
_NUMBER = re.compile(
    rf"""(?<![\w.])
    (?P<sign>[-−–+]?)\s?(?P<currency>[$€£]?)\s?(?P<sign2>[-−]?)
    (?:
        \\[dt]?frac\s*\{{\s*(?P<top>-?\d{{1,30}})\s*\}}\s*\{{\s*(?P<bottom>\d{{1,30}})\s*\}}
      | (?P<whole>{_DIGITS})
        (?:
            \s?\\[dt]?frac\s*\{{\s*(?P<mtop>\d{{1,30}})\s*\}}\s*\{{\s*(?P<mbottom>\d{{1,30}})\s*\}}
          | [ ](?P<ptop>\d{{1,9}})\s?[/⁄]\s?(?P<pbottom>\d{{1,9}})(?![\d.])
          | \s?[/⁄]\s?(?P<over>\d{{1,30}})(?![\d.]|/)
          | \s?(?P<vulgar>[½⅓⅔¼¾⅕⅛])
          | (?:\s?(?:[x×*·]|\\times|\\cdot)\s?10\s?(?:\^\s?\{{?|\*\*)(?P<power>[-−]?\d{{1,4}})\}}?)
          | (?:\s?(?:[x×*·]|\\times|\\cdot)\s?10(?P<super>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]{{1,4}}))
          | [eE](?P<exponent>[-+]?\d{{1,4}})(?!\w)
        )?
        (?![eE][-+]?\d)
      | (?P<alone>[½⅓⅔¼¾⅕⅛])
    )
    (?P<percent>\s?(?:\\?%|percent\b|per\ cent\b))?
    (?:\s?(?P<scale>hundred|thousand|million|billion|trillion)\b)?
    """,
    re.VERBOSE,
)
# A dollar sign is money unless the next one closes a formula: "$5 and $6" against "$5$ and $6$".
_CLOSING_DOLLAR = re.compile(r"[^$]{0,400}\$(?!\d)")
_UNIT = re.compile(r"\s{0,2}(?P<unit>[a-zA-Z]{1,12}|¢)(?![\w^])")


@dataclass(frozen=True)
class Quantity:
    """A number in a text.

    Attributes:
        value: the value as written; a percentage is not divided by 100.
        unit: the known unit in which it is given, "" if none; the number itself where it stands for a currency.
        start, end: its place in the text.
    """

    value: Fraction
    percent: bool
    unit: str
    start: int
    end: int

    def __str__(self) -> str:
        plain = (
            str(self.value.numerator)
            if self.value.denominator == 1
            else f"{float(self.value):g}"
            if _is_decimal(self.value)
            else str(self.value)
        )
        return f"{plain}%" if self.percent else f"{plain} {self.unit}".rstrip()


def quantities(text: str) -> list[Quantity]:
    """Returns every number in ``text``, in order. It ignores LaTeX spacing and separators inside numbers."""
    clean = _plain(text)
    found = []
    for match in _NUMBER.finditer(clean):
        value = _value(match)
        if value is not None:
            unit = _unit(match, clean)
            found.append(Quantity(value, match["percent"] is not None, unit, match.start(), match.end()))
    return found


def parse_quantity(text: str) -> Quantity | None:
    """Returns the only number in ``text``, with or without words around it; None if there is none or more than one."""
    found = quantities(text)
    return found[0] if len(found) == 1 else None


def same_quantity(given: Quantity, right: Quantity, *, absolute: Fraction, relative: Fraction) -> bool:
    """Says whether two quantities agree within a tolerance; the relative one is a share of the right value.

    Known units are converted and must be of one kind; a unit on one side only is ignored. A percentage agrees with its
    plain number and with a hundredth of it, unless both are percentages.
    """
    left, target = given.value, right.value
    if given.unit and right.unit:
        (kind, factor), (right_kind, right_factor) = _UNITS[given.unit], _UNITS[right.unit]
        if kind != right_kind:
            return False
        left, target = left * factor, target * right_factor
    lefts, targets = [left], [target]
    if given.percent != right.percent:
        (lefts if given.percent else targets).append((left if given.percent else target) / 100)
    return any(abs(a - b) <= max(absolute, relative * abs(b)) for a in lefts for b in targets)


def _plain(text: str) -> str:
    for written, plain in (("\\$", "$"), ("\\!", ""), ("{,}", ","), ("\\,", " "), ("\\;", " "), ("\\ ", " ")):
        text = text.replace(written, plain)
    # \frac12 is short for \frac{1}{2}.
    text = re.sub(r"\\([dt]?frac)\s?(\d)\s?(\d)(?!\d)", r"\\\1{\2}{\3}", text)
    return re.sub(r"\\(?:text|mathrm|mbox|textbf|mathbf)\s?\{([^{}]{0,80})\}", r"\1", text)


def _value(match: re.Match[str]) -> Fraction | None:
    try:
        value = _magnitude(match)
    except (ValueError, ZeroDivisionError):
        return None
    if value is None:
        return None
    if match["scale"] is not None:
        value *= _SCALES[match["scale"]]
    negative = (match["sign"] in ("-", "−", "–")) != (match["sign2"] != "")
    return -value if negative else value


def _magnitude(match: re.Match[str]) -> Fraction | None:
    if match["top"] is not None:
        return Fraction(int(match["top"]), int(match["bottom"]))
    if match["alone"] is not None:
        return Fraction(_VULGAR[match["alone"]])
    digits = re.sub(r"[^\d.]", "", match["whole"])
    if len(digits) > _LONGEST:
        return None
    value = Fraction(digits)
    if match["mtop"] is not None:
        return value + Fraction(int(match["mtop"]), int(match["mbottom"]))
    if match["ptop"] is not None:
        return value + Fraction(int(match["ptop"]), int(match["pbottom"]))
    if match["over"] is not None:
        return value / int(match["over"])
    if match["vulgar"] is not None:
        return value + Fraction(_VULGAR[match["vulgar"]])
    written = match["power"] or match["exponent"] or (match["super"] or "").translate(_SUPERSCRIPTS)
    if not written:
        return value
    power = int(written.replace("−", "-"))
    return value * Fraction(10) ** power if abs(power) <= _LARGEST_POWER else None


def _unit(match: re.Match[str], text: str) -> str:
    if match["currency"] == "$" and _CLOSING_DOLLAR.match(text, match.end()) is None:
        return "$"
    after = _UNIT.match(text, match.end())
    if after is None:
        return ""
    word = after["unit"].lower()
    for name in (word, word.removesuffix("es"), word.removesuffix("s")):
        if name in _UNITS:
            return name
    return ""


def _is_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


# Grading.

RELATIVE_TOLERANCE = Fraction(1, 10**6)
"""Default tolerance for a reference that is no whole number. A whole number must be met exactly."""

_HEDGE = re.compile(r"\s*(?:or|oder|/or)\s+(?:(?:maybe|perhaps|possibly|about)\s+)?", re.IGNORECASE)


def grade_numeric(task: Task, text: str) -> Graded:
    """Grades an answer as right if it is the reference's number.

    ``tolerance`` (absolute) and ``relative_tolerance`` in ``extra`` allow a difference.
    Raises: BadInput if the reference or a tolerance is not a number.
    """
    right, absolute, relative = sought_number(task)
    given = find_number(text)
    if given is None:
        return Graded(0.0, "The answer has no number.")
    if isinstance(given, str):
        return Graded(0.0, given)
    if same_quantity(given, right, absolute=absolute, relative=relative):
        return Graded(1.0, f"The number given is {given}.")
    return Graded(0.0, f"The number given is {given}, not {right}.")


def find_number(text: str) -> Quantity | str | None:
    """Returns the number in ``text``: the last one called the answer, else a bold one at the end, else the last one.

    Returns None if there is no number, and a sentence if the answer names two ("18 or 20").
    """
    text = tail(text)
    for _, mark in reversed(stated(text)):
        found = _of_mark(mark)
        if found is not None:
            return found
    for _, mark in reversed(bold(last_paragraph(text))):
        found = _of_mark(mark)
        if found is not None:
            return found
    everything = quantities(text)
    return everything[-1] if everything else None


def _of_mark(mark: str) -> Quantity | str | None:
    # In "3 × 6 = 18" the answer is behind the last equals sign.
    mark = re.split(r"(?<![<>!=])=|≈|\\approx", mark)[-1]
    found = quantities(mark)
    if not found:
        return None
    if len(found) > 1 and found[0].value != found[1].value:
        between = mark[found[0].end : found[1].start]
        if _HEDGE.fullmatch(between):
            return f"The answer names two numbers, {found[0]} and {found[1]}."
    return found[0]


def sought_number(task: Task) -> tuple[Quantity, Fraction, Fraction]:
    """Returns the reference with its absolute and relative tolerance. Raises: BadInput if one is not a number."""
    right = parse_quantity(task.reference)
    if right is None:
        raise BadInput(f"task {task.task_id}: the reference {task.reference!r} is not one number")
    absolute = _non_negative(task, "tolerance")
    relative = _non_negative(task, "relative_tolerance")
    if absolute is None and relative is None and right.value.denominator != 1:
        relative = RELATIVE_TOLERANCE
    return right, absolute or Fraction(0), relative or Fraction(0)


def _non_negative(task: Task, name: str) -> Fraction | None:
    value = task.extra.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise BadInput(f"task {task.task_id}: {name} must be a number of at least 0, not {value!r}")
    return Fraction(str(value))

"""Computes intervals of counted proportions and of measured amounts: of one alone, and of two measured in pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, isfinite, log, sqrt
from statistics import fmean

from conductor_core.errors import BadInput

_Z = 1.959963984540054
"""The normal quantile of 95 % intervals."""
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""Student's, for 1 to 10 degrees of freedom."""
MOST_PAIRS = 100_000
"""No search for a needed number of pairs goes further."""


@dataclass(frozen=True, slots=True)
class Proportion:
    """A proportion with the ends of its 95 % interval, all from 0 to 1."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of two outcomes, each of which happened or not, counted. A scaled table may hold fractions of pairs.

    Attributes:
        both, first, second, neither: in how many pairs both happened, only the first, only the second, none.
    """

    both: float = 0
    first: float = 0
    second: float = 0
    neither: float = 0

    @property
    def count(self) -> float:
        return self.both + self.first + self.second + self.neither

    def scaled(self, count: float) -> "Pairs":
        """Returns ``count`` pairs in the same proportions. Raises: BadInput if there is no pair."""
        if not self.count:
            raise BadInput("no pairs to scale")
        by = count / self.count
        return Pairs(self.both * by, self.first * by, self.second * by, self.neither * by)


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more often the first outcome happened than the second, with its 95 % interval, all from -1 to 1."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    def within(self, margin: float) -> bool:
        """Whether the interval lies within ``margin`` of zero."""
        return -margin <= self.low and self.high <= margin


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its 95 % interval; None: there are too few values to tell that end."""

    value: float
    low: float | None = None
    high: float | None = None


def wilson(happened: float, count: float) -> Proportion:
    """Returns a proportion with its interval after Wilson (1927). Raises: BadInput for none, or more than all."""
    if not 0 <= happened <= count or not count:
        raise BadInput(f"{happened:g} of {count:g} is not a proportion")
    rate = happened / count
    centre = (rate + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z / (1 + _Z**2 / count) * sqrt(rate * (1 - rate) / count + _Z**2 / (4 * count**2))
    return Proportion(rate, min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half)))


def paired_proportions(pairs: Pairs) -> Difference:
    """Returns the difference of two paired proportions, with its interval after Newcombe (1998), method 10.

    The interval joins the Wilson intervals of both and takes into account how far they go together. Raises: BadInput
    if there is no pair.
    """
    count = pairs.count
    first, second = wilson(pairs.both + pairs.first, count), wilson(pairs.both + pairs.second, count)
    together = _correlation(pairs)
    mean = first.rate - second.rate

    def reach(towards: float, away: float) -> float:
        return sqrt(max(0.0, towards**2 - 2 * together * towards * away + away**2))

    low = mean - reach(first.rate - first.low, second.high - second.rate)
    high = mean + reach(first.high - first.rate, second.rate - second.low)
    return Difference(mean, max(-1.0, low), min(1.0, high))


def against_none(happened: float, count: float) -> Difference:
    """Returns the difference to an outcome that cannot happen: the proportion itself. Raises: as ``wilson``."""
    found = wilson(happened, count)
    return Difference(found.rate, found.low, found.high)


def pairs_needed(pairs: Pairs, margin: float, *, never_second: bool = False) -> int | None:
    """Returns how many pairs would settle the question, if they came out in the same proportions as ``pairs``.

    It is settled if the interval of the difference leaves out zero, or lies within ``margin`` of it. None: more than
    ``MOST_PAIRS``.

    Args:
        never_second: the second outcome cannot happen, see ``against_none``. Then the first being possible settles
            nothing: the interval has to lie beyond ``margin``, or within it.

    Raises: BadInput if there is no pair.
    """

    def settled(count: int) -> bool:
        scaled = pairs.scaled(count)
        found = against_none(scaled.first, count) if never_second else paired_proportions(scaled)
        return (found.low > margin if never_second else found.clear) or found.within(margin)

    enough = 1
    while not settled(enough):
        enough *= 2
        if enough > MOST_PAIRS:
            return None
    too_few = enough // 2
    while enough - too_few > 1:
        between = (enough + too_few) // 2
        enough, too_few = (between, too_few) if settled(between) else (enough, between)
    return enough


def _correlation(pairs: Pairs) -> float:
    """Returns phi of the table, corrected for continuity as Newcombe does where the two go together; 0 if undefined."""
    yes_first, no_first = pairs.both + pairs.first, pairs.second + pairs.neither
    yes_second, no_second = pairs.both + pairs.second, pairs.first + pairs.neither
    spread = yes_first * no_first * yes_second * no_second
    if not spread:
        return 0.0
    crossed = pairs.both * pairs.neither - pairs.first * pairs.second
    if crossed > 0:
        crossed = max(crossed - pairs.count / 2, 0.0)
    return crossed / sqrt(spread)


# Amounts. Each is a formula, not a bootstrap: a page draws dozens of them, of ten thousand pairs each.


def mean_of(values: Sequence[float]) -> Estimate:
    """Returns the mean with Student's interval; without one for a single value. Raises: BadInput for none."""
    if not values:
        raise BadInput("no values to average")
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean)
    half = _student(len(values) - 1) * sqrt(_variance(values) / len(values))
    return Estimate(mean, mean - half, mean + half)


def ratio_of_means(firsts: Sequence[float], seconds: Sequence[float]) -> Estimate | None:
    """Returns how many times as much the second of each pair was on average: mean over mean.

    The interval is that of its logarithm by the delta method (Cochran 1977, 6.3), which takes the pairs into account.
    None: one of the means is not above zero, or there is no such number. Raises: BadInput for none.
    """
    first, second = mean_of(firsts).value, mean_of(seconds).value
    if first <= 0 or second <= 0:
        return None
    if not isfinite(ratio := second / first):
        return None
    if len(firsts) < 2:
        return Estimate(ratio)
    left = [own / second - other / first for own, other in zip(seconds, firsts, strict=True)]
    reach = _student(len(left) - 1) * sqrt(_variance(left) / len(left))
    return Estimate(ratio, _stretched(ratio, -reach), _stretched(ratio, reach))


def quantile(values: Sequence[float], share: float) -> Estimate:
    """Returns the value that ``share`` of the values do not exceed, with an interval of order statistics.

    It assumes nothing about how the values are spread. Raises: BadInput for none.
    """
    if not values:
        raise BadInput("no values to rank")
    ranked, count = sorted(values), len(values)
    reach = _Z * sqrt(count * share * (1 - share))
    low, high = floor(count * share - reach), ceil(count * share + reach) + 1  # ranks from 1
    return Estimate(
        ranked[max(1, ceil(count * share)) - 1],
        ranked[low - 1] if low >= 1 else None,
        ranked[high - 1] if high <= count else None,
    )


def ratio_of(first: Estimate, second: Estimate) -> Estimate | None:
    """Returns how many times as much the second is. None: one of them is not above zero, or there is no such number.

    The interval joins those of both, on the scale of logarithms, as ``paired_proportions`` does (Zou and Donner 2008).
    It takes them as independent: for pairs that go together it is rather too wide.
    """
    if first.value <= 0 or second.value <= 0:
        return None
    if not isfinite(ratio := second.value / first.value):
        return None

    def end(own: float | None, other: float | None, sign: int) -> float | None:
        if own is None or other is None or own <= 0 or other <= 0:
            return None
        return _stretched(ratio, sign * sqrt(log(own / second.value) ** 2 + log(other / first.value) ** 2))

    return Estimate(ratio, end(second.low, first.high, -1), end(second.high, first.low, 1))


def _stretched(ratio: float, by: float) -> float | None:
    """Returns a ratio moved on the scale of logarithms; None where no number is so small, or so large."""
    moved = ratio * exp(max(-700.0, min(by, 700.0)))
    return moved if moved > 0 and isfinite(moved) else None


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _student(freedom: int) -> float:
    """Returns Student's quantile of 95 % intervals, from one degree of freedom on."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    # Cornish and Fisher: right to a thousandth from here on.
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)

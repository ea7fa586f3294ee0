"""Computes intervals of counted proportions: one alone, and the difference of two that were counted in pairs."""

from dataclasses import dataclass
from math import sqrt

from conductor_core.errors import BadInput

_Z = 1.959963984540054
"""The normal quantile of 95 % intervals."""
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

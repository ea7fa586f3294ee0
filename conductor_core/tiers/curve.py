"""The curve of cost against quality: what each threshold would have done for the recorded requests."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt
from typing import Literal

from conductor_core.analysis.intervals import Difference, Pairs, Proportion, paired_proportions, wilson
from conductor_core.formats import dollars
from conductor_core.tiers.classifier import Outcome

Unit = Literal["usd", "tokens"]
MARGIN = 0.01
"""How far below the Conductor's the quality of a suggested threshold may be."""
ABOVE_ALL = 1.0
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Point:
    """Attributes:
    threshold: requests with this probability or more go to the cheap worker; None: no request does.
    easy: the share of these. cost: a request, in the curve's unit. quality: share of good answers.
    """

    threshold: float | None
    easy: float
    cost: float
    quality: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What one threshold would have done.

    Attributes:
        cost_low, cost_high: the 95 % interval of the mean cost of a request.
        against_conductor: how much higher the share of good answers is than the Conductor's alone, in pairs.
        all_conductor, all_cheap: the ends. mixed: the quality of a choice by chance at the same cost.
    """

    threshold: float
    count: int
    easy: float
    cost: float
    cost_low: float
    cost_high: float
    quality: Proportion
    against_conductor: Difference
    all_conductor: Point
    all_cheap: Point
    mixed: float

    @property
    def saved(self) -> float:
        """The share of the cost of sending everything to the Conductor; 0 if that is free."""
        return 1 - self.cost / self.all_conductor.cost if self.all_conductor.cost else 0.0


def unit_of(outcomes: Sequence[Outcome]) -> Unit:
    """Returns USD where every price is known and something was paid, else tokens."""
    prices = [price for each in outcomes for price in (each.cheap_usd, each.conductor_usd)]
    return "usd" if all(price is not None for price in prices) and any(prices) else "tokens"


def in_unit(cost: float, unit: Unit) -> str:
    """Returns a cost in words: ``$0.0123``, ``1,234 tokens``."""
    return dollars(cost) if unit == "usd" else f"{cost:,.0f} tokens"


def costs(outcome: Outcome, unit: Unit) -> tuple[float, float]:
    """Returns what the cheap worker's answer cost, and what the Conductor's did."""
    if unit == "usd":
        return outcome.cheap_usd or 0.0, outcome.conductor_usd or 0.0
    return float(outcome.cheap_tokens), float(outcome.conductor_tokens)


def curve(outcomes: Sequence[Outcome], unit: Unit) -> list[Point]:
    """Returns the points from all to the Conductor to all to the cheap worker, one for each probability."""
    count = len(outcomes)
    cost = sum(costs(each, unit)[1] for each in outcomes)
    good = sum(each.conductor_good for each in outcomes)
    points = [Point(None, 0.0, cost / count, good / count)]
    ordered = sorted(outcomes, key=lambda each: -each.probability)
    for place, each in enumerate(ordered, start=1):
        cheap, full = costs(each, unit)
        cost += cheap - full
        good += each.easy - each.conductor_good
        if place == count or ordered[place].probability != each.probability:
            points.append(Point(each.probability, place / count, max(cost, 0.0) / count, good / count))
    return points


def at(outcomes: Sequence[Outcome], threshold: float, unit: Unit) -> Standing:
    """Returns what a threshold would have done, with intervals. ``outcomes``: at least one."""
    count = len(outcomes)
    cheap = [each.probability >= threshold for each in outcomes]
    paid = [costs(each, unit)[0 if is_cheap else 1] for each, is_cheap in zip(outcomes, cheap, strict=True)]
    good = [each.easy if is_cheap else each.conductor_good for each, is_cheap in zip(outcomes, cheap, strict=True)]
    mean = sum(paid) / count
    reach = _Z * sqrt(sum((each - mean) ** 2 for each in paid) / max(count - 1, 1) / count)
    alone = [each.conductor_good for each in outcomes]
    pairs = Counter(zip(good, alone, strict=True))
    table = Pairs(*(pairs[each] for each in ((True, True), (True, False), (False, True), (False, False))))
    first = Point(None, 0.0, sum(costs(each, unit)[1] for each in outcomes) / count, sum(alone) / count)
    easy = sum(each.easy for each in outcomes) / count
    last = Point(0.0, 1.0, sum(costs(each, unit)[0] for each in outcomes) / count, easy)
    return Standing(
        threshold=threshold,
        count=count,
        easy=sum(cheap) / count,
        cost=mean,
        cost_low=max(mean - reach, 0.0),
        cost_high=mean + reach,
        quality=wilson(sum(good), count),
        against_conductor=paired_proportions(table),
        all_conductor=first,
        all_cheap=last,
        mixed=mixed(first, last, mean),
    )


def mixed(first: Point, last: Point, cost: float) -> float:
    """Returns the quality of sending requests to either by chance, at a mean cost."""
    if first.cost == last.cost:
        return max(first.quality, last.quality)
    share = min(max((first.cost - cost) / (first.cost - last.cost), 0.0), 1.0)
    return first.quality + share * (last.quality - first.quality)


def suggested(outcomes: Sequence[Outcome], unit: Unit) -> float:
    """Returns the threshold of the cheapest point that is at most ``MARGIN`` below the Conductor's quality.

    Of the numbers that part the outcomes in the same way it is one with few decimals, so that it can be copied.
    """
    points = curve(outcomes, unit)
    enough = [each for each in points if each.quality >= points[0].quality - MARGIN]
    found = min(enough, key=lambda each: (each.cost, -each.quality))
    if found.threshold is None:
        return ABOVE_ALL
    below = max((each.probability for each in outcomes if each.probability < found.threshold), default=0.0)
    shorter = (floor(found.threshold * 10**decimals) / 10**decimals for decimals in range(2, 12))
    return next((each for each in shorter if below < each <= found.threshold), found.threshold)


def went_wrong(outcomes: Sequence[Outcome], threshold: float) -> list[Outcome]:
    """Returns the requests that would have gone to the cheap worker though only the Conductor's answer was good."""
    wrong = [each for each in outcomes if each.probability >= threshold and not each.easy and each.conductor_good]
    return sorted(wrong, key=lambda each: -each.probability)

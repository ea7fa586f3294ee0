"""Intervals of proportions and amounts: their ends, what they cover, and how many pairs would settle a question."""

from math import comb, exp, log, sqrt
from random import Random
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from conductor_core.analysis.intervals import (
    Estimate,
    Pairs,
    against_none,
    mean_of,
    paired_proportions,
    pairs_needed,
    quantile,
    ratio_of,
    ratio_of_means,
    wilson,
)
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.statistics import mean_interval

COUNTS = st.integers(0, 30)


@st.composite
def tables(draw: st.DrawFn) -> Pairs:
    found = Pairs(draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(COUNTS))
    return found if found.count else Pairs(neither=1)


@given(st.integers(1, 200), st.data())
def test_the_interval_is_wilsons(count: int, data: st.DataObject) -> None:
    happened = data.draw(st.integers(0, count))
    found, right = wilson(happened, count), binomtest(happened, count).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((right.low, right.high))


@given(tables())
def test_a_difference_turned_round_is_the_same_with_the_other_sign(pairs: Pairs) -> None:
    found = paired_proportions(pairs)
    turned = paired_proportions(Pairs(pairs.both, pairs.second, pairs.first, pairs.neither))
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-found.mean, -found.high, -found.low))
    assert -1 <= found.low <= found.mean <= found.high <= 1


@pytest.mark.parametrize(("first", "second"), [(0.9, 0.4), (0.5, 0.5), (0.8, 0.7), (0.95, 0.05), (0.2, 0.1)])
def test_the_interval_covers_the_true_difference_about_as_often_as_it_says(first: float, second: float) -> None:
    """Adds up all tables of 10 pairs of independent outcomes in which the interval holds the truth."""
    count, covered = 10, 0.0
    chances = (first * second, first * (1 - second), (1 - first) * second, (1 - first) * (1 - second))
    for both in range(count + 1):
        for only_first in range(count + 1 - both):
            for only_second in range(count + 1 - both - only_first):
                neither = count - both - only_first - only_second
                found = paired_proportions(Pairs(both, only_first, only_second, neither))
                if found.low <= first - second <= found.high:
                    ways = comb(count, both) * comb(count - both, only_first)
                    ways *= comb(count - both - only_first, only_second)
                    weight = float(ways)
                    for chance, times in zip(chances, (both, only_first, only_second, neither), strict=True):
                        weight *= chance**times
                    covered += weight
    assert 0.93 <= covered <= 1


def test_an_outcome_that_cannot_happen_leaves_the_proportion_itself() -> None:
    found, alone = against_none(9, 10), wilson(9, 10)
    assert (found.mean, found.low, found.high) == (alone.rate, alone.low, alone.high)


@given(tables(), st.booleans())
def test_the_needed_pairs_settle_and_one_fewer_does_not(pairs: Pairs, never_second: bool) -> None:
    if never_second:
        pairs = Pairs(first=pairs.both + pairs.first, neither=pairs.second + pairs.neither)
    needed = pairs_needed(pairs, 0.1, never_second=never_second)

    def settled(count: int) -> bool:
        scaled = pairs.scaled(count)
        found = against_none(scaled.first, count) if never_second else paired_proportions(scaled)
        return (found.low > 0.1 if never_second else found.clear) or found.within(0.1)

    assert needed is not None
    assert settled(needed)
    assert needed == 1 or not settled(needed - 1)


def test_more_than_all_and_none_at_all_are_refused() -> None:
    for happened, count in ((3, 2), (0, 0), (-1, 4)):
        with pytest.raises(BadInput, match="not a proportion"):
            wilson(happened, count)
    with pytest.raises(BadInput, match="no pair"):
        pairs_needed(Pairs(), 0.1)


# Amounts.


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=60))
def test_the_interval_of_a_mean_is_students(values: list[float]) -> None:
    found = mean_of(values)
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / sqrt(len(values))
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), rel=2e-3, abs=1e-3 * half)


def test_the_interval_of_a_mean_is_near_that_of_a_bootstrap() -> None:
    rng = Random(3)
    values = [rng.lognormvariate(3, 1) for _ in range(2000)]
    found, resampled = mean_of(values), mean_interval(values)
    width = resampled.high - resampled.low
    assert (found.low, found.high) == pytest.approx((resampled.low, resampled.high), abs=0.08 * width)
    assert mean_of([4.0]) == Estimate(4.0), "one value tells nothing of the others"


def test_the_ratio_of_means_holds_the_true_one_in_95_of_100_samples() -> None:
    rng, held, samples = Random(5), 0, 400
    for _ in range(samples):
        firsts = [rng.lognormvariate(0, 1) for _ in range(80)]
        seconds = [1.8 * first * rng.lognormvariate(0, 0.3) for first in firsts]
        found = ratio_of_means(firsts, seconds)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.8 * exp(0.3**2 / 2) <= found.high
    assert held / samples == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_the_interval_of_a_quantile_holds_the_true_one_in_95_of_100_samples(share: float) -> None:
    rng, held, samples = Random(7), 0, 400
    for _ in range(samples):
        found = quantile([rng.random() for _ in range(150)], share)
        low = 0.0 if found.low is None else found.low
        held += low <= share <= (1.0 if found.high is None else found.high)
    assert held / samples >= 0.94


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.05, 0.95))
def test_a_quantile_is_a_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found.value in values
    assert sum(value <= found.value for value in values) >= share * len(values) - 1e-6
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high


def test_the_ratio_of_two_figures_lies_in_its_interval_and_is_unknown_of_nothing() -> None:
    found = ratio_of(Estimate(1.0, 0.8, 1.25), Estimate(2.0, 1.9, 2.1))
    assert found is not None
    assert found.value == 2.0
    assert found.low == pytest.approx(2 * exp(-sqrt(log(1.9 / 2) ** 2 + log(1.25) ** 2)))
    assert found.high == pytest.approx(2 * exp(sqrt(log(2.1 / 2) ** 2 + log(0.8) ** 2)))
    assert ratio_of(Estimate(0.0, 0.0, 1.0), Estimate(2.0, 1.0, 3.0)) is None
    assert ratio_of(Estimate(1.0), Estimate(2.0)) == Estimate(2.0)

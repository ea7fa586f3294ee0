"""Intervals of counted proportions: their ends, what they cover, and how many pairs would settle a question."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from conductor_core.analysis.intervals import Pairs, against_none, paired_proportions, pairs_needed, wilson
from conductor_core.errors import BadInput

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

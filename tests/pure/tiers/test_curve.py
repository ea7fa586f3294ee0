"""The curve: every threshold as counted one by one, its ends, and what a chosen threshold would have done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.tiers.classifier import Outcome
from conductor_core.tiers.curve import MARGIN, at, costs, curve, mixed, suggested, unit_of, went_wrong
from tests.support.tiers import outcomes_of, row

CHANCES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.25, 0.7, 1.0]), st.booleans(), st.booleans()), min_size=1, max_size=25
)


def counted(outcomes: list[Outcome], threshold: float) -> tuple[float, float, float]:
    """Share of easy ones, cost and quality, one by one."""
    cost = good = easy = 0.0
    for each in outcomes:
        is_easy = each.probability >= threshold
        easy += is_easy
        cost += costs(each, "usd")[0 if is_easy else 1]
        good += each.easy if is_easy else each.conductor_good
    return easy / len(outcomes), cost / len(outcomes), good / len(outcomes)


@given(CHANCES)
def test_each_point_is_what_one_would_count(chances: list[tuple[float, bool, bool]]) -> None:
    outcomes = outcomes_of(chances)
    points = curve(outcomes, "usd")
    assert (points[0].threshold, points[0].easy, points[-1].easy) == (None, 0, 1)
    assert len({each.threshold for each in points}) == len(points)
    for point in points[1:]:
        assert point.threshold is not None
        assert (point.easy, point.cost, point.quality) == pytest.approx(counted(outcomes, point.threshold))
        found = at(outcomes, point.threshold, "usd")
        assert (found.easy, found.cost, found.quality.rate) == pytest.approx((point.easy, point.cost, point.quality))
        assert found.quality.low <= found.quality.rate <= found.quality.high
        assert found.against_conductor.mean == pytest.approx(point.quality - points[0].quality)


@given(CHANCES)
def test_the_suggested_threshold_is_hardly_worse_than_the_conductor(chances: list[tuple[float, bool, bool]]) -> None:
    outcomes = outcomes_of(chances)
    points = curve(outcomes, "usd")
    threshold = suggested(outcomes, "usd")
    if threshold < 1 or any(each.probability == 1 for each in outcomes):
        found = at(outcomes, threshold, "usd")
        assert found.quality.rate >= points[0].quality - MARGIN or found.easy == counted(outcomes, 1.0)[0]
    if 0 < threshold < 1:
        assert (counted(outcomes, threshold)[0]) in [each.easy for each in points], "it parts as a point does"
    cheaper = [each for each in points if each.quality >= points[0].quality - MARGIN]
    assert min(each.cost for each in cheaper) <= points[0].cost


def test_a_suggested_threshold_has_few_decimals_and_goes_no_further_down() -> None:
    outcomes = outcomes_of([(0.9781234, True, True)] * 3 + [(0.19, False, True)])
    assert suggested(outcomes, "usd") == 0.97
    outcomes = outcomes_of([(0.9781234, True, True)] * 3 + [(0.9779, False, True)])
    assert suggested(outcomes, "usd") == 0.978


def test_chance_lies_on_the_line_between_the_ends() -> None:
    points = curve(outcomes_of([(0.9, True, True), (0.1, False, True)]), "usd")
    first, last = points[0], points[-1]
    assert mixed(first, last, first.cost) == first.quality
    assert mixed(first, last, last.cost) == pytest.approx(last.quality)
    assert mixed(first, last, (first.cost + last.cost) / 2) == pytest.approx((first.quality + last.quality) / 2)


def test_tokens_are_the_unit_where_a_price_is_unknown_or_nothing_was_paid() -> None:
    paid, free, unknown = (row(1, "", easy=True, usd=usd).outcome for usd in (0.1, 0.0, None))
    assert [unit_of(each) for each in ([paid], [paid, free], [free], [paid, unknown])] == [
        "usd", "usd", "tokens", "tokens",
    ]  # fmt: skip


def test_wrong_answers_are_those_that_the_conductor_had_right() -> None:
    outcomes = outcomes_of([(0.9, False, True), (0.95, False, False), (0.99, True, True), (0.5, False, True)])
    assert [each.probability for each in went_wrong(outcomes, 0.8)] == [0.9]
    assert [each.probability for each in went_wrong(outcomes, 0.0)] == [0.9, 0.5]

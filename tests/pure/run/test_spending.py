"""How a cost is written, alike wherever it is told."""

import pytest

from conductor_core.run.costs import Cost

WRITTEN = [
    (Cost(0.0, 0.0), "$0"),
    (Cost(0.0000004, 0.0000004), "<$0.000001"),
    (Cost(0.000273, 0.000273), "$0.000273"),
    (Cost(0.0123, 0.0123), "$0.0123"),
    (Cost(1234.5, 1234.5), "$1,234.50"),
    (Cost(None, 0.0123), "at least $0.0123"),
    (Cost(None, 0.0), "unknown"),
]


@pytest.mark.parametrize(("cost", "written"), WRITTEN)
def test_what_is_unknown_is_never_nothing_and_what_is_known_is_a_bound(cost: Cost, written: str) -> None:
    assert str(cost) == written
    assert cost.at_least is (cost.usd is None)


def test_a_sum_with_an_unknown_part_keeps_what_is_known() -> None:
    assert sum([Cost(0.5, 0.5), Cost(None, 0.25), Cost()], Cost()) == Cost(None, 0.75)
    assert sum([Cost(0.5, 0.5), Cost(0.25, 0.25)], Cost()) == Cost(0.75, 0.75)


def test_where_nothing_says_that_it_is_a_cost_an_unknown_one_says_so() -> None:
    assert [Cost(None, 0).in_line, Cost(None, 0.5).in_line, Cost().in_line] == [
        "cost unknown",
        "at least $0.5000",
        "$0",
    ]

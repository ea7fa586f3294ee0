"""Intervals by resampling, against what is known without it."""

from math import sqrt
from random import Random

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation import statistics
from conductor_core.lab.evaluation.statistics import mean_interval, paired_difference


def spread(count: int, seed: int = 3) -> list[float]:
    """``count`` values from 0 to 1, all different."""
    rng = Random(seed)
    return [rng.random() for _ in range(count)]


def test_the_mean_is_the_mean() -> None:
    interval = mean_interval([0.0, 1.0, 1.0, 0.5])
    assert interval.mean == 0.625
    assert interval.low < 0.625 < interval.high


def test_what_never_varies_has_no_width() -> None:
    interval = mean_interval([0.25] * 7)
    assert (interval.mean, interval.low, interval.high) == (0.25, 0.25, 0.25)


def test_the_interval_of_a_share_is_near_the_normal_one() -> None:
    """Of 400 tasks 300 right: sqrt(p (1 - p) / n) = 0.02165, of which 1.96 to each side."""
    interval = mean_interval([1.0] * 300 + [0.0] * 100)
    half = 1.96 * sqrt(0.75 * 0.25 / 400)
    assert interval.low == pytest.approx(0.75 - half, abs=0.004)
    assert interval.high == pytest.approx(0.75 + half, abs=0.004)


def test_the_same_values_and_seed_give_the_same_interval() -> None:
    values = spread(50)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values) == mean_interval(values, seed=0), "figures of reports name no seed"


def test_a_difference_is_taken_task_by_task() -> None:
    """One is better by 0.1 on each task, whatever the task: nothing about that is unsure."""
    hard = spread(40)
    difference = paired_difference([value + 0.1 for value in hard], hard)
    assert difference.mean == pytest.approx(0.1)
    assert difference.low == pytest.approx(0.1)
    assert difference.high == pytest.approx(0.1)


def test_pairing_is_narrower_than_two_intervals_apart() -> None:
    rng = Random(7)
    others = [float(rng.random() < 0.5) for _ in range(200)]
    values = [1.0 if rng.random() < 0.2 else other for other in others]
    paired = paired_difference(values, others)
    apart = mean_interval(values), mean_interval(others)
    assert paired.mean == pytest.approx(apart[0].mean - apart[1].mean)
    assert paired.high - paired.low < (apart[0].high - apart[0].low + apart[1].high - apart[1].low) * 0.7


def test_a_difference_by_hand() -> None:
    """Differences 1, 0, 0, 1: resampled means are of a binomial with 4 draws of 1/2, whose 2.5 % points are 0 and 1."""
    difference = paired_difference([1, 1, 0, 1], [0, 1, 0, 0])
    assert (difference.mean, difference.low, difference.high) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("values", [[], ()])
def test_nothing_has_no_mean(values: list[float]) -> None:
    with pytest.raises(BadInput, match=r"^no outcomes to average$"):
        mean_interval(values)


def test_a_difference_needs_the_same_tasks() -> None:
    with pytest.raises(BadInput, match="2 and 3"):
        paired_difference([1, 0], [1, 0, 1])


def test_another_seed_draws_other_resamples() -> None:
    values = spread(50)
    assert mean_interval(values, seed=1) != mean_interval(values, seed=2)


def test_so_many_resamples_are_drawn_that_the_seed_hardly_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    values = spread(100)

    def unrest() -> float:
        """How far the lower end wanders from seed to seed, in widths of the interval."""
        found = [mean_interval(values, seed=seed) for seed in range(12)]
        lows = [interval.low for interval in found]
        return (max(lows) - min(lows)) / (found[0].high - found[0].low)

    assert unrest() < 0.05
    monkeypatch.setattr(statistics, "RESAMPLES", 99)
    assert unrest() > 0.1

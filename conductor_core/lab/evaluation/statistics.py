"""Computes intervals of figures by a bootstrap over tasks. They also cover the workers' chance on each task."""

from collections.abc import Sequence
from dataclasses import dataclass

from conductor_core.errors import BadInput

CONFIDENCE = 0.95
RESAMPLES = 3999
_AT_ONCE = 500
"""Number of resamples held in memory at a time."""


@dataclass(frozen=True, slots=True)
class Interval:
    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Returns the mean of ``values`` (one per task) with a percentile bootstrap interval. Raises: BadInput for none."""
    import numpy as np  # only for figures, so that the command line starts fast

    if not values:
        raise BadInput("no outcomes to average")
    drawn = np.asarray(values, dtype=float)
    mean = float(drawn.mean())
    if bool((drawn == drawn[0]).all()):
        return Interval(mean, mean, mean)
    rng = np.random.default_rng(seed)
    means: list[float] = []
    while len(means) < RESAMPLES:
        resamples = rng.integers(0, len(drawn), (min(_AT_ONCE, RESAMPLES - len(means)), len(drawn)))
        means.extend(drawn[resamples].mean(axis=1).tolist())
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(mean, float(low), float(high))


def paired_difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Returns the mean of ``values - others``. It resamples both together, so that a task's effect on both cancels.

    Args:
        values, others: values of the same tasks in the same order.

    Raises: BadInput if there are none, or their numbers differ.
    """
    if len(values) != len(others):
        raise BadInput(f"a paired difference needs the same tasks: {len(values)} and {len(others)} were given")
    return mean_interval([own - other for own, other in zip(values, others, strict=True)])

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
    return _bootstrap(values, seed=seed)


def paired_difference(values: Sequence[float], others: Sequence[float], *, seed: int = 0) -> Interval:
    """Returns the mean of ``values - others``. It resamples both together, so that a task's effect on both cancels.

    Args:
        values, others: values of the same tasks in the same order.

    Raises: BadInput if there are none, or their numbers differ.
    """
    if len(values) != len(others):
        raise BadInput(f"a paired difference needs the same tasks: {len(values)} and {len(others)} were given")
    return _bootstrap(values, others, seed=seed)


def _bootstrap(*samples: Sequence[float], seed: int) -> Interval:
    import numpy as np  # only for figures, so that the command line starts fast

    if not samples[0]:
        raise BadInput("no outcomes to average")
    # A paired resampling takes the same tasks from both samples, so it equals a resampling of their differences.
    drawn = np.asarray(samples[0], dtype=float)
    if len(samples) == 2:
        drawn = drawn - np.asarray(samples[1], dtype=float)
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

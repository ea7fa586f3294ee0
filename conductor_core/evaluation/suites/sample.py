"""Chooses which tasks are asked, and in which order."""

from collections.abc import Sequence
from random import Random

from conductor_core.evaluation.tasks import Task


def sample(tasks: Sequence[Task], *, limit: int | None, seed: int) -> tuple[Task, ...]:
    """Returns ``limit`` tasks (None: all) in an order drawn by ``seed``. A shorter sample begins a longer one."""
    order = list(tasks)
    Random(seed).shuffle(order)  # noqa: S311 - a sample, not a secret
    return tuple(order if limit is None else order[:limit])

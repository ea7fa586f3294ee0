"""Figures as servers report them, which may be of any type and size."""

from typing import Any, TypeGuard

MOST_TOKENS = 10**12
MOST_USD = 1e9
"""Of one call. Beyond these a figure is a mistake, and sums of it would not fit where they are kept."""


def is_count(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is a number of tokens; a bool, a fraction, a negative or an absurd one is not."""
    return type(value) is int and 0 <= value <= MOST_TOKENS


def usd(value: Any) -> float | None:
    """``value`` as a sum of money, None if it is none."""
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_USD else None

"""Figures as servers report them, which may be of any type and size."""

from collections.abc import Mapping
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


def chat_tokens(reported: Mapping[str, Any]) -> tuple[int, int] | None:
    """Input and output tokens by the ``usage`` of a chat completion, None if it is none."""
    given, made, both = (reported.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not is_count(given) or not is_count(made):
        return None
    if is_count(both):
        # Google leaves thinking out of completion_tokens and puts it into the total alone.
        made = max(made, both - given)
    return given, made

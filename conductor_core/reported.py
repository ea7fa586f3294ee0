"""Checks figures that servers report, which may be of any type and size."""

from collections.abc import Mapping
from typing import Any, TypeGuard

MOST_TOKENS = 10**12
MOST_USD = 1e9
"""The most of one call. A higher figure is a mistake, and sums of it would not fit into the database."""


def is_count(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is a number of tokens: no bool, no fraction, not negative and not absurdly large."""
    return type(value) is int and 0 <= value <= MOST_TOKENS


def usd(value: Any) -> float | None:
    """Returns ``value`` as an amount of USD, or None if it is none."""
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_USD else None


def chat_tokens(reported: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns input and output tokens from the ``usage`` of a chat completion, or None if it has none."""
    given, made, both = (reported.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not is_count(given) or not is_count(made):
        return None
    if is_count(both):
        # Google counts thinking only in the total, not in completion_tokens.
        made = max(made, both - given)
    return given, made

"""Tokens and USD: checks figures that servers report, of any type and size, and estimates what nobody has counted."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from conductor_core.chat.messages import Content, ImagePart, Message, images_in, in_words

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


def estimate_tokens(text: str) -> int:
    """Estimates the tokens of ``text`` as one per four characters; 0 only for an empty text."""
    return tokens_of(len(text))


def estimate_input_tokens(messages: tuple[Message, ...]) -> int:
    """Estimates the tokens of a prompt, with four per message for its role and separators."""
    return sum(_content_tokens(message.content) + 4 for message in messages)


def _content_tokens(content: Content) -> int:
    if isinstance(content, str):
        return estimate_tokens(content)
    words = tuple(part for part in content if not isinstance(part, ImagePart))
    return estimate_tokens(in_words(words)) + sum(image.tokens for image in images_in(content))


def tokens_of(characters: int) -> int:
    """Estimates the tokens of a text of so many characters."""
    return -(-characters // 4)

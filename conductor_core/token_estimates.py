"""Estimates tokens that nobody has counted."""

from conductor_core.chat import Message


def estimate_tokens(text: str) -> int:
    """Estimates the tokens of ``text`` as one per four characters; 0 only for an empty text."""
    return tokens_of(len(text))


def estimate_input_tokens(messages: tuple[Message, ...]) -> int:
    """Estimates the tokens of a prompt, with four per message for its role and separators."""
    return sum(estimate_tokens(message.content) + 4 for message in messages)


def tokens_of(characters: int) -> int:
    """Estimates the tokens of a text of so many characters."""
    return -(-characters // 4)

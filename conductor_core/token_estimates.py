"""Tokens of a text, where nobody has counted them."""

from conductor_core.chat import Message


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, by the rule of thumb of four characters a token; 0 only for no text."""
    return tokens_of(len(text))


def estimate_input_tokens(messages: tuple[Message, ...]) -> int:
    """Tokens of a prompt; four more for each message, for its role and separators."""
    return sum(estimate_tokens(message.content) + 4 for message in messages)


def tokens_of(characters: int) -> int:
    """Tokens of a text of so many characters, by the same rule."""
    return -(-characters // 4)

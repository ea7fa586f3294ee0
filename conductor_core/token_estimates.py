"""Estimates tokens that nobody has counted."""

from conductor_core.chat import Message
from conductor_core.message_parts import Content, ImagePart, images_in, in_words


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

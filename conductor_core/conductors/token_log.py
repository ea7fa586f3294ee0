"""Reads ``logprobs`` of a completion in OpenAI's form, and finds its tokens in the text.

A server tells each token with the likeliest others: ``{"content": [{"token", "logprob", "bytes", "top_logprobs"}]}``.
Some tell tokens that are no part of the text as well, such as those of a reasoning before it or of an end mark. So all
tokens are joined, and the text is looked for in there. If it is not there, nothing is told.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from conductor_core.chat import TokenChoice

ASKED = {"logprobs": True, "top_logprobs": 8}
"""What a request says to be told: as many tokens as a pool of seven workers and the Conductor can be meant by. OpenAI
allows 20, and other servers fewer."""
BYTES_PER_TOKEN = 2_000
"""Room for what a server tells of one token."""
CERTAIN = 0.9995
MOST_TOKENS = 100_000
MOST_CHOICES = 512
_MOST_OPTIONS = 32
_LONGEST_TOKEN = 1_000


class _Told(NamedTuple):
    """A token that was written, and all that were likely there, with their probabilities."""

    picked: bytes
    options: tuple[tuple[bytes, float], ...]


class TokenLog:
    """Gathers what a server tells of its tokens. What is in no form that we know is left out."""

    def __init__(self) -> None:
        self._tokens: list[_Told] = []
        self._broken = False

    def feed(self, logprobs: Any) -> None:
        """Takes the ``logprobs`` of a part of the completion."""
        content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        if not isinstance(content, list) or self._broken:
            return
        for item in content:
            told = _token(item)
            if told is None or len(self._tokens) >= MOST_TOKENS:
                # Without one token, nobody knows where the next ones are.
                self._broken = True
                self._tokens.clear()
                return
            self._tokens.append(told)

    def choices(self, text: str) -> tuple[TokenChoice, ...]:
        """Returns the tokens of ``text`` that could have been others; none if the text is not in what they say."""
        written = text.encode(errors="replace")
        joined = b"".join(told.picked for told in self._tokens)
        begin = joined.find(written)
        if not written or begin < 0 or joined.find(written, begin + 1) >= 0:
            return ()
        found: list[TokenChoice] = []
        at, characters = 0, 0
        for picked, options in self._tokens:
            inside = begin <= at < begin + len(written)
            if inside and options and options[0][1] < CERTAIN and len(found) < MOST_CHOICES:
                told = tuple((_text(token), round(probability, 6)) for token, probability in options)
                found.append(TokenChoice(at=characters, picked=_text(picked), options=told))
            if inside or at >= begin:
                characters += _characters(picked)
            elif at + len(picked) > begin:  # the text begins inside this token
                characters += _characters(picked[begin - at :])
            at += len(picked)
        return tuple(found)


def _token(item: Any) -> _Told | None:
    """Reads a token; None for any other form, and for probabilities that are none."""
    picked = _option(item)
    if picked is None:
        return None
    others = item.get("top_logprobs")
    options = {picked[0]: picked[1]}
    for other in (others if isinstance(others, list) else [])[:_MOST_OPTIONS]:
        option = _option(other)
        if option is None:
            return None
        options.setdefault(*option)
    if sum(options.values()) > 1.01:
        return _Told(picked[0], ())
    return _Told(picked[0], tuple(sorted(options.items(), key=lambda option: -option[1])))


def _option(item: Any) -> tuple[bytes, float] | None:
    if not isinstance(item, Mapping):
        return None
    token, told, raw = item.get("token"), item.get("logprob"), item.get("bytes")
    if not isinstance(token, str) or len(token) > _LONGEST_TOKEN or isinstance(told, bool):
        return None
    if told is not None and not isinstance(told, int | float):
        return None
    # Servers write an impossible token as null or as a large negative number; rounding may put a certain one above 0.
    # A whole number may be too large for a float. It can be compared all the same.
    if told is None or (isinstance(told, float) and math.isnan(told)):
        probability = 0.0
    else:
        probability = math.exp(max(-100.0, min(0.0, told)))
    return _bytes(raw) or token.encode(errors="replace"), probability


def _bytes(raw: Any) -> bytes:
    """Returns the bytes of a token; none where the server does not tell them. A token may be half a character."""
    if not isinstance(raw, list) or len(raw) > 4 * _LONGEST_TOKEN:
        return b""
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 256 for each in raw):
        return b""
    return bytes(raw)


def _text(token: bytes) -> str:
    return token.decode(errors="replace")


def _characters(part: bytes) -> int:
    """Returns how many characters begin in these bytes of UTF-8."""
    return sum(byte & 0xC0 != 0x80 for byte in part)

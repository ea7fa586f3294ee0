"""What the classifier reads of a request: hashed n-grams of words and characters, and a few counts. Needs numpy alone.

A request is read in well under a millisecond, however long it is: of a long text only the beginning and the end count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log1p
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conductor_core.chat.messages import ImagePart, Message, TextPart, parts_of
from conductor_core.run.request import WhatIsAsked

FORM: Literal[1] = 1
"""Another form reads the same text as other numbers, so that files fitted with the former one are refused."""
HASHED = 4096
"""Places that the words of a text share; as many again are for its characters."""
SIGNS = (
    "length", "lines", "digits", "numbers", "longest number", "capitals", "beyond ASCII", "code", "fences", "questions",
    "earlier turns", "earlier length",
)  # fmt: skip
COUNT = 2 * HASHED + len(SIGNS)
MOST_TURNS, MOST_EARLIER_CHARACTERS = 4, 8000
"""A conversation with more before the task is long."""
_FIRST, _LAST = 3000, 1000
_CODE = frozenset(b"{}[]();=<>|&_#\\/")
_NGRAMS = (3, 4, 5)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_STEP = 0x100000001B3


@dataclass(frozen=True, slots=True)
class Features:
    """The columns that are not 0, ascending, and their values."""

    columns: NDArray[np.int64]
    values: NDArray[np.float64]


def reason_for_conductor(asked: WhatIsAsked) -> str:
    """Returns why a request goes to the Conductor whatever its text (``TIER_REASONS``); empty: its text decides."""
    before = [part for turn in asked.turns_before for part in parts_of(turn.content)]
    if asked.tools or any(not isinstance(part, TextPart | ImagePart) for part in before):
        return "tools"
    if asked.images or any(isinstance(part, ImagePart) for part in before):
        return "images"
    if asked.rules.form != "text":
        return "format"
    if len(asked.turns_before) > MOST_TURNS or _length(asked.turns_before) > MOST_EARLIER_CHARACTERS:
        return "conversation"
    return ""


def features(text: str, before: Sequence[Message] = ()) -> Features:
    """Reads the task of a request, and how much came before it."""
    part = text if len(text) <= _FIRST + _LAST else f"{text[:_FIRST]} {text[-_LAST:]}"
    exact = np.frombuffer(part.encode("utf-8", "replace"), np.uint8)
    lower = np.frombuffer(part.lower().encode("utf-8", "replace"), np.uint8)
    is_digit = (lower >= 48) & (lower <= 57)
    folded = np.where(is_digit, np.uint8(48), lower)  # which number it is seldom decides
    counted = np.concatenate([_counts(_words(folded)), _counts(_characters(folded)), _signs(text, exact, before)])
    columns = np.flatnonzero(counted)
    return Features(columns, counted[columns])


def _length(turns: Sequence[Message]) -> int:
    return sum(len(turn.text) for turn in turns)


def _counts(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Returns the logarithms of how often each place was met, as a vector of length 1."""
    places = ((hashes * _ODD) >> np.uint64(52)).astype(np.int64)
    counts = np.log1p(np.bincount(places, minlength=HASHED).astype(np.float64))
    return counts / max(float(np.linalg.norm(counts)), 1e-12)


@cache
def _powers() -> NDArray[np.uint64]:
    return np.array([pow(_STEP, place, 2**64) for place in range(64)], dtype=np.uint64)


def _words(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hashes each word, and each two that follow one another."""
    inside = ((text >= 97) & (text <= 122)) | (text == 48) | (text >= 128)
    starts = np.flatnonzero(inside & ~np.concatenate([[False], inside[:-1]]))
    if not len(starts):
        return np.zeros(0, np.uint64)
    place = np.arange(len(text)) - starts[np.maximum(np.searchsorted(starts, np.arange(len(text)), "right") - 1, 0)]
    weighed = np.where(inside, (text.astype(np.uint64) + np.uint64(1)) * _powers()[np.clip(place, 0, 63)], np.uint64(0))
    words = np.add.reduceat(weighed, starts)
    return np.concatenate([words, words[:-1] * np.uint64(31) + words[1:] * np.uint64(_STEP) + np.uint64(7)])


def _characters(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    wide, found = text.astype(np.uint64), []
    for size in _NGRAMS:
        if len(text) >= size:
            hashed = np.full(len(text) - size + 1, size, np.uint64)
            for place in range(size):
                hashed = hashed * np.uint64(_STEP) + wide[place : len(text) - size + 1 + place]
            found.append(hashed)
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _signs(text: str, exact: NDArray[np.uint8], before: Sequence[Message]) -> NDArray[np.float64]:
    """Returns the counts in the order of ``SIGNS``, each about 0 to 1."""
    size = max(len(exact), 1)
    is_digit = (exact >= 48) & (exact <= 57)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_digit.view(np.int8), [0]])))
    lengths = edges[1::2] - edges[::2]
    code = np.isin(exact, np.array(sorted(_CODE), np.uint8)).sum()
    return np.array(
        [
            log1p(len(text)) / 10,
            log1p(int((exact == 10).sum())) / 5,
            is_digit.sum() / size,
            log1p(len(lengths)) / 3,
            log1p(int(lengths.max()) if len(lengths) else 0) / 3,
            ((exact >= 65) & (exact <= 90)).sum() / size,
            (exact >= 128).sum() / size,
            code / size,
            log1p(text.count("```", 0, _FIRST)),
            log1p(int((exact == 63).sum())),
            len(before) / MOST_TURNS,
            log1p(_length(before)) / 10,
        ],
        dtype=np.float64,
    )

"""Requests as people type them, sorted by what they ask for: what templates cannot draw, the corpus takes from here."""

from functools import cache
from typing import NamedTuple

from conductor_core.rehearsal.families import DIFFICULTIES, Difficulty
from conductor_core.training.wording import table


class TypedRequest(NamedTuple):
    """One request; ``parts``: how many things it names that can be worked on side by side, 0 for none."""

    kind: str
    difficulty: Difficulty
    text: str
    parts: int


@cache
def typed_requests() -> tuple[TypedRequest, ...]:
    """All requests of ``requests.toml``, where ``[compare_3]`` is the kind compare with three parts."""
    found = []
    for name, texts in table("requests").items():
        kind, _, parts = name.partition("_")
        found += [
            TypedRequest(kind, difficulty, text, int(parts or 0))
            for difficulty in DIFFICULTIES
            for text in texts.get(difficulty, ())
        ]
    return tuple(found)

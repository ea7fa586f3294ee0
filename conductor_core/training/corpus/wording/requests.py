"""Reads requests as people type them, sorted by what they ask for. Templates cannot draw such requests."""

from functools import cache
from typing import NamedTuple

from conductor_core.rehearsal.families import DIFFICULTIES, Difficulty
from conductor_core.training.corpus.wording import table


class TypedRequest(NamedTuple):
    """One request. ``parts``: how many things it names that can be worked on side by side, 0 for none. ``topic``: the
    subject that gives it its noun, or None."""

    kind: str
    difficulty: Difficulty
    text: str
    parts: int
    topic: str | None


@cache
def typed_requests() -> tuple[TypedRequest, ...]:
    """Returns all requests of ``requests.toml``. There ``[compare_3]`` means the kind compare with three parts, and
    ``["choice.physics"]`` means the kind choice on physics."""
    found = []
    for name, texts in table("requests").items():
        named, _, topic = name.partition(".")
        kind, _, parts = named.partition("_")
        found += [
            TypedRequest(kind, difficulty, text, int(parts or 0), topic or None)
            for difficulty in DIFFICULTIES
            for text in texts.get(difficulty, ())
        ]
    return tuple(found)

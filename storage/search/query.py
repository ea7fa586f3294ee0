"""Reads what a person typed into a search. Nothing of it reaches the database as syntax."""

import re
import unicodedata
from dataclasses import dataclass

from conductor_core.errors import BadInput
from conductor_core.text import whole_characters
from storage.search.dense_scripts import is_dense

MOST_CHARACTERS = 1_000
MOST_PARTS = 32
_PART = re.compile(r'"([^"]*)"?|(\S+)')
_SIGNS = 3
"""A query of the table of signs needs so many; shorter ones read the texts."""


@dataclass(frozen=True, slots=True)
class Words:
    """A search: texts that hold all of it, in any order.

    Attributes:
        match: for the full-text ``table``; None: each text of that table must hold all ``plain`` parts.
        plain: the parts as they were typed.
    """

    table: str
    match: str | None
    plain: tuple[str, ...]


def read_words(typed: str) -> Words | None:
    """Reads a search: words, phrases in quotation marks, and beginnings of words that end in ``*``.

    Returns None if nothing was typed. Raises: BadInput for a search that could find nothing, or that is too long.
    """
    typed = whole_characters(typed).replace("\0", " ")
    if len(typed) > MOST_CHARACTERS:
        raise BadInput(f"the search has {len(typed):,} characters; at most {MOST_CHARACTERS:,} are searched for")
    parts = [(phrase, word) for phrase, word in _PART.findall(typed) if phrase.strip() or word]
    if not parts:
        if typed.strip():
            raise BadInput("the search is empty: type a word, or a phrase in quotation marks")
        return None
    if len(parts) > MOST_PARTS:
        raise BadInput(f"the search has {len(parts)} parts; at most {MOST_PARTS} are searched for")
    plain = tuple((phrase or word.rstrip("*")).strip() for phrase, word in parts)
    for part in plain:
        if not any(unicodedata.category(sign)[0] in "LN" for sign in part):
            raise BadInput(f"the search part {part[:40]!r} has no letter or digit to search for")
    if is_dense(typed):
        whole = all(len(part) >= _SIGNS for part in plain)
        return Words("search_signs", " AND ".join(map(quoted, plain)) if whole else None, plain)
    matches = (
        quoted(part) + (" *" if word.endswith("*") else "") for part, (_, word) in zip(plain, parts, strict=True)
    )
    return Words("search_words", " AND ".join(matches), plain)


def quoted(part: str) -> str:
    """Returns a word or phrase as FTS5 takes it, whatever is in it."""
    return '"' + part.replace('"', '""') + '"'

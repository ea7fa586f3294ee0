"""What a search asks for: runs, as conditions of SQL over ``search_runs`` (``s``) and ``runs`` (``r``), and words.

Nothing of what a person typed reaches the database as syntax. A sign of a script that puts no space between words
decides in which full-text table is looked: that of signs has all texts with such a sign, that of words has all texts.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from pydantic import Field

from conductor_core.errors import BadInput
from conductor_core.text import whole_characters
from conductor_core.workflow.model import Frozen

KINDS = {
    "actor": "person",
    "agent": "agent",
    "provider": "provider",
    "host": "host",
    "status": "status",
    "topology": "shape",
    "edited": "edited by",
    "approval": "approval",
    "workers": "workers",
    "failure": "failure",
    "origin": "origin",
}
"""What a filter can ask for by value, and its name for people. ``*`` stands for any value."""
ANY = "*"
_MOST_RARE = 5_000
_HAS_VALUE = "EXISTS (SELECT 1 FROM search_facets f WHERE f.run = s.run AND f.kind = {})"


def in_utc(moment: datetime) -> str:
    """Returns a moment as the database holds moments, whose texts are compared."""
    return moment.astimezone(UTC).isoformat()


def end_of(day: date) -> datetime:
    """Returns the end of a day in UTC: the midnight after it, or the last moment there is."""
    begin = datetime.combine(day, time(), UTC)
    return begin + timedelta(days=1) if day < date.max else datetime.max.replace(tzinfo=UTC)


class Filters(Frozen):
    """Only runs for which all of this holds.

    Attributes:
        values: by kind (``KINDS``), the value that the run must have; ``*``: any.
        since_utc, until_utc: began at or after, and before.
        least_usd, most_usd: bounds of the cost. A run of unknown cost is within no upper bound.
        run_id: this run alone.
    """

    values: Mapping[str, str] = Field(default_factory=dict)
    since_utc: datetime | None = None
    until_utc: datetime | None = None
    least_usd: float | None = None
    most_usd: float | None = None
    run_id: str | None = None

    def __bool__(self) -> bool:
        return any(value not in (None, {}) for value in vars(self).values())

    @property
    def imported(self) -> bool:
        """Whether imported runs are asked for, which are left out of ledger and sums otherwise."""
        return self.values.get("origin") in ("imported", "recorded", ANY)

    @property
    def own(self) -> str:
        """SQL that leaves imported runs out of a condition, unless they are asked for."""
        return "" if self.imported else " AND NOT r.imported"

    @property
    def _single(self) -> dict[str, tuple[str, Any]]:
        """By name: what SQL compares, and with what."""
        since, until = (None if at is None else in_utc(at) for at in (self.since_utc, self.until_utc))
        return {
            "since": ("r.created_at_utc >=", since),
            "until": ("r.created_at_utc <", until),
            "run": ("s.run_id =", self.run_id),
            "least-usd": ("r.known_usd >=", self.least_usd),
            "most-usd": ("r.cost_usd <=", self.most_usd),
        }

    @property
    def names(self) -> list[str]:
        """The names of what is set, without the values."""
        return [*self.values, *(name for name, (_, value) in self._single.items() if value is not None)]

    def condition(self) -> tuple[str, dict[str, Any]]:
        """Returns the SQL condition and what to bind."""
        parts: list[str] = []
        bound: dict[str, Any] = {}
        for number, (kind, value) in enumerate(self.values.items()):
            of = "" if value == ANY else f" AND f.value = :value{number}"
            parts.append(_HAS_VALUE.format(f":kind{number}{of}"))
            bound |= {f"kind{number}": kind, f"value{number}": value}
        for number, (sql, value) in enumerate(self._single.values()):
            if value is not None:
                parts.append(f"{sql} :single{number}")
                bound[f"single{number}"] = value
        return " AND ".join(parts) or "true", bound

    def can_match(self, connection: sqlite3.Connection) -> bool:
        """Tells whether any run has each of the values, which costs nothing beside a search that finds none."""
        for kind, value in self.values.items():
            query = "SELECT 1 FROM search_facets WHERE kind = ? AND (value = ? OR ? = '*') LIMIT 1"
            if not connection.execute(query, (kind, value, value)).fetchall():
                return False
        return True


class Facet(Frozen):
    """A value that runs have, and how many of them."""

    kind: str
    value: str
    runs: int


FACETS = "SELECT kind, value, count(*) FROM search_facets GROUP BY kind, value ORDER BY kind, count(*) DESC, value"


def driver(connection: sqlite3.Connection, filters: Filters) -> tuple[str, dict[str, Any]]:
    """Returns SQL for the numbers of runs to look at, newest first, before ``:before``: those of the rarest value."""
    if not filters.values:
        return "SELECT run FROM search_runs WHERE run < :before ORDER BY run DESC", {}
    of_value = {
        kind: "kind = :driving_kind" + ("" if value == ANY else " AND value = :driving_value")
        for kind, value in filters.values.items()
    }

    def frequency(kind: str) -> int:
        query = f"SELECT count(*) FROM (SELECT 1 FROM search_facets WHERE {of_value[kind]} LIMIT {_MOST_RARE})"  # noqa: S608  no value in it
        bound = {"driving_kind": kind, "driving_value": filters.values[kind]}
        return int(connection.execute(query, bound).fetchall()[0][0])

    rarest = min(filters.values, key=frequency)
    once = "DISTINCT " if filters.values[rarest] == ANY else ""
    query = f"SELECT {once}run FROM search_facets WHERE {of_value[rarest]} AND run < :before ORDER BY run DESC"  # noqa: S608  no value in it
    return query, {"driving_kind": rarest, "driving_value": filters.values[rarest]}


_DENSE = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u0f00-\u0fff"  # Tibetan
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "]"
)


def is_dense(text: str) -> bool:
    """Tells whether ``text`` has a sign of a script that puts no space between words."""
    return _DENSE.search(text) is not None


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

"""Finds texts and runs, newest first, page by page.

Each query does a bounded piece of work. Of a frequent word with a rare filter, one page may find nothing yet: it says
where it stopped, and the next page goes on there. Nothing is ranked: ranking a frequent word over a million texts
takes half a second, and an auditor reads in the order of time.
"""

import json
import re
import sqlite3
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from conductor_core.workflow.model import Frozen
from storage.encoding import Moment, Text
from storage.merkle.formats import text_of
from storage.search.filters import Filters, Words, driver
from storage.search.reading import Place

MOST_COUNTED = 5_000
"""Counts say at least so many, and no more."""
_FIRST_SCAN, _MOST_SCAN = 200, 2_000
_AROUND = 90
"""Characters of a snippet before and after what was found."""
_TIME_S, _WHOLE_S = 0.03, 2.0
"""How long a page or a count looks on, and how long for a question that needs all texts."""
_MOST_FOLDED = 200_000
_COLUMNS = "t.id, r.run_id, r.created_at_utc, r.status, r.task, r.simulated, r.imported, t.text"
_Row = tuple[int, str, str, str, str, bool, bool, str]

Segments = tuple[tuple[str, bool], ...]
"""A text in pieces; True: the piece is what was searched for."""


class Hit(Frozen):
    """A text that was found, and the run that it stands in.

    Attributes:
        text_id: names the text; the cursor of the next page.
        snippet: the text around what was found first, in one line.
        imported: the run came as a file, and only that file says so.
        places: all places of the text in its run.
    """

    text_id: int
    run_id: str
    created_at_utc: Moment
    status: Text
    task: Text
    simulated: bool
    imported: bool
    snippet: Segments
    characters: int
    places: tuple[Place, ...]


class Hits(Frozen):
    """A page. ``before``: the cursor of the next page; None: there is none."""

    hits: tuple[Hit, ...]
    before: int | None


class Count(Frozen):
    """How many texts and runs a search finds. ``more``: at least so many."""

    texts: int
    runs: int
    more: bool = False


class Texts:
    """The texts that hold the words, of runs for which the filters hold, newest first. All methods raise sqlite3.Error.

    ``fields``: only texts with such a place (``reading.FIELDS``); none: with any.
    """

    def __init__(
        self, connection: sqlite3.Connection, words: Words, filters: Filters, fields: Sequence[str] = ()
    ) -> None:
        self._connection, self._words, self._filters, self._fields = connection, words, filters, fields

    def page(self, before: int | None, limit: int) -> Hits:
        found: list[_Row] = []
        deadline = time.monotonic() + _TIME_S
        at: int | None = None
        for ids, end in self._scan(before):
            found += self._matching(ids, _COLUMNS, limit + 1 - len(found))
            at = end
            if len(found) > limit or at is None or time.monotonic() > deadline:
                break
        if len(found) > limit:
            at = found[limit - 1][0]
        return Hits(hits=tuple(map(self._hit, found[:limit])), before=at)

    def count(self) -> Count:
        """Counts what ``page`` finds on all its pages."""
        texts, runs = 0, set[int]()
        deadline = time.monotonic() + _TIME_S
        for ids, end in self._scan():
            for _, run in self._matching(ids, "t.id, t.run", MOST_COUNTED - texts):
                texts += 1
                runs.add(run)
            if end is not None and (texts >= MOST_COUNTED or time.monotonic() > deadline):
                return Count(texts=texts, runs=len(runs), more=True)
        return Count(texts=texts, runs=len(runs))

    def run_ids(self, most: int, notify: Callable[[int], None]) -> list[str]:
        """Returns the ids of the first ``most`` runs of what ``page`` finds on all its pages; looks to the end.

        ``notify``: how many were found so far. What it raises ends the search.
        """
        found: dict[str, None] = {}
        for ids, _ in self._scan():
            found |= dict.fromkeys(run_id for _, run_id in self._matching(ids, "t.id, s.run_id", len(ids)))
            notify(min(len(found), most))
            if len(found) >= most:
                break
        return list(found)[:most]

    def ids(self, most: int) -> tuple[list[int], bool]:
        """Returns the ids of texts, and whether there are more than ``most``."""
        found: list[int] = []
        deadline = time.monotonic() + _WHOLE_S
        for ids, end in self._scan():
            found += [text_id for (text_id,) in self._matching(ids, "t.id", most + 1 - len(found))]
            if end is not None and (len(found) > most or time.monotonic() > deadline):
                return found[:most], True
        return found[:most], len(found) > most

    def _scan(self, before: int | None = None) -> Iterator[tuple[list[int], int | None]]:
        """Yields ids of texts that hold the words in growing groups, and where the next group begins."""
        if not self._filters.can_match(self._connection):
            return
        words, size = self._words, _FIRST_SCAN
        holds, bound = f"{words.table} MATCH ?", [words.match]
        query = f"SELECT rowid FROM {words.table} WHERE {{}} AND rowid < ? ORDER BY rowid DESC LIMIT ?"  # noqa: S608  own names
        if words.match is None:
            holds, bound = " AND ".join(["instr(lower(text), lower(?))"] * len(words.plain)), [*words.plain]
            query = "SELECT id FROM search_texts WHERE dense AND {} AND id < ? ORDER BY id DESC LIMIT ?"
        at: int | None = 2**62 if before is None else before
        while at is not None:
            ids = [row[0] for row in self._connection.execute(query.format(holds), (*bound, at, size)).fetchall()]
            at = ids[-1] if len(ids) == size else None
            yield ids, at
            size = min(2 * size, _MOST_SCAN)

    def _matching(self, ids: Sequence[int], columns: str, limit: int) -> list[Any]:
        if not ids:
            return []
        condition, bound = self._filters.condition()
        if self._fields:
            condition += " AND EXISTS (SELECT 1 FROM search_places p WHERE p.text_id = t.id "
            condition += "AND p.field IN (SELECT value FROM json_each(:fields)))"
            bound["fields"] = json.dumps(self._fields)
        query = (
            f"SELECT {columns} FROM json_each(:ids) j CROSS JOIN search_texts t ON t.id = j.value "  # noqa: S608  own names
            "CROSS JOIN search_runs s ON s.run = t.run CROSS JOIN runs r ON r.run_id = s.run_id "
            f"WHERE {condition} LIMIT :limit"
        )
        return self._connection.execute(query, bound | {"ids": str(list(ids)), "limit": limit}).fetchall()

    def _hit(self, row: _Row) -> Hit:
        text = text_of(row[-1])
        query = "SELECT field, event, path, agent, detail FROM search_places WHERE text_id = ? ORDER BY id"
        places = tuple(Place(*place) for place in self._connection.execute(query, row[:1]).fetchall())
        stored = dict(zip(Hit.model_fields, row[:-1], strict=False))
        shown = {"snippet": snippet(text, self._words), "characters": len(text), "places": places}
        return Hit.model_validate(stored | shown)


def read_run_ids(
    connection: sqlite3.Connection, filters: Filters, before: int | None = None, limit: int = 20
) -> list[tuple[int, str]]:
    """Returns number (the cursor) and id of the runs of ``filters``, newest first."""
    runs, driving = driver(connection, filters)
    condition, bound = filters.condition()
    query = (
        f"SELECT s.run, s.run_id FROM ({runs}) d CROSS JOIN search_runs s ON s.run = d.run "  # noqa: S608  own names
        f"CROSS JOIN runs r ON r.run_id = s.run_id WHERE {condition} ORDER BY d.run DESC LIMIT :limit"
    )
    bound |= driving | {"before": 2**62 if before is None else before, "limit": limit}
    return [(int(run), str(run_id)) for run, run_id in connection.execute(query, bound).fetchall()]


def snippet(text: str, words: Words) -> Segments:
    """Returns the text around the first part of the search that stands there, in one line."""
    pattern = re.compile("|".join(_loose(_folded(part)) for part in words.plain))
    folded = _folded(text)
    first = pattern.search(folded)
    at = 0 if first is None else first.start()
    begin, end = max(0, at - _AROUND), min(len(text), (at if first is None else first.end()) + _AROUND)
    pieces: list[tuple[str, bool]] = [("…", False)] if begin else []
    done = begin
    for found in pattern.finditer(folded, begin, end):
        pieces += [(text[done : found.start()], False), (text[found.start() : found.end()], True)]
        done = found.end()
    pieces.append((text[done:end] + ("…" if end < len(text) else ""), False))
    return tuple((re.sub(r"\s+", " ", piece), is_found) for piece, is_found in pieces if piece)


def _folded(text: str) -> str:
    """Returns a text of the same length in lower case and, unless it is very long, without accents: as it is found."""
    if text.isascii():
        return text.lower()
    if len(text) > _MOST_FOLDED:
        return "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    return "".join(unicodedata.normalize("NFD", sign)[0].lower()[0] for sign in text)


def _loose(part: str) -> str:
    """Returns a pattern of a part of the search in which what is neither letter nor digit may be anything alike."""
    tokens = re.findall(r"\w+", part)
    return r"[\W_]+".join(map(re.escape, tokens)) or re.escape(part)

"""Compares the search index with the events: ledger, sums, filters and hits are read from it."""

import sqlite3
from collections.abc import Iterable

from storage.search.dense_scripts import is_dense
from storage.search.index import AT_REST_KINDS, CALL_COLUMNS, NOT_INDEXED, call_rows, facet_rows
from storage.search.reading import read_record

_IS_THERE = "SELECT 1 FROM sqlite_master WHERE name = 'search_state'"
_REACHED = "SELECT reached FROM search_state"
_NEWEST_EVER = (
    "SELECT max(coalesce((SELECT max(sequence) FROM events), 0), "
    "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events' AND typeof(seq) = 'integer'), 0))"
)
_RUN = "SELECT run, indexed_to, fault FROM search_runs WHERE run_id = ?"
_AT_REST = (
    f"SELECT max(sequence) FROM events WHERE run_id = ? AND sequence <= ? "  # noqa: S608  no value in it
    f"AND kind IN ({', '.join('?' * len(AT_REST_KINDS))})"
)
_NEWEST = "SELECT max(sequence) FROM events WHERE run_id = ?"
_CALLS = f"SELECT {CALL_COLUMNS} FROM search_calls WHERE run = ? ORDER BY id"  # noqa: S608  own names
_FACETS = "SELECT kind, value, run, times FROM search_facets WHERE run = ? ORDER BY kind, value"
_TEXTS = "SELECT text, dense FROM search_texts WHERE run = ? ORDER BY id"
_PLACES = (
    "SELECT t.text, p.field, p.event, p.path, p.agent, p.detail FROM search_places p JOIN search_texts t "
    "ON t.id = p.text_id WHERE p.run = ? ORDER BY p.id"
)
_UNKNOWN = "SELECT run_id FROM search_runs WHERE run_id NOT IN (SELECT run_id FROM events) ORDER BY run_id"
_OF_NO_RUN = tuple(
    f"SELECT 1 FROM {table} WHERE run NOT IN (SELECT run FROM search_runs) LIMIT 1"  # noqa: S608  own names
    for table in ("search_calls", "search_facets", "search_texts", "search_places")
)


class IndexCheck:
    """Compares one run after the other. A database without an index, of an older version, has nothing to compare."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        there = connection.execute(_IS_THERE).fetchone()
        self._states = connection.execute(_REACHED).fetchmany(2) if there else None
        one = self._states[0][0] if self._states is not None and len(self._states) == 1 else None
        self._reached = one if isinstance(one, int) else None

    def state_fault(self) -> str | None:
        """Says what is wrong with how far the index says that it goes; None: nothing. Raises: sqlite3.Error."""
        if self._states is None:
            return None
        if self._reached is None:
            return "does not say how far it goes"
        ((newest,),) = self._connection.execute(_NEWEST_EVER)
        return None if 0 <= self._reached <= newest else "says that it goes further than the events do"

    def unknown_rows(self) -> list[str | None]:
        """Returns what is in the index and belongs to no run of the log: ids of runs, and None for rows of none.

        Raises: sqlite3.Error.
        """
        if self._reached is None:
            return []
        found: list[str | None] = [str(run_id) for (run_id,) in self._connection.execute(_UNKNOWN)]
        return found + [None] * any(self._connection.execute(query).fetchone() for query in _OF_NO_RUN)

    def fault(self, run_id: str) -> str | None:
        """Says what the index has otherwise than the events of a run; None: nothing. Encrypted runs are not in it.

        Raises: sqlite3.Error.
        """
        if self._reached is None:
            return None
        ((at_rest,),) = self._connection.execute(_AT_REST, (run_id, self._reached, *AT_REST_KINDS))
        row = self._connection.execute(_RUN, (run_id,)).fetchone()
        if at_rest is None:  # it never came to rest, or that is still to be taken in
            return None if row is None else "it is of other events"
        if row is None:
            return None if read_record(self._connection, run_id).encrypted else "it is missing"
        run, indexed_to, fault = row
        ((newest,),) = self._connection.execute(_NEWEST, (run_id,))
        if not isinstance(indexed_to, int) or not isinstance(fault, str) or not at_rest <= indexed_to <= newest:
            return "it is of other events"
        if indexed_to < newest or fault.startswith(NOT_INDEXED):  # the run went on since, or only its name is there
            return None
        return self._differs(run_id, run, fault)

    def _differs(self, run_id: str, run: int, fault: str) -> str | None:
        record = read_record(self._connection, run_id)
        if record.fault != fault:
            return "how far it could be read"
        places = [
            (text, at.field, at.event, at.path, at.agent, at.detail) for text, of in record.texts.items() for at in of
        ]
        wanted: dict[str, tuple[str, Iterable[tuple[object, ...]]]] = {
            "calls": (_CALLS, call_rows(record)),
            "texts": (_TEXTS, [(text, is_dense(text)) for text in record.texts]),
            "places": (_PLACES, places),
            "filters": (_FACETS, sorted(facet_rows(record))),
        }
        wrong = [
            name
            for name, (query, rows) in wanted.items()
            if self._connection.execute(query, (run,)).fetchall() != list(rows)
        ]
        return ", ".join(wrong) or None

"""The runs of a database as their events have them, for answers that must not rest on the index.

``each_run`` reads them one by one. ``index_of`` puts what a question is about into an index in memory, of which the
same is asked then as of the index.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime

from storage.privacy.vault import Vault
from storage.records import ERASED
from storage.search.filters import ANY, Filters, in_utc
from storage.search.index import write
from storage.search.query import Words
from storage.search.reading import Record, read_record
from storage.search.schema import statements

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Lends a connection for each run, so that a long look holds up no checkpoint."""

_RUNS = (
    "SELECT a.run_id FROM (SELECT run_id FROM runs UNION SELECT run_id FROM events) a "
    "LEFT JOIN runs r ON r.run_id = a.run_id ORDER BY r.sequence"
)
"""Also those whose row in ``runs`` is damaged or missing, or says that they were erased: their events may be whole."""
_ERASED = "SELECT run_id FROM deletions WHERE erased UNION SELECT run_id FROM runs WHERE status = ?"
_FIRST = "SELECT min(sequence) FROM events WHERE run_id = ?"
_ROWS = (
    "CREATE TABLE runs (run_id TEXT PRIMARY KEY, created_at_utc TEXT, known_usd REAL, cost_usd REAL, imported, "
    "simulated, status TEXT, task TEXT)"
)


def may_hold(began: datetime | None, since_utc: datetime | None, until_utc: datetime | None) -> bool:
    """Whether a run may be of the period that began then; None: nobody knows when."""
    if began is None:
        return True
    return (since_utc is None or began >= since_utc) and (until_utc is None or began < until_utc)


def each_run(
    reading: Reading,
    vault: Vault | None = None,
    since_utc: datetime | None = None,
    until_utc: datetime | None = None,
    notify: Callable[[int, int], None] | None = None,
) -> Iterator[Record]:
    """Reads each run that may have begun in the period, by its own first event. Runs that were erased are left out.

    Args:
        vault: opens encrypted runs; None: they come without what is in them.
        notify: called with the runs passed and all of them.

    Raises: StoreError.
    """
    with reading() as connection:
        run_ids = [str(run_id) for (run_id,) in connection.execute(_RUNS).fetchall()]
        erased = {str(run_id) for (run_id,) in connection.execute(_ERASED, (ERASED,)).fetchall()}
    for number, run_id in enumerate(run_ids):
        with reading() as connection:
            record = _record(connection, run_id, vault, since_utc, until_utc)
        if record is not None and not (record.created is None and run_id in erased):
            yield record
        if notify is not None:
            notify(number + 1, len(run_ids))


def _record(
    connection: sqlite3.Connection,
    run_id: str,
    vault: Vault | None,
    since_utc: datetime | None,
    until_utc: datetime | None,
) -> Record | None:
    if since_utc is not None or until_utc is not None:
        ((first,),) = connection.execute(_FIRST, (run_id,)).fetchall()
        begun = read_record(connection, run_id, vault, to=first or 0).created
        if not may_hold(None if begun is None else begun.at_utc, since_utc, until_utc):
            return None
    return read_record(connection, run_id, vault)


def index_of(
    reading: Reading,
    vault: Vault | None,
    words: Words | None,
    filters: Filters,
    notify: Callable[[int, int], None] | None = None,
) -> sqlite3.Connection:
    """Returns an index in memory of the runs of ``filters`` that hold the words; without words, of their calls alone.

    Close it. Raises: StoreError.
    """
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    cursor = memory.cursor()
    for statement in (_ROWS, *statements()):
        cursor.execute(statement)
    for record in each_run(reading, vault, filters.since_utc, filters.until_utc, notify):
        if record.created is None or not _is_asked_for(record, filters):
            continue
        if words is None:
            record.texts.clear()
        cursor.execute("SAVEPOINT run")
        write(cursor, record)
        if words is not None and not _holds(cursor, record, words):
            cursor.execute("ROLLBACK TO run")
            continue
        cursor.execute("RELEASE run")
        costs = [call.cost_usd for _, call in record.calls]
        known = sum(cost or 0.0 for cost in costs)
        cost_usd = None if None in costs else known
        imported = record.created.imported is not None
        row = (record.run_id, in_utc(record.created.at_utc), known, cost_usd, imported, record.created.simulated)
        cursor.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, '', '')", row)
    return memory


def _is_asked_for(record: Record, filters: Filters) -> bool:
    if filters.run_id not in (None, record.run_id):
        return False
    return all(
        any(kind == has and value in (ANY, of) for has, of in record.facets) for kind, value in filters.values.items()
    )


def _holds(cursor: sqlite3.Cursor, record: Record, words: Words) -> bool:
    if words.match is None:
        return True  # the texts themselves are read for such words
    query = (
        f"SELECT 1 FROM search_texts t JOIN {words.table} w ON w.rowid = t.id "  # noqa: S608  own names
        f"WHERE t.run = ? AND {words.table} MATCH ? LIMIT 1"
    )
    return bool(cursor.execute(query, (record.run, words.match)).fetchall())

"""The search index: fills it from ended runs, takes runs out, and says how far behind it is.

Nothing of this is in the transaction of an append. Runs come in after they end, or while they wait, and again when
they have gone on.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from conductor_core.chat.messages import images_in
from conductor_core.errors import StoreDamaged, StoreError
from conductor_core.run.events import FINAL_KINDS
from conductor_core.run.values import label
from storage import errors
from storage.database import schema
from storage.database.connections import Database
from storage.encoding import has_run
from storage.search.failures import MOST_SAID
from storage.search.filters import is_dense, quoted
from storage.search.reading import Record, read_record

log = logging.getLogger(__name__)

FULL_TEXT = ("search_words", "search_signs")
"""All texts by words, and those of scripts without spaces (``filters.is_dense``) by three signs each."""
_OF_RUNS = ("search_places", "search_texts", "search_calls", "search_facets", "search_failures", "search_runs")
TABLES = (*_OF_RUNS, "search_state")
CONFIG = [("version", 4)]
"""What ``_config`` of a full-text table holds: another row changes what is found, or in which order."""
SHADOWS = {
    "data": "(id INTEGER PRIMARY KEY, block BLOB)",
    "idx": "(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID",
    "config": "(k PRIMARY KEY, v) WITHOUT ROWID",
}
"""The tables in which SQLite keeps a full-text table."""
_OBJECTS = (
    "SELECT name, type, tbl_name, sql FROM sqlite_master WHERE lower(tbl_name) IN ({0}) OR lower(name) IN ({0}) "
    "OR (type = 'trigger' AND lower(sql) LIKE '%search\\_%' ESCAPE '\\')"
)

Objects = dict[str, tuple[str, str, str | None]]
"""By name: the kind, the table that it is of, and the SQL that made it."""


def read_objects(connection: sqlite3.Connection | sqlite3.Cursor) -> Objects:
    """Returns the tables of the index in a database, with what belongs to them. Raises: sqlite3.Error."""
    names = [*TABLES, *FULL_TEXT, *(f"{table}_{shadow}" for table in FULL_TEXT for shadow in SHADOWS)]
    query = _OBJECTS.format(", ".join(repr(name) for name in names))
    return {str(name): (kind, of, sql) for name, kind, of, sql in connection.execute(query).fetchall()}


@cache
def own_objects() -> Objects:
    """Returns what ``read_objects`` finds where nothing was changed."""
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.make(connection.cursor(), schema.HEAD)
        return read_objects(connection)


def statements() -> list[str]:
    return [sql for name, (_, _, sql) in own_objects().items() if sql and not is_shadow(name)]


def is_shadow(name: str) -> bool:
    """Whether SQLite itself makes the table of this name."""
    return any(name == f"{table}_{shadow}" for table in FULL_TEXT for shadow in SHADOWS)


@cache
def _empty_data() -> list[tuple[int, bytes]]:
    """Returns the rows of ``_data`` of a full-text table without a text."""
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.make(connection.cursor(), schema.HEAD)
        return connection.execute(f"SELECT id, block FROM {FULL_TEXT[0]}_data").fetchall()  # noqa: S608  own names


def make_again(cursor: sqlite3.Cursor) -> None:
    """Drops all that is there of the index, whatever became of it, and makes it anew and empty.

    Call it in a transaction of the writer. Raises: sqlite3.Error.
    """
    cursor.execute("PRAGMA secure_delete=ON")
    there, own = read_objects(cursor), own_objects()
    for name, (kind, _, _) in there.items():
        if kind == "trigger" or (kind == "view" and name in own):
            cursor.execute(f"DROP {kind} {quoted(name)}")
    for table in FULL_TEXT:
        if "VIRTUAL" in (there.get(table, ("", "", ""))[2] or "").upper():
            # SQLite drops a full-text table only if it can open it.
            for shadow, columns in SHADOWS.items():
                cursor.execute(f"DROP TABLE IF EXISTS {table}_{shadow}")
                cursor.execute(f"CREATE TABLE {table}_{shadow} {columns}")
            cursor.executemany(f"INSERT INTO {table}_data (id, block) VALUES (?, ?)", _empty_data())  # noqa: S608  own names
            cursor.execute(f"INSERT INTO {table}_config (k, v) VALUES (?, ?)", CONFIG[0])  # noqa: S608  own names
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        for shadow in SHADOWS:
            cursor.execute(f"DROP TABLE IF EXISTS {table}_{shadow}")
    for table in TABLES:
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in statements():
        cursor.execute(statement)
    cursor.execute("INSERT INTO search_state (id, reached, residue) VALUES (1, 0, 0)")
    cursor.execute("PRAGMA secure_delete=OFF")


def forget(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Takes a run out of the index. Call it in a transaction of the writer, with ``secure_delete`` on for an erasure.

    The full-text tables keep words of it among others until the next ``catch_up`` or ``sweep``.
    """
    found = cursor.execute("SELECT run FROM search_runs WHERE run_id = ?", (run_id,)).fetchall()
    for (run,) in found:
        for table, only in (("search_words", ""), ("search_signs", " AND dense")):
            cursor.execute(
                f"INSERT INTO {table} ({table}, rowid, text) "  # noqa: S608  own names
                f"SELECT 'delete', id, text FROM search_texts WHERE run = ?{only}",
                (run,),
            )
        for table in _OF_RUNS:
            cursor.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608  own names
    if found:
        cursor.execute("UPDATE search_state SET residue = 1")


Change = Callable[[Callable[[sqlite3.Cursor], Any]], Any]
"""Runs a piece of work in a transaction of the writer (``EventLog.change_and_wait``)."""

AT_REST_KINDS = (*sorted(FINAL_KINDS), "run.waiting")
AT_REST = f"kind IN ({', '.join('?' * len(AT_REST_KINDS))})"
_DUE = f"SELECT run_id, max(sequence) FROM events WHERE sequence > ? AND sequence <= ? AND {AT_REST} GROUP BY run_id"  # noqa: S608  no value in it
LAG = (
    f"SELECT (SELECT count(DISTINCT run_id) FROM events WHERE sequence > ? AND {AT_REST}), "  # noqa: S608  no value in it
    "(SELECT count(*) FROM runs WHERE status IN ('queued', 'running')), "
    "(SELECT count(*) FROM runs WHERE typeof(task) = 'blob'), (SELECT count(*) FROM search_runs WHERE fault <> '')"
)
_TEXT = "INSERT INTO search_texts (run, dense, text) VALUES (?, ?, ?)"
CALL_COLUMNS = (
    "run, event, at_utc, purpose, path, agent, provider, host, simulated, how, ended, messages, images, input_tokens, "
    "output_tokens, cost_usd"
)
_CALL = f"INSERT INTO search_calls ({CALL_COLUMNS}) VALUES ({', '.join('?' * 16)})"  # noqa: S608  own names
FAILURE_COLUMNS = "run, event, kind, code, path, agent, served, said"
_FAILURE = f"INSERT INTO search_failures ({FAILURE_COLUMNS}) VALUES ({', '.join('?' * 8)})"  # noqa: S608  own names
NOT_INDEXED = "it cannot be indexed"
_WINDOW = 4_000
"""Events looked at for ended runs at once."""
_MOST_CHARACTERS = 400_000
"""Characters that one transaction indexes, more only for a single run: an append then waits some 50 ms for it."""
_SWEEP_PAGES = 200


@dataclass(frozen=True, slots=True)
class Lag:
    """What the index does not hold: ended ``runs`` that it will take in, runs that are ``running`` or queued, all
    ``encrypted`` ones, of which an index would hold the texts in plain sight, and the rest of ``damaged`` ones."""

    runs: int
    running: int
    encrypted: int = 0
    damaged: int = 0

    @property
    def in_words(self) -> str:
        """Says what a search does not see; empty: it sees all."""
        parts = [f"{self.runs:,} ended run{'' if self.runs == 1 else 's'} not indexed yet"] if self.runs else []
        parts += [f"{self.running:,} still running"] if self.running else []
        parts += [f"{self.encrypted:,} encrypted, never indexed"] if self.encrypted else []
        parts += [f"{self.damaged:,} damaged, not read to their end"] if self.damaged else []
        return ", ".join(parts)


def read_state(reader: sqlite3.Connection | sqlite3.Cursor) -> tuple[int, bool]:
    """Returns up to which event the index goes, and whether words of runs that were taken out may be left in it.

    Raises: StoreDamaged if that is not there.
    """
    rows = reader.execute("SELECT reached, residue FROM search_state").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise StoreDamaged(
            "the search index does not say how far it goes: build it again with `conductor log search --rebuild`"
        )
    return rows[0][0], bool(rows[0][1])


class Indexer:
    """Brings the index of one database up to date. Several processes may do so at once: each checks what it finds."""

    def __init__(self, database: Database, change: Change) -> None:
        self._database = database
        self._change = change

    def catch_up(
        self,
        notify: Callable[[int, int], None] | None = None,
        pause_share: float = 0.0,
        stop: threading.Event | None = None,
    ) -> int:
        """Takes in all runs that are due, and returns how many.

        Args:
            notify: called with the events passed and all that are due, after each part.
            pause_share: rests so long after each part, in shares of the time that it took, for those who append.
            stop: once it is set, the rest is left for the next time.

        Raises: StoreError.
        """
        with self._database.reading() as connection:
            reached, residue = read_state(connection)
            ((newest,),) = connection.execute("SELECT coalesce(max(sequence), 0) FROM events").fetchall()
        begin, done, at = reached, 0, reached
        stop = stop or threading.Event()
        while at < newest and not stop.is_set():
            began = time.monotonic()
            indexed, at = self._part(at, min(at + _WINDOW, newest))
            done += indexed
            if notify is not None:
                notify(max(0, at - begin), newest - begin)
            stop.wait(pause_share * (time.monotonic() - began))
        if residue and not stop.is_set():
            self.sweep()
        return done

    def _part(self, reached: int, end: int) -> tuple[int, int]:
        """Takes in the runs that came to rest between two sequences. Returns how many, and how far it came.

        What another process has done meanwhile is not done again.
        """
        with self._database.reading() as connection:
            due = sorted(
                connection.execute(_DUE, (reached, end, *AT_REST_KINDS)).fetchall(), key=lambda row: int(row[1])
            )
        if not due and end - reached < _WINDOW:
            return 0, end  # while a run streams, the index need not be told of each of its events
        indexed = 0
        while True:
            records: list[Record] = []
            size, to = 0, end
            while due and size < _MOST_CHARACTERS:
                run_id, at = due.pop(0)
                with self._database.reading() as connection:
                    record = read_record(connection, run_id)
                to = int(at) if due else end
                records.append(record)
                size += sum(map(len, record.texts))
            indexed_to = self._put(records, reached, to)
            indexed, reached = indexed + sum(not record.encrypted for record in records), to
            if indexed_to != to or to == end:
                return indexed, indexed_to

    def _put(self, records: Sequence[Record], expected: int, reached: int) -> int:
        """Takes runs in if the index stands at ``expected``. Returns where it stands then."""

        def work(cursor: sqlite3.Cursor) -> int:
            indexed_to, _ = read_state(cursor)
            if indexed_to != expected:  # another process is further
                return indexed_to
            for record in records:
                self._put_one(cursor, record)
            cursor.execute("UPDATE search_state SET reached = ?", (reached,))
            return reached

        return int(self._change(work))

    def _put_one(self, cursor: sqlite3.Cursor, record: Record) -> None:
        """Takes a run in, or if that fails without its texts: none keeps others out."""
        cursor.execute("SAVEPOINT run")
        try:
            with errors.translated(self._database.path):
                put(cursor, record)
        except Exception as error:
            if isinstance(error, StoreError) and type(error) is not StoreError:  # the database itself is at fault
                raise
            cursor.execute("ROLLBACK TO run")
            log.warning("run %s is in the search index without its texts: %s", record.run_id, error)
            put(cursor, Record(record.run_id, record.run, record.newest, fault=f"{NOT_INDEXED}: {error}"))
        cursor.execute("RELEASE run")

    def rebuild(self, notify: Callable[[int, int], None] | None = None) -> int:
        """Makes the index again, also where a table of it is gone, and fills it. Returns how many runs are in it.

        Raises: StoreError.
        """
        self._change(make_again)
        return self.catch_up(notify)

    def sweep(self) -> None:
        """Rewrites the full-text tables so that no word of a run that was taken out is left in them."""
        for table in FULL_TEXT:
            pages, changed = -_SWEEP_PAGES, 2
            while changed >= 2:  # SQLite says by one change that there was nothing left to do
                changed = self._change(partial(_merge, table=table, pages=pages))
                pages = _SWEEP_PAGES
        self._change(lambda cursor: cursor.execute("UPDATE search_state SET residue = 0"))


def _merge(cursor: sqlite3.Cursor, table: str, pages: int) -> int:
    """Returns how many rows it changed."""
    cursor.execute("PRAGMA secure_delete=ON")
    before = cursor.connection.total_changes
    cursor.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608  own names
    changed = cursor.connection.total_changes - before
    cursor.execute("PRAGMA secure_delete=OFF")
    return changed


def put(cursor: sqlite3.Cursor, record: Record) -> None:
    """Takes a run in, in place of what the index has of it, unless it is encrypted or has no events. Call it in a
    transaction of the writer."""
    if not has_run(cursor, record.run_id):
        return  # deleted or erased since it was read
    forget(cursor, record.run_id)
    if not record.encrypted and record.run:
        write(cursor, record)


def write(cursor: sqlite3.Cursor, record: Record) -> None:
    row = (record.run, record.run_id, record.newest, record.fault)
    cursor.execute("INSERT INTO search_runs (run, run_id, indexed_to, fault) VALUES (?, ?, ?, ?)", row)
    for text, places in record.texts.items():
        dense = is_dense(text)
        text_id = cursor.execute(_TEXT, (record.run, dense, text)).lastrowid
        cursor.executemany(
            "INSERT INTO search_places (text_id, run, field, event, path, agent, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(text_id, record.run, at.field, at.event, at.path, at.agent, at.detail) for at in places],
        )
        for table in FULL_TEXT[: 1 + dense]:
            cursor.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (text_id, text))  # noqa: S608  own names
    cursor.executemany(_CALL, call_rows(record))
    cursor.executemany("INSERT INTO search_facets (kind, value, run, times) VALUES (?, ?, ?, ?)", facet_rows(record))
    cursor.executemany(_FAILURE, failure_rows(record))


def call_rows(record: Record) -> list[tuple[object, ...]]:
    """Returns the rows of ``search_calls`` of a run, in the order of the columns that ``_CALL`` names."""
    return [
        (
            record.run,
            event,
            call.at_utc.isoformat(),
            call.of,
            label(call.path),
            *(getattr(call, name) for name in ("agent", "provider", "host", "simulated", "how", "ended")),
            len(call.messages),
            sum(len(images_in(message.content)) for message in call.messages),
            call.usage.input_tokens,
            call.usage.output_tokens,
            call.cost_usd,
        )
        for event, call in record.calls
    ]


def facet_rows(record: Record) -> list[tuple[object, ...]]:
    return [(kind, value, record.run, times) for (kind, value), times in record.facets.items()]


def failure_rows(record: Record) -> list[tuple[object, ...]]:
    """Returns the rows of ``search_failures`` of a run, in the order of ``FAILURE_COLUMNS``."""
    client = None if record.created is None else record.created.request.client
    served = "" if client is None else client.model
    return [
        (record.run, at.event, at.kind, at.code, label(at.path), at.agent, served, at.said[:MOST_SAID])
        for at in record.failures
    ]

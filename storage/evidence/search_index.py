"""Compares the search index with the events: ledger, sums, filters and hits are read from it.

The rows of each run are compared with what its events give. The full-text tables are copied into memory and compared
there with ones made from the same texts: each word, the texts that it is in, and its places. That is what a search
answers. On the database itself only rows are read.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import zip_longest

from storage.encoding import last_number
from storage.evidence.history import Report
from storage.records import ERASED
from storage.search import index
from storage.search.filters import is_dense, quoted
from storage.search.reading import Record, read_record

_RUN = "SELECT run, indexed_to, fault FROM search_runs WHERE run_id = ?"
_AT_REST = f"SELECT max(sequence) FROM events WHERE run_id = ? AND sequence <= ? AND {index.AT_REST}"  # noqa: S608  no value in it
_CALLS = f"SELECT {index.CALL_COLUMNS} FROM search_calls WHERE run = ? ORDER BY id"  # noqa: S608  own names
_FACETS = "SELECT kind, value, run, times FROM search_facets WHERE run = ? ORDER BY kind, value"
_FAILURES = f"SELECT {index.FAILURE_COLUMNS} FROM search_failures WHERE run = ? ORDER BY id"  # noqa: S608  own names
_TEXTS = "SELECT text, dense FROM search_texts WHERE run = ? ORDER BY id"
_PLACES = (
    "SELECT t.text, p.field, p.event, p.path, p.agent, p.detail FROM search_places p JOIN search_texts t "
    "ON t.id = p.text_id AND t.run = p.run WHERE p.run = ? ORDER BY p.id"
)
_OF_NO_TEXT = (
    "SELECT count(*) FROM search_places p WHERE run = ? "
    "AND NOT EXISTS (SELECT 1 FROM search_texts t WHERE t.id = p.text_id AND t.run = p.run)"
)
_UNKNOWN = (
    "SELECT run_id FROM search_runs WHERE run_id NOT IN (SELECT run_id FROM events) "
    "OR run_id IN (SELECT run_id FROM runs WHERE status = ?) ORDER BY run_id"
)
_TABLES = ("search_calls", "search_facets", "search_failures", "search_texts", "search_places")
_OF_NO_RUN = "SELECT 1 FROM {} WHERE run NOT IN (SELECT run FROM search_runs) LIMIT 1"
_WITHOUT_FAILURES = ("0017", "0018", "0019", "0020", "0021")
_RUNS_OF_TEXTS = (
    "SELECT j.value, s.run_id FROM json_each(?) j LEFT JOIN search_texts t ON t.id = j.value "
    "LEFT JOIN search_runs s ON s.run = t.run"
)
_AT_ONCE = 20_000
REBUILD = "`conductor log search --rebuild` mends it"
_MOST_NAMED = 1_000


class IndexCheck:
    """Compares one run after the other, and then what the full-text tables answer. That they are as the program makes
    them, another check says. What cannot be read is a finding."""

    def __init__(self, connection: sqlite3.Connection, report: Report, progress: Callable[[], None]) -> None:
        """``progress``: called now and then while it looks at answers; what it raises ends the check."""
        self._connection, self._report, self._progress = connection, report, progress
        self._reached: int | None = None
        self._has_failures = True
        with self._reading():
            self._begin()

    def _begin(self) -> None:
        # A database of a version without this table is checked as it is.
        version = self._connection.execute("SELECT version_num FROM alembic_version").fetchall()
        self._has_failures = version not in [[(old,)] for old in _WITHOUT_FAILURES]
        rows = self._connection.execute("SELECT id, reached, residue FROM search_state").fetchall()
        if len(rows) != 1 or rows[0][0] != 1 or not isinstance(rows[0][1], int) or rows[0][2] not in (0, 1):
            self._wrong(None, "search_state does not say how far the index goes")
            return
        if not 0 <= rows[0][1] <= last_number(self._connection, "events", "sequence"):
            self._wrong(None, "search_state says that it goes further than the events do")
        self._reached = rows[0][1]

    def _wrong(self, run_id: str | None, what: str) -> None:
        self._report.add("derived", f"the search index does not answer as it must: {what}; {REBUILD}", run_id)

    @contextmanager
    def _reading(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            self._wrong(None, f"{what}it cannot be read ({' '.join(str(error).split())[:200]})")
            self._reached = None if not what else self._reached

    def check_rows_of_no_run(self) -> None:
        """Finds what is in the index and belongs to no run that can be in it, and that nothing was found of yet."""
        if self._reached is None:
            return
        named = {each.run_id for each in self._report.findings}
        with self._reading():
            for (run_id,) in self._connection.execute(_UNKNOWN, (ERASED,)).fetchall():
                if run_id not in named:
                    what = f"the search index has rows of a run that is not in the log, or was erased; {REBUILD}"
                    self._report.add("derived", what, str(run_id))
            tables = _TABLES if self._has_failures else set(_TABLES) - {"search_failures"}
            if any(self._connection.execute(_OF_NO_RUN.format(table)).fetchone() for table in tables):
                self._report.add("derived", f"the search index has rows of no run in the log; {REBUILD}")

    def check_run(self, run_id: str) -> None:
        """Finds what the index has otherwise than the events of a run. Encrypted runs are not in it."""
        if self._reached is None:
            return
        with self._reading():
            if (wrong := self._fault(run_id, self._reached)) is not None:
                what = "the search index, from which ledger and hits are read, differs from the events of the run"
                self._report.add("derived", f"{what}: {wrong}; {REBUILD}", run_id)

    def _fault(self, run_id: str, reached: int) -> str | None:
        ((at_rest,),) = self._connection.execute(_AT_REST, (run_id, reached, *index.AT_REST_KINDS))
        row = self._connection.execute(_RUN, (run_id,)).fetchone()
        if at_rest is None:  # it never came to rest, or that is still to be taken in
            return None if row is None else "it is of other events"
        if row is None:
            return None if read_record(self._connection, run_id).encrypted else "it is missing"
        run, indexed_to, fault = row
        ((newest,),) = self._connection.execute("SELECT max(sequence) FROM events WHERE run_id = ?", (run_id,))
        if not isinstance(indexed_to, int) or not isinstance(fault, str) or not at_rest <= indexed_to <= newest:
            return "it is of other events"
        record = read_record(self._connection, run_id, to=indexed_to)
        if record.encrypted:
            return "it is encrypted, and none of it may be there"
        if record.run != run:
            return "it is of other events"
        if fault.startswith(index.NOT_INDEXED):
            # Whether that was so cannot be told any more; nothing of it is found by any search.
            return "only its name is there, because it could not be indexed"
        return self._differs(record, run, fault)

    def _differs(self, record: Record, run: int, fault: str) -> str | None:
        if record.fault != fault:
            return "how far it could be read"
        places: list[tuple[object, ...]] = [
            (text, at.field, at.event, at.path, at.agent, at.detail) for text, of in record.texts.items() for at in of
        ]
        wanted: dict[str, tuple[str, list[tuple[object, ...]]]] = {
            "calls": (_CALLS, index.call_rows(record)),
            "texts": (_TEXTS, [(text, is_dense(text)) for text in record.texts]),
            "places": (_PLACES, places),
            "filters": (_FACETS, sorted(index.facet_rows(record))),
            "failures": (_FAILURES, index.failure_rows(record)),
        }
        if not self._has_failures:
            del wanted["failures"]
        wrong = {
            name: self._connection.execute(query, (run,)).fetchall() != rows for name, (query, rows) in wanted.items()
        }
        wrong["places"] |= self._connection.execute(_OF_NO_TEXT, (run,)).fetchone() != (0,)
        return ", ".join(name for name, is_wrong in wrong.items() if is_wrong) or None

    def check_answers(self) -> None:
        """Compares what the full-text tables answer with the texts of the index, which ``check_run`` has compared."""
        if self._reached is None:
            return
        with self._reading(), closing(sqlite3.connect(":memory:")) as memory:
            with_texts = _Answers(self._connection, memory, self._progress)
            for table in index.FULL_TEXT:
                with self._reading(f"{table}: "):
                    for run_id, wrong in with_texts.check(table):
                        self._wrong(run_id, wrong)


class _Answers:
    """The full-text tables in memory: as they are in the database, and as its texts make them."""

    def __init__(
        self, connection: sqlite3.Connection, memory: sqlite3.Connection, progress: Callable[[], None]
    ) -> None:
        """Raises: sqlite3.Error."""
        self._connection, self._memory, self._progress = connection, memory, progress
        for statement in index.statements():
            memory.execute(statement)
        for table in index.FULL_TEXT:
            fresh = index.own_objects()[table][2] or ""
            fresh = fresh.replace("content='search_texts', content_rowid='id'", "content=''")
            memory.execute(fresh.replace(f"TABLE {table} ", f"TABLE fresh_{table} "))
        rows = connection.execute("SELECT id, run, dense, text FROM search_texts")
        while part := rows.fetchmany(_AT_ONCE // 10):
            progress()
            memory.executemany("INSERT INTO search_texts (id, run, dense, text) VALUES (?, ?, ?, ?)", part)
            for table, texts in zip(index.FULL_TEXT, (part, [row for row in part if row[2]]), strict=True):
                memory.executemany(
                    f"INSERT INTO fresh_{table} (rowid, text) VALUES (?, ?)",  # noqa: S608  own names
                    [(text_id, text) for text_id, _, _, text in texts],
                )

    def check(self, table: str) -> Iterator[tuple[str | None, str]]:
        """Yields each run, or None, and what one table answers wrongly. Raises: sqlite3.Error, OverflowError."""
        config = self._connection.execute(f"SELECT k, v FROM {table}_config ORDER BY k").fetchall()  # noqa: S608  own names
        if config != index.CONFIG:
            yield None, f"{table}_config was changed: words may be looked for in another way"
        self._copy(table)
        wrong = self._other_texts(table)
        found = Counter(run_id for _, run_id in self._connection.execute(_RUNS_OF_TEXTS, (str(wrong),)))
        for run_id, number in found.items():
            if run_id is None:
                yield None, "a search answers with texts that are not there, or in another order"
            else:
                yield str(run_id), f"a search does not find {number:,} of its texts by their words"
        if not wrong:
            self._memory.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 0)")  # noqa: S608  own names
            if (unfound := self._unfound(table)) is not None:
                yield None, f"{table}: a search for {unfound!r} does not find all its texts"

    def _copy(self, table: str) -> None:
        for shadow, columns in (("data", "id, block"), ("idx", "segid, term, pgno")):
            self._memory.execute(f"DELETE FROM {table}_{shadow}")  # noqa: S608  own names
            marks = ", ".join("?" * (columns.count(",") + 1))
            self._memory.executemany(
                f"INSERT INTO {table}_{shadow} ({columns}) VALUES ({marks})",  # noqa: S608  own names
                self._connection.execute(f"SELECT {columns} FROM {table}_{shadow}"),  # noqa: S608  own names
            )
        self._memory.commit()  # SQLite reads its own tables again only after a change by somebody else
        for name in (table, f"fresh_{table}"):
            self._memory.execute(
                f"CREATE VIRTUAL TABLE temp.tokens_{name} USING fts5vocab('main', '{name}', 'instance')"
            )

    def _other_texts(self, table: str) -> list[int]:
        """Returns ids of texts whose words are not all found in them, or found where they are not."""
        there, own = (
            self._memory.execute(f"SELECT term, doc, offset FROM tokens_{name}")  # noqa: S608  own names
            for name in (table, f"fresh_{table}")
        )
        for number, (row, wanted) in enumerate(zip_longest(there, own)):
            if row != wanted:
                break
            if not number % _AT_ONCE:
                self._progress()
        else:
            return []
        there.close()
        own.close()
        a, b = (f"SELECT term, doc, offset FROM tokens_{name}" for name in (table, f"fresh_{table}"))  # noqa: S608  own names
        query = (
            f"SELECT DISTINCT doc FROM (SELECT * FROM ({a} EXCEPT {b}) UNION ALL SELECT * FROM ({b} EXCEPT {a})) "  # noqa: S608  own names
            "ORDER BY doc LIMIT ?"
        )
        # In another order, the same words are found, or none: nobody knows in which texts.
        return [int(doc) for (doc,) in self._memory.execute(query, (_MOST_NAMED,))] or [0]

    def _unfound(self, table: str) -> str | None:
        """Returns a word of the table that a search does not find in all its texts: where it is was changed."""
        self._memory.execute(f"CREATE VIRTUAL TABLE temp.words_{table} USING fts5vocab('main', 'fresh_{table}', 'row')")
        query = f"SELECT count(*) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC)"  # noqa: S608  own names
        for number, (term, texts) in enumerate(self._memory.execute(f"SELECT term, doc FROM words_{table}")):  # noqa: S608  own names
            if number % _AT_ONCE == 0:
                self._progress()
            ((found,),) = self._memory.execute(query, (quoted(term),))
            if found != texts:
                return str(term)
        return None

"""Searching the runs of a store: texts, runs, the egress ledger, and sums for an audit."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from conductor_core.errors import BadInput, StoreError
from storage.database.connections import Database
from storage.encoding import read_models
from storage.log import queries
from storage.records import RunSummary
from storage.search import hits, index, ledger
from storage.search.failures import EVERYTHING, Catalogue, Failure, Narrowed
from storage.search.filters import FACETS, Facet, Filters, Words, read_words
from storage.search.hits import Count, Hits, Texts
from storage.search.index import Change, Indexer, Lag
from storage.search.ledger import LedgerCall, Receivers, Spending

log = logging.getLogger(__name__)

KEEP_UP_S = 3.0
_STATE = "SELECT (SELECT max(sequence) FROM events), (SELECT count(*) FROM deletions)"
ALL = Filters()
"""All runs."""
Notify = Callable[[int, int], None]
"""Told how much is done, and how much there is."""


class RunSearch(Indexer):
    """What can be asked about all runs of one database. Any thread may use it; all methods raise StoreError.

    It sees what ``catch_up`` has taken in, apart from ``receipt``, which reads the events. ``lag`` says what it does
    not see. ``typed`` is what a person typed (``filters.read_words``): BadInput if nothing can be found by it.
    """

    def __init__(self, database: Database, change: Change) -> None:
        super().__init__(database, change)
        self.receipt = partial(ledger.receipt, database.reading, database.vault)
        self._stop = threading.Event()
        self._of_events = threading.Lock()
        self._last: tuple[object, sqlite3.Connection] | None = None
        self._keeper: threading.Thread | None = None

    def keep_up(self) -> None:
        """Catches up every few seconds from now on, in a thread of its own, until the store is closed."""
        self._keeper = threading.Thread(target=self._keep_up, name="search-index", daemon=True)
        self._keeper.start()

    def _keep_up(self) -> None:
        reported = ""
        while not self._stop.wait(KEEP_UP_S):
            fault = ""
            try:
                self.catch_up(pause_share=1.0, stop=self._stop)
            except Exception as error:
                fault = repr(error)
                if fault != reported:  # of a StoreError, its message says all
                    level, trace = (logging.WARNING, None) if isinstance(error, StoreError) else (logging.ERROR, error)
                    log.log(level, "the search index cannot be brought up to date: %s", error, exc_info=trace)
            reported = fault

    def close(self) -> None:
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join()
        with self._of_events:
            self._forget_last()

    def _forget_last(self) -> None:
        if self._last is not None:
            self._last[1].close()
            self._last = None

    def lag(self) -> Lag:
        with self._reading() as connection:
            reached, _ = index.read_state(connection)
            return Lag(*connection.execute(index.LAG, (reached, *index.AT_REST_KINDS)).fetchone())

    def texts(
        self, typed: str, only: Filters = ALL, field: str | None = None, before: int | None = None, limit: int = 20
    ) -> Hits:
        """Returns a page of texts that hold the words; none if nothing was typed. ``field``: as ``reading.FIELDS``."""
        with self._texts(typed, only, field) as (_, found):
            return Hits(hits=(), before=None) if found is None else found.page(before, limit)

    def count(self, typed: str, only: Filters = ALL, field: str | None = None) -> Count:
        """Counts the texts that hold the words and their runs; if nothing was typed, the runs alone."""
        with self._texts(typed, only, field) as (connection, found):
            if found is not None:
                return found.count()
            runs = len(hits.read_run_ids(connection, only, limit=hits.MOST_COUNTED + 1))
            return Count(texts=0, runs=min(runs, hits.MOST_COUNTED), more=runs > hits.MOST_COUNTED)

    def runs(self, only: Filters = ALL, before: int | None = None, limit: int = 20) -> list[RunSummary]:
        """Returns runs, newest first; ``before``: the ``sequence`` of the last run of the page before."""
        found: list[RunSummary] = []
        with self._reading() as connection:
            for run, run_id in hits.read_run_ids(connection, only, before, limit):
                row = queries.read_row(connection, run_id)
                try:
                    found.append(queries.summary(row or {}))
                except (KeyError, ValueError, TypeError):  # a damaged row: the run itself may be whole
                    found.append(RunSummary(run_id=run_id, sequence=run))
        return found

    def run_ids(
        self, typed: str, only: Filters, field: str | None, most: int, notify: Callable[[int], None]
    ) -> list[str]:
        """Returns the ids of all runs that a search finds, newest first, at most ``most``; looks as long as it takes.

        ``notify``: how many were found so far. What it raises ends the search.
        """
        with self._texts(typed, only, field) as (connection, found):
            if found is not None:
                return found.run_ids(most, notify)
            return [run_id for _, run_id in hits.read_run_ids(connection, only, limit=most)]

    def facets(self) -> list[Facet]:
        """Returns all values that filters can ask for, with the number of their runs."""
        with self._reading() as connection:
            return read_models(Facet, connection, FACETS)

    def receivers(self, typed: str = "", only: Filters = ALL, notify: Notify | None = None) -> Receivers:
        """Returns each server that was sent anything, or a text that holds the words.

        If the index knows none, the events are read. ``notify``: told of the runs that were read then.
        """
        words = read_words(typed)
        with self._reading() as connection:
            found = ledger.read_receivers(connection, words, only)
        if found.receivers:
            return found
        with self._afresh(words, only, notify) as memory:
            return ledger.read_receivers(memory, words, only).model_copy(update={"from_events": True})

    def calls(
        self,
        typed: str = "",
        only: Filters = ALL,
        receiver: tuple[str, str] | None = None,
        before: int | None = None,
        limit: int = 20,
    ) -> Sequence[LedgerCall]:
        """Returns a page of the ledger, from the events if the index knows no call at all.

        ``receiver``: only calls to this provider and host.
        """
        words = read_words(typed)
        with self._reading() as connection:
            found = ledger.read_calls(connection, words, only, receiver, before, limit)
        if found or before is not None:
            return found
        with self._afresh(words, only) as memory:
            return ledger.read_calls(memory, words, only, receiver, before, limit)

    def spending(self, only: Filters = ALL) -> list[Spending]:
        with self._reading() as connection:
            return ledger.read_spending(connection, only)

    @contextmanager
    def catalogue(self, only: Filters = ALL, narrowed: Narrowed = EVERYTHING) -> Iterator[Catalogue]:
        """Lends the catalogue of failures."""
        with self._reading() as connection:
            yield Catalogue(connection, only, narrowed)

    def failures(self, only: Filters = ALL, narrowed: Narrowed = EVERYTHING) -> list[Failure]:
        with self.catalogue(only, narrowed) as catalogue:
            return catalogue.by_code()

    @contextmanager
    def _texts(self, typed: str, only: Filters, field: str | None) -> Iterator[tuple[sqlite3.Connection, Texts | None]]:
        words = read_words(typed)
        with self._reading() as connection:
            yield connection, None if words is None else Texts(connection, words, only, [field] if field else [])

    @contextmanager
    def _afresh(self, words: Words | None, only: Filters, notify: Notify | None = None) -> Iterator[sqlite3.Connection]:
        """Lends an index of the events themselves. The last one is kept until there are other events or questions."""
        question = (words, only.model_dump_json(), *self._database.row(_STATE))
        with self._of_events:
            if self._last is None or self._last[0] != question:
                self._forget_last()
                vault = self._database.vault
                self._last = question, ledger.index_of(self._database.reading, vault, words, only, notify)
            yield self._last[1]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._database.reading() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'search_state'").fetchall():
                raise StoreError(
                    f"the database {self._database.path} has no search index: build it again with "
                    "`conductor log search --rebuild`"
                )
            try:
                yield connection
            except sqlite3.OperationalError as error:
                if "fts5" not in str(error):
                    raise
                raise BadInput(f"this cannot be searched for: {error}") from error

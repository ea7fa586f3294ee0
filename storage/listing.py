"""Lists runs from the rows of ``runs``. It checks each row against the run's events, from which it was folded."""

import sqlite3
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_core import trace as folding
from conductor_core.errors import RunUnreadable, StoreDamaged
from conductor_core.spending import interruption
from conductor_core.trace import RunTrace
from storage import deleting, failures, queries
from storage.live_runs import changing_columns, fixed_columns
from storage.queries import Search
from storage.reading import read_run
from storage.records import ERASED, UNREADABLE_STATUSES, RunSummary, unreadable_status
from storage.vault import Vault

_PAGE_ROWS = 200

Row = Mapping[str, Any]


class Listing:
    """Lists the runs of one database. It checks a run that has ended and is whole only once, until ``doubt``.

    Attributes:
        fault: what was wrong with the file when runs were last listed. All that could be read was listed.
    """

    def __init__(self, path: Path, stopped: Set[str], vault: Vault) -> None:
        """``stopped``: runs to show as interrupted though no event says so."""
        self._path, self._vault = path, vault
        self._stopped = stopped
        self._whole: set[str] = set()
        self.fault: StoreDamaged | None = None

    def doubt(self, run_id: str) -> None:
        """Makes the next listing check the run again."""
        self._whole.discard(run_id)

    def read(self, connection: sqlite3.Connection, search: Search) -> list[RunSummary]:
        """Returns the runs that ``search`` finds, newest first. Raises: StoreError."""
        self.fault = None
        try:
            with failures.translated(self._path):
                return self._read(connection, search)
        except StoreDamaged as error:
            self.fault = error
        return [run for run in self._salvaged(connection) if search.finds(run)][: search.limit]

    def _read(self, connection: sqlite3.Connection, search: Search) -> list[RunSummary]:
        if search.status not in UNREADABLE_STATUSES:
            return [self._checked(connection, row) for row in queries.read_rows(connection, search)]
        found: list[RunSummary] = []
        page = replace(search, limit=_PAGE_ROWS, status=None)
        more = True
        while more and len(found) < search.limit:
            rows = queries.read_rows(connection, page)
            found += [run for row in rows if (run := self._checked(connection, row)).status == search.status]
            more = len(rows) == _PAGE_ROWS
            if more:
                page = replace(page, before=rows[-1]["sequence"])
        return found[: search.limit]

    def _checked(self, connection: sqlite3.Connection, row: Row) -> RunSummary:
        run_id = row["run_id"]
        filed: RunSummary | None = None
        with suppress(KeyError, ValueError, TypeError):  # the row is damaged; the run itself may be whole
            filed = queries.summary(row)
        if filed is not None and filed.status == ERASED:
            erasure = deleting.read_deletion(connection, run_id)
            return filed.model_copy(update={"damage": None if erasure is None else erasure.in_words})
        if filed is not None and run_id in self._whole:
            return filed
        try:
            with failures.translated(self._path):
                trace = read_run(connection, run_id, self._vault).trace
        except (RunUnreadable, StoreDamaged) as error:
            return _unreadable(row, filed, error)
        if run_id in self._stopped:
            interrupt(trace)
        found = _summary_of(trace, row)
        if trace.ended and filed == found:
            self._whole.add(run_id)
        return found

    def _salvaged(self, connection: sqlite3.Connection) -> list[RunSummary]:
        """Returns all runs of a file in which some rows cannot be read, newest first."""
        ids: dict[str, None] = {}
        # Each query reads only an index. If one index is broken, the other may be whole.
        for query in ("SELECT run_id FROM runs", "SELECT DISTINCT run_id FROM events"):
            with suppress(sqlite3.Error):
                ids.update(dict.fromkeys(run_id for (run_id,) in connection.execute(query)))
        found = [self._checked(connection, _row(connection, run_id)) for run_id in ids]
        return sorted(found, key=lambda run: run.sequence, reverse=True)


def interrupt(trace: RunTrace) -> None:
    """Ends the trace of a dead process's run as ``run.interrupted`` will once that can be written."""
    if not trace.ended:
        folding.apply(trace, interruption(trace))


def _row(connection: sqlite3.Connection, run_id: str) -> Row:
    """Returns the run's row. If it cannot be read, takes the run's place from the index of events."""
    with suppress(sqlite3.Error):
        row = queries.read_row(connection, run_id)
        if row is not None:
            return row
    sequence: int | None = None
    with suppress(sqlite3.Error):
        ((sequence,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    return {"run_id": run_id, "sequence": sequence}


def _summary_of(trace: RunTrace, row: Row) -> RunSummary:
    return queries.summary(fixed_columns(trace, _sequence(row)) | changing_columns(trace))


def _unreadable(row: Row, filed: RunSummary | None, error: RunUnreadable | StoreDamaged) -> RunSummary:
    """Returns what is known of a run that cannot be read to its end, marked as such."""
    if filed is None and isinstance(error, RunUnreadable) and error.trace is not None:
        filed = _summary_of(error.trace, row)
    if filed is None:
        filed = RunSummary(run_id=row["run_id"], sequence=_sequence(row))
    return filed.model_copy(update={"status": unreadable_status(error), "damage": str(error)})


def _sequence(row: Row) -> int:
    return sequence if isinstance(sequence := row["sequence"], int) else 0

"""Checks the tables of deletions and holds against the log, which has a record of each."""

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage.evidence.database_audit import reading
from storage.evidence.history import Report, counted

_RECORDS = (
    "SELECT run_id, record FROM leaves WHERE record IS NOT NULL AND (instr(record, '\"run.deleted\"') "
    "OR instr(record, '\"run.held\"') OR instr(record, '\"run.released\"') OR instr(record, '\"lists.recorded\"') "
    "OR instr(record, '\"log.began\"')) "
    "ORDER BY position"
)
_DELETION = (
    "run_id", "deleted_at_utc", "actor", "door", "created_at_utc", "status", "events", "events_sha256", "erased",
)  # fmt: skip
_HOLD = ("id", "run_id", "held", "at_utc", "actor", "door")
_OF_HOLD = ("held", "at_utc", "actor", "door")
_ERASED = (
    "run_id", "sequence", "created_at_utc", "status", "door", "conductor", "pool", "parent_run_id", "simulated",
    "plan_only", "topology", "agents", "steps", "steps_completed", "steps_reused", "steps_failed", "input_tokens",
    "output_tokens", "cost_usd", "duration_ms", "vocabulary", "batch_id", "batch_name", "batch_size", "known_usd",
    "cost_estimated", "actor", "imported", "imported_answers", "recorded",
)  # fmt: skip
"""What an erased run keeps in its row. Its events are gone, so its record has a digest of this."""
_ERASED_ROW = "SELECT * FROM runs WHERE run_id = ?"

Record = dict[str, object]


@dataclass
class Removals:
    """What the log has of deletions and holds, by run: the records, and the runs that went while they were held.

    ``before``: what the log says of rows that are older than such records.
    """

    deletions: dict[str, Record] = field(default_factory=dict)
    before: Record = field(default_factory=dict)
    holds: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    gone: set[str] = field(default_factory=set)

    @property
    def erased(self) -> set[str]:
        return {run_id for run_id, record in self.deletions.items() if record.get("erased")}

    @property
    def held(self) -> set[str]:
        return {run_id for run_id, records in self.holds.items() if records[-1]["held"]}


def deletion_digest(row: Mapping[str, object]) -> str:
    """Returns the digest of a row of ``deletions``, by its columns without ``id``; its record in the log has it."""
    values = [row.get(name) for name in _DELETION[:-1]] + [int(bool(row["erased"]))]
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def read_removals(connection: sqlite3.Connection) -> Removals:
    """Returns what the log says. Damaged records are findings about the evidence, and are passed over here."""
    found = Removals()
    for run_id, text in connection.execute(_RECORDS).fetchall():
        record = _record(text)
        run_id = str(record.get("run", run_id))
        match record.get("kind"):
            case "run.held" | "run.released" as kind:
                found.holds[run_id].append({**record, "held": kind == "run.held"})
            case "run.deleted":
                found.gone |= found.held & {run_id}
                found.deletions[run_id] = record
            case "lists.recorded":
                found.before = record
            case "log.began" if record.get("lists_recorded") is True:
                found.before = {name: [0, digest_of([])] for name in ("deletions", "holds", "erased")}
    return found


def digest_of(rows: Iterable[Sequence[object]]) -> str:
    """Returns the digest of rows of a list, as a record has it."""
    return hashlib.sha256(json.dumps([list(row) for row in rows], default=repr).encode()).hexdigest()


def erased_row(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> Sequence[object]:
    """Returns what is kept of an erased run in its row, None for what an older version lacks; nothing, if it has none.

    Raises: sqlite3.Error.
    """
    cursor = connection.execute(_ERASED_ROW, (run_id,))
    row = cursor.fetchone()
    if row is None:
        return ()
    kept = dict(zip((name for name, *_ in cursor.description), row, strict=True))
    return [kept.get(name) for name in _ERASED]


def check_removals(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    """Compares both tables with the log, and erased rows. Rows that are older than such records have a digest there.

    In a database that no program with ``lists.recorded`` has opened, what is older than all records is not compared.
    """
    for run_id in sorted(logged.gone):
        report.add("derived", run_id, None, "the run was held when it was deleted or erased")
    with reading(report, "the table deletions"):
        _check_deletions(connection, logged, report)
    with reading(report, "the table holds"):
        _check_holds(connection, logged, report)
    with reading(report, "the rows of erased runs"):
        _check_erased_rows(connection, logged, report)


def _check_before(rows: Sequence[Sequence[object]], logged: Removals, table: str, report: Report) -> bool:
    """Compares the rows of before. Returns whether the log says nothing of such rows."""
    said = logged.before.get(table)
    if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], int):
        return True
    if digest_of(rows[: said[0]]) != said[1]:
        what = f"of the table {table}, what is older than its records in the log is not as it was: {said[0]} rows"
        report.add("derived", None, None, what)
    return False


def _check_deletions(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    cursor = connection.execute("SELECT * FROM deletions ORDER BY id")
    names = [name for name, *_ in cursor.description]
    found = [dict(zip(names, each, strict=True)) for each in cursor]
    rows = {str(row.get("run_id")): row for row in found}
    if len(rows) < len(found):
        report.add("derived", None, None, "the table of deletions has a run twice")
    old = _check_before([[row.get(name) for name in ("id", *_DELETION)] for row in found], logged, "deletions", report)
    for run_id in sorted(logged.deletions.keys() - rows.keys()):
        report.add(
            "derived", run_id, None, "the log says that the run was deleted, and the table of deletions does not"
        )
    recorded = [run_id for run_id in rows if run_id in logged.deletions]
    if recorded != [run_id for run_id in logged.deletions if run_id in rows]:
        report.add("derived", None, None, "the table of deletions has runs in another order than the log")
    before = _older(logged, "deletions")
    seen = False
    for number, (run_id, row) in enumerate(rows.items()):
        record = logged.deletions.get(run_id)
        seen = seen or record is not None
        if record is None:
            if seen if old else number >= before:
                report.add("derived", run_id, None, "the table of deletions has the run, and no record in the log does")
        elif wrong := _wrong(record, row):
            report.add("derived", run_id, None, f"the table of deletions differs from the log: {wrong}")


def _older(logged: Removals, table: str) -> int:
    said = logged.before.get(table)
    return said[0] if isinstance(said, list) and said and isinstance(said[0], int) else 0


def _check_erased_rows(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    older = []
    for run_id in sorted(logged.erased):
        row, said = erased_row(connection, run_id), logged.deletions[run_id].get("run_sha256")
        if not row:
            report.add("derived", run_id, None, "the run was erased, and lists do not show it")
        elif said is None:
            older.append(row)
        elif digest_of([row]) != said:
            report.add("derived", run_id, None, "the row of the erased run is not as it was left")
    if older and _check_before(older, logged, "erased", report):
        are = counted(len(older), "erased run is", "erased runs are")
        report.notes.append(f"the rows of {are} not compared: the log has no digest of them yet")


def _wrong(record: Record, row: Mapping[str, object]) -> str:
    """Names what the log says otherwise; empty: nothing."""
    said = {**record, "deleted_at_utc": record.get("at_utc")}
    kept = {**row, "actor": _actor(row.get("actor")), "erased": bool(row.get("erased"))}
    said["erased"] = bool(record.get("erased"))
    wrong = [name for name in ("deleted_at_utc", "actor", "door", "erased") if kept.get(name) != said.get(name)]
    if not wrong and record.get("row_sha256") != deletion_digest({"erased": False, **row}):
        wrong = ["what it says of the run"]
    return ", ".join(wrong)


def _check_holds(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    cursor = connection.execute("SELECT * FROM holds ORDER BY id")
    names = [name for name, *_ in cursor.description]
    found = [dict(zip(names, each, strict=True)) for each in cursor]
    old = _check_before([[row.get(name) for name in _HOLD] for row in found], logged, "holds", report)
    before = _older(logged, "holds")
    rows: dict[str, list[Record]] = defaultdict(list)
    for number, row in enumerate(found):
        kept = {**row, "id": number, "actor": _actor(row.get("actor"))}
        rows[str(row.get("run_id"))].append(kept)
    now = {run_id for run_id, of_run in rows.items() if of_run[-1].get("held")}
    recorded: list[int] = []
    wrong = set(logged.gone)
    for run_id, records in sorted(logged.holds.items()):
        kept_of_run = rows.pop(run_id, [])
        older, last = kept_of_run[: -len(records)], kept_of_run[-len(records) :]
        logged_holds = [[record.get(name) for name in _OF_HOLD] for record in records]
        if run_id in logged.held - logged.gone - now:
            report.add("derived", run_id, None, "the log says that the run is held, and the table of holds does not")
            wrong.add(run_id)
        elif run_id not in wrong and [[row.get(name) for name in _OF_HOLD] for row in last] != logged_holds:
            report.add("derived", run_id, None, "the table of holds differs from the log")
            wrong.add(run_id)
        recorded += [int(str(row["id"])) for row in last]
        rows[run_id] = older
    first = min(recorded, default=None) if old else before
    for run_id, unrecorded in sorted(rows.items()):
        if first is not None and run_id not in wrong and any(int(str(row["id"])) >= first for row in unrecorded):
            report.add("derived", run_id, None, "the table of holds has the run, and no record in the log does")


def _actor(stored: object) -> object:
    """Returns the actor of a column as a record has it."""
    return _record(stored) or stored


def _record(text: object) -> Record:
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}

"""Checks the tables of deletions and holds against the log, which has a record of each."""

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.evidence.history import Report

_RECORDS = (
    "SELECT run_id, record FROM leaves WHERE record IS NOT NULL AND (instr(record, '\"run.deleted\"') "
    "OR instr(record, '\"run.held\"') OR instr(record, '\"run.released\"')) ORDER BY position"
)
_DELETION = (
    "run_id", "deleted_at_utc", "actor", "door", "created_at_utc", "status", "events", "events_sha256", "erased",
)  # fmt: skip
_HOLDS = "SELECT id, run_id, held, at_utc, actor, door FROM holds ORDER BY id"
_OF_HOLD = ("held", "at_utc", "actor", "door")

Record = dict[str, object]


@dataclass
class Removals:
    """What the log has of deletions and holds, by run: the records, and the runs that went while they were held."""

    deletions: dict[str, Record] = field(default_factory=dict)
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
    values = [row[name] for name in _DELETION[:-1]] + [int(bool(row["erased"]))]
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def read_removals(connection: sqlite3.Connection) -> Removals:
    """Returns what the log says. Damaged records are findings about the evidence, and are passed over here."""
    found = Removals()
    for run_id, text in connection.execute(_RECORDS).fetchall():
        record, run_id = _record(text), str(run_id)
        match record.get("kind"):
            case "run.held" | "run.released" as kind:
                found.holds[run_id].append({**record, "held": kind == "run.held"})
            case "run.deleted":
                found.gone |= found.held & {run_id}
                found.deletions[run_id] = record
    return found


def check_removals(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    """Compares both tables with the log. Rows of before the log had such records are older than all that it has."""
    for run_id in sorted(logged.gone):
        report.add("derived", run_id, None, "the run was held when it was deleted or erased")
    _check_deletions(connection, logged, report)
    _check_holds(connection, logged, report)


def _check_deletions(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    cursor = connection.execute("SELECT * FROM deletions ORDER BY id")
    names = [name for name, *_ in cursor.description]
    rows = {str(row["run_id"]): row for row in (dict(zip(names, each, strict=True)) for each in cursor)}
    for run_id in sorted(logged.deletions.keys() - rows.keys()):
        report.add(
            "derived", run_id, None, "the log says that the run was deleted, and the table of deletions does not"
        )
    first = min((int(row["id"]) for run_id, row in rows.items() if run_id in logged.deletions), default=None)
    for run_id, row in rows.items():
        record = logged.deletions.get(run_id)
        if record is None:
            if first is not None and int(row["id"]) > first:
                report.add("derived", run_id, None, "the table of deletions has the run, and no record in the log does")
        elif wrong := _wrong(record, row):
            report.add("derived", run_id, None, f"the table of deletions differs from the log: {wrong}")


def _wrong(record: Record, row: Mapping[str, object]) -> str:
    """Names what the log says otherwise; empty: nothing."""
    said = {**record, "deleted_at_utc": record.get("at_utc")}
    kept = {**row, "actor": _actor(row["actor"]), "erased": bool(row.get("erased"))}
    said["erased"] = bool(record.get("erased"))
    wrong = [name for name in ("deleted_at_utc", "actor", "door", "erased") if kept[name] != said.get(name)]
    if not wrong and record.get("row_sha256") != deletion_digest({"erased": False, **row}):
        wrong = ["what it says of the run"]
    return ", ".join(wrong)


def _check_holds(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    rows: dict[str, list[Record]] = defaultdict(list)
    for number, run_id, held, at_utc, actor, door in connection.execute(_HOLDS):
        row = {"id": number, "held": bool(held), "at_utc": at_utc, "actor": _actor(actor), "door": door}
        rows[str(run_id)].append(row)
    now = {run_id for run_id, of_run in rows.items() if of_run[-1]["held"]}
    recorded: list[int] = []
    for run_id, records in sorted(logged.holds.items()):
        kept = rows.pop(run_id, [])
        older, last = kept[: -len(records)], kept[-len(records) :]
        logged_holds = [[record.get(name) for name in _OF_HOLD] for record in records]
        if run_id in logged.held - logged.gone - now:
            report.add("derived", run_id, None, "the log says that the run is held, and the table of holds does not")
        elif run_id not in logged.gone and [[row[name] for name in _OF_HOLD] for row in last] != logged_holds:
            report.add("derived", run_id, None, "the table of holds differs from the log")
        recorded += [int(str(row["id"])) for row in last]
        rows[run_id] = older
    first = min(recorded, default=None)
    for run_id, unrecorded in sorted(rows.items()):
        if first is not None and any(int(str(row["id"])) > first for row in unrecorded):
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

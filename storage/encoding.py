"""Turns events and traces into the text that is stored, and back."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticSerializationError

from conductor_core.chat import messages
from conductor_core.errors import BadInput, UnknownRun
from conductor_core.run import actor, events, request, trace, values
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.events import EVENT, Event
from conductor_core.text import whole_characters
from conductor_core.workflow import model
from storage.merkle.formats import text_of
from storage.privacy import Vault
from storage.records import ERASED


def encode(event: Event) -> tuple[Event, str]:
    """Returns ``event`` as it is stored, and its JSON.

    A provider's JSON can hold a lone UTF-16 surrogate, which has no UTF-8 form. It is stored as U+FFFD. The returned
    event holds U+FFFD, too, so that live readers and later ones see the same.
    """
    try:
        return event, event.model_dump_json()
    except PydanticSerializationError:
        event = storable(event)
        return event, event.model_dump_json()


def storable(event: Event) -> Event:
    """Returns ``event`` with U+FFFD for each lone surrogate."""
    whole: Event = EVENT.validate_python(_without_surrogates(event.model_dump()))
    return whole


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return whole_characters(value)
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
    return value


# As bytes, and never NULL: text that is not UTF-8 any more, or is missing, is damage to report, not a failure to read.
_EVENTS = (
    "SELECT sequence, CAST(ifnull(kind, '') AS BLOB), CAST(ifnull(at_utc, '') AS BLOB), "
    "CAST(ifnull(payload, '') AS BLOB) FROM events WHERE run_id = ? AND sequence > ? AND {} ORDER BY sequence LIMIT ?"
)

StoredRow = tuple[int, bytes, bytes, bytes]
"""An event as it lies in the database: its sequence, kind, time and payload."""


def stored_rows(
    connection: sqlite3.Connection, run_id: str, after: int = 0, limit: int | None = None, only: str = "true"
) -> list[StoredRow]:
    """Returns a run's events after ``after``, in order. ``only``: a further condition, as SQL."""
    bound = (run_id, after, -1 if limit is None else limit)
    found: list[StoredRow] = connection.execute(_EVENTS.format(only), bound).fetchall()
    return found


def stored_line(sequence: int, kind: bytes, at_utc: bytes, payload: bytes) -> bytes:
    """Returns an event's part of the digest of its run's events: all its columns as stored, but the run's id."""
    return b"%d %b %b\n%b\n" % (sequence, kind, at_utc, payload)


def last_number(connection: sqlite3.Connection | sqlite3.Cursor, table: str, column: str = "id") -> int:
    """Returns the highest number that rows of the table ever had. None is given twice, also after its row went with its
    run: proofs and records in the log name it."""
    query = (
        f"SELECT max(coalesce((SELECT max({column}) FROM {table}), 0), coalesce((SELECT seq FROM sqlite_sequence "  # noqa: S608  own names
        f"WHERE name = '{table}' AND typeof(seq) = 'integer'), 0))"
    )
    return int(connection.execute(query).fetchone()[0])


def add_rows(cursor: sqlite3.Cursor, table: str, *rows: Mapping[str, object]) -> None:
    """Adds rows that have the same columns."""
    names = list(rows[0])
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES (:{', :'.join(names)})"  # noqa: S608  own names
    cursor.executemany(statement, rows)


def has_run(cursor: sqlite3.Cursor, run_id: str) -> bool:
    """Whether the run is there and was not erased."""
    query = "SELECT 1 FROM runs WHERE run_id = ? AND status <> ?"
    return cursor.execute(query, (run_id, ERASED)).fetchone() is not None


class SnapshotRow(NamedTuple):
    """The columns of a snapshot (``storage.database.schema``), in their order."""

    run_id: str
    sequence: int
    fold_digest: str
    trace: str | bytes
    events_sha256: str
    sha256: str

    def holds(self) -> bool:
        """Whether the snapshot is as it was written."""
        return self.sha256 == _sha256(*self[:-1])


def snapshot_row(trace: trace.RunTrace, sequence: int, events_sha256: str, vault: Vault) -> SnapshotRow:
    """Returns the snapshot of a run after the event ``sequence``. ``events_sha256``: digest of its events so far."""
    folded = vault.seal(trace.run_id, snapshot_place(sequence), trace.model_dump_json())
    columns = (trace.run_id, sequence, fold_digest(), folded, events_sha256)
    return SnapshotRow(*columns, _sha256(*columns))


def snapshot_place(sequence: int) -> str:
    return f"snapshot {sequence}"


def _sha256(*values: object) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value + b"\n" if isinstance(value, bytes) else f"{value}\n".encode())
    return digest.hexdigest()


@cache
def fold_digest() -> str:
    """Returns a digest of the code that folds events, because a snapshot of other code may mean something else."""
    digest = hashlib.sha256()
    for module in (model, messages, actor, values, request, events, trace):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]


def row_digest(row: Mapping[str, object], columns: Iterable[str]) -> str:
    """Returns the digest of these columns of a row; the record in the log that came with the row has it."""
    return hashlib.sha256(json.dumps([row.get(name) for name in columns], default=repr).encode()).hexdigest()


def caller_columns(caller: Caller) -> tuple[str | None, str]:
    return None if caller.actor is None else caller.actor.model_dump_json(), caller.door or ""


def caller_fields(caller: Caller) -> dict[str, Any]:
    """Returns the fields of a record in the log that say who caused it."""
    actor = None if caller.actor is None else caller.actor.model_dump(mode="json")
    return {"actor": actor, "door": caller.door or ""}


def read_caller(actor: object, door: object) -> Caller:
    """Reads the columns ``actor`` and ``door``. Raises: ValueError if they are damaged."""
    known = None if actor is None else Actor.model_validate_json(text_of(actor))
    return Caller.model_validate({"actor": known, "door": door or None})


def the_one_run(prefix: str, found: list[str], unknown: UnknownRun) -> str:
    """Returns the one run among those ``found`` whose ids begin with ``prefix``. Raises: ``unknown``; BadInput."""
    if not found:
        raise unknown
    if prefix in found:
        return prefix
    if len(found) > 1:
        shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise BadInput(f"several runs begin with {prefix!r}: {shown}; give more of the id")
    return found[0]


def read_time(stored: object) -> datetime | None:
    """Reads a moment as this program writes it. Returns None for any other value."""
    try:
        moment = datetime.fromisoformat(stored) if isinstance(stored, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment


Moment = Annotated[datetime | None, BeforeValidator(read_time)]
Text = Annotated[str, BeforeValidator(text_of)]
_Model = TypeVar("_Model", bound=BaseModel)


def read_models(
    model: type[_Model], connection: sqlite3.Connection, query: str, bound: dict[str, Any] | tuple[object, ...] = ()
) -> list[_Model]:
    """Returns the rows of a query, whose columns are the first fields of ``model``. Raises: sqlite3.Error."""
    names = list(model.model_fields)
    return [
        model.model_validate(dict(zip(names, row, strict=False))) for row in connection.execute(query, bound).fetchall()
    ]


def count_of(column: str) -> str:
    """Returns the SQL of the sum of a column of whole numbers. SQLite's ``sum`` fails beyond 2**63; this ends there."""
    return f"CAST(total({column}) AS INTEGER)"


def read_count(stored: object) -> int:
    """Reads a count. Returns 0 for any other value."""
    return stored if isinstance(stored, int) and stored >= 0 else 0

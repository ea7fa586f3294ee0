"""Responses of the endpoint that a client deleted. Their runs stay, and with a run its deleted responses go."""

import re
import sqlite3
from datetime import UTC, datetime

from conductor_core.errors import UnknownRun
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import Caller
from storage.database.connections import Change, Database
from storage.encoding import caller_columns, caller_fields, row_digest
from storage.merkle.chain import add_record
from storage.records import ERASED

DELETED = "response.deleted"
"""The kind of their records."""
COLUMNS = ("response_id", "run_id", "at_utc", "actor", "door")
_ID = re.compile(r"resp_([0-9a-f]{12})([0-9a-f]{16})_\d{1,6}")
_INSERT = (
    "INSERT OR IGNORE INTO deleted_responses (response_id, run_id, at_utc, actor, door) "
    "VALUES (:response_id, :run_id, :at_utc, :actor, :door)"
)
_HAS = "SELECT 1 FROM runs WHERE run_id = ? AND status <> ?"


class DeletedResponses:
    """The deleted responses of one database. Any thread may use it. All methods raise StoreError."""

    def __init__(self, database: Database, change: Change) -> None:
        self._database, self._change = database, change

    def deleted(self, response_id: str) -> bool:
        return self._database.row("SELECT 1 FROM deleted_responses WHERE response_id = ?", (response_id,)) is not None

    def delete(self, response_id: str, caller: Caller) -> None:
        """Notes, on record, that ``caller`` deleted the response. Raises: UnknownRun if there is no run of it."""
        found = _ID.fullmatch(response_id)
        run_id = "" if found is None else f"{found[1]}-{found[2]}"
        now, (actor, door) = datetime.now(UTC).isoformat(), caller_columns(caller)
        row = {"response_id": response_id, "run_id": run_id, "at_utc": now, "actor": actor, "door": door}

        def insert(cursor: sqlite3.Cursor) -> bool:
            """Returns whether a run has this response."""
            if cursor.execute(_HAS, (run_id, ERASED)).fetchone() is None:
                return False
            if cursor.execute(_INSERT, row).rowcount:
                said = {"response": response_id, "at_utc": now, "row_sha256": row_digest(row, COLUMNS)}
                add_record(cursor, DELETED, run_id, **said, **caller_fields(caller))
            return True

        if not self._change(insert):
            raise UnknownRun(f"no run in this database has the response {one_line(response_id, limit=80)}")

"""Reads which runs were deleted or erased, when, and who did so."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from conductor_core.run.actor import Caller
from storage.encoding import read_caller, read_text, read_time

_DELETIONS = "SELECT run_id, deleted_at_utc, actor, door, erased FROM deletions"
_GONE = "SELECT run_id FROM deletions WHERE NOT erased AND run_id NOT IN (SELECT run_id FROM runs)"


@dataclass(frozen=True)
class Deletion:
    """A run that was deleted, or erased: it then stays in lists. ``deleted_at_utc`` is None if it cannot be read."""

    run_id: str
    deleted_at_utc: datetime | None
    caller: Caller
    erased: bool = False

    @property
    def in_words(self) -> str:
        when = "" if self.deleted_at_utc is None else f" on {self.deleted_at_utc:%Y-%m-%d}"
        what = "was erased" if self.erased else "was deleted"
        rest = ": its text is gone for good, and its place in the record stays" if self.erased else ""
        return f"run {self.run_id} {what}{when} (by {self.caller.in_words}){rest}"


def read_deletions(connection: sqlite3.Connection, limit: int) -> tuple[list[Deletion], int]:
    """Returns the newest deletions, and how many there are in all."""
    rows = connection.execute(f"{_DELETIONS} ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
    ((count,),) = connection.execute("SELECT count(*) FROM deletions")
    return [_deletion(row) for row in rows], count


def read_deletion(connection: sqlite3.Connection, run_id: str) -> Deletion | None:
    """Returns when the run was deleted and who did so, or None if it was not."""
    row = connection.execute(f"{_DELETIONS} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _deletion(row)


def read_gone(connection: sqlite3.Connection) -> list[str]:
    """Returns the runs that were deleted, not erased, and that no later run has the id of."""
    return [run_id for (run_id,) in connection.execute(_GONE)]


def _deletion(row: tuple[object, object, object, object, object]) -> Deletion:
    run_id, deleted_at_utc, actor, door, erased = row
    try:
        caller = read_caller(actor, door)
    except ValueError:  # damaged
        caller = Caller()
    return Deletion(read_text(run_id), read_time(deleted_at_utc), caller, bool(erased))

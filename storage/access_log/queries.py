"""Reads from the log who viewed, exported, searched, deleted, erased, held or released what."""

import json
import sqlite3
from dataclasses import dataclass
from datetime import datetime

from conductor_core.errors import BadInput, UnknownRun
from conductor_core.run.actor import Caller
from conductor_core.workflow.model import Frozen
from storage.encoding import read_time

VIEWED, EXPORTED, SEARCHED = "content.viewed", "content.exported", "content.searched"
KINDS = {
    "viewed": "viewed",
    "exported": "exported",
    "searched": "searched",
    "erased": "erased",
    "deleted": "deleted",
    "held": "held",
    "released": "released",
    "key": "changed the key",
}
"""What a record in this list can be about, and its name for people."""
_NAMES = {
    VIEWED: "viewed",
    EXPORTED: "exported",
    SEARCHED: "searched",
    "run.deleted": "deleted",
    "run.held": "held",
    "run.released": "released",
    "key.rotated": "key",
}
_RECORDS = "SELECT position, record FROM leaves WHERE record IS NOT NULL AND position < :before"
_OF_RUN = " AND run_id = :run_id"
_NEWEST_FIRST = " ORDER BY position DESC"
_RUNS = (
    "SELECT DISTINCT run_id FROM leaves "
    "WHERE record IS NOT NULL AND substr(run_id, 1, length(:prefix)) = :prefix LIMIT 4"
)
_LAST = 2**63 - 1


class AccessRecord(Frozen):
    """A record of who did what.

    Attributes:
        position: of its entry in the log. kind: of ``KINDS``. at_utc: None if it cannot be read.
        run_id: None if it concerns no single run.
        what: what showed the content, or the form of the file. session: of a browser, while the inspector ran.
        words: digests of the words of a search. filters: the names of its filters.
    """

    position: int
    kind: str
    at_utc: datetime | None
    run_id: str | None
    caller: Caller
    what: str = ""
    session: str = ""
    words: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """Words for people, such as ``viewed: run page``."""
        said = KINDS[self.kind]
        if self.kind == "searched":
            count = f"{len(self.words)} word{'' if len(self.words) == 1 else 's'}"
            filters = f", filtered by {', '.join(self.filters)}" if self.filters else ""
            return f"{said}: {count} in {self.what}{filters}"
        return f"{said}: {self.what}" if self.what else said


@dataclass(frozen=True)
class AccessQuery:
    """Which records are asked for.

    Attributes:
        actor: the id or the name of whoever did it. kind: of ``KINDS``.
        since_utc, until_utc: at or after, and before.
        words: digests, all of which a search must have.
    """

    run_id: str | None = None
    actor: str | None = None
    kind: str | None = None
    since_utc: datetime | None = None
    until_utc: datetime | None = None
    words: tuple[str, ...] = ()

    def fits(self, record: AccessRecord) -> bool:
        actor = record.caller.actor
        return (
            (self.run_id is None or record.run_id == self.run_id)
            and (self.actor is None or (actor is not None and self.actor in (actor.id, actor.name)))
            and self.kind in (None, record.kind)
            and (self.since_utc is None or (record.at_utc is not None and record.at_utc >= self.since_utc))
            and (self.until_utc is None or (record.at_utc is not None and record.at_utc < self.until_utc))
            and set(self.words) <= set(record.words)
        )


@dataclass(frozen=True)
class Page:
    """Records, newest first. ``before``: the cursor of the next page; None: this is the last.

    ``unreadable``: how many records between these are damaged.
    """

    records: tuple[AccessRecord, ...]
    before: int | None
    unreadable: int


def read_access_records(
    connection: sqlite3.Connection, asked: AccessQuery, before: int | None = None, limit: int = 50
) -> Page:
    """Returns a page of the records that are asked for. Raises: sqlite3.Error."""
    bound = {"before": _LAST if before is None else before, "run_id": asked.run_id}
    query = _RECORDS + (_OF_RUN if asked.run_id is not None else "") + _NEWEST_FIRST
    found: list[AccessRecord] = []
    unreadable = 0
    rows = connection.execute(query, bound)
    try:
        for position, text in rows:
            try:
                record = _access_record(int(position), text)
            except (ValueError, TypeError, RecursionError):
                unreadable += 1
                continue
            if record is None or not asked.fits(record):
                continue
            if len(found) == limit:
                return Page(tuple(found), found[-1].position, unreadable)
            found.append(record)
    finally:
        rows.close()
    return Page(tuple(found), None, unreadable)


def _access_record(position: int, text: object) -> AccessRecord | None:
    """Returns None for a record of another kind. Raises: ValueError if it is damaged."""
    record = json.loads(text) if isinstance(text, str) else None
    if not isinstance(record, dict):
        raise ValueError("no record")
    kind = _NAMES.get(str(record.get("kind")))
    if kind is None:
        return None
    return AccessRecord(
        position=position,
        kind="erased" if kind == "deleted" and record.get("erased") else kind,
        at_utc=read_time(record.get("at_utc")),
        run_id=record.get("run"),
        caller=Caller.model_validate({"actor": record.get("actor"), "door": record.get("door") or None}),
        what=record.get("what") or "",
        session=record.get("session") or "",
        words=tuple(record.get("words") or ()),
        filters=tuple(record.get("filters") or ()),
    )


def resolve(connection: sqlite3.Connection, prefix: str) -> str:
    """Returns the one run whose id begins with ``prefix``, also one that is gone. Raises: UnknownRun; BadInput."""
    found = [run_id for (run_id,) in connection.execute(_RUNS, {"prefix": prefix})]
    if prefix in found:
        return prefix
    if len(found) > 1:
        raise BadInput(f"several runs begin with {prefix!r}: {', '.join(found[:3])}; give more of the id")
    if not found:
        raise UnknownRun(f"the log has no record of a run whose id begins with {prefix!r}")
    return str(found[0])

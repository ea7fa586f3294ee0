"""Logs who viewed what, off the path on which runs are written and pages are drawn.

A view is handed to the thread that writes the log, which adds it to its next transaction. Nobody waits for that but a
command that is about to end. A view that cannot be kept stops nobody: ``fault`` says why, and pages and commands show
it. Of the words of a search the log keeps digests that nobody without the master key can try guesses against.
"""

import concurrent.futures
import hashlib
import hmac
import json
import logging
import re
import sqlite3
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from conductor_core.errors import BadInput, StoreError, UnknownRun
from conductor_core.run.actor import Caller
from conductor_core.workflow.model import Frozen
from storage.database.connections import Database
from storage.encoding import caller_fields, read_time, the_one_run
from storage.merkle.chain import Entries

log = logging.getLogger(__name__)

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
    "key_created": "created a service key",
    "key_revoked": "revoked a service key",
    "response": "deleted a response",
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
    "service_key.created": "key_created",
    "service_key.revoked": "key_revoked",
    "response.deleted": "response",
}
_RUNS = (
    "SELECT DISTINCT run_id FROM leaves "
    "WHERE record IS NOT NULL AND substr(run_id, 1, length(:prefix)) = :prefix LIMIT 4"
)


class AccessRecord(Frozen):
    """A record of who did what.

    Attributes:
        position: of its entry in the log. kind: of ``KINDS``. at_utc: None if it cannot be read.
        run_id: None if it concerns no single run.
        what: what showed the content, the form of the file, the name of a service key, or a response's id.
        session: of a browser, while the inspector ran.
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
        what=record.get("what") or record.get("name") or record.get("response") or "",
        session=record.get("session") or "",
        words=tuple(record.get("words") or ()),
        filters=tuple(record.get("filters") or ()),
    )


MOST_WORDS = 64
"""So many words of one search are kept."""
_DIGITS = 16
_WORD = re.compile(r"\w+")


def digests(key: bytes, typed: str) -> tuple[str, ...]:
    """Returns the keyed digest of each word, in the order of the digests: that of the words is not kept.

    Case and accents make no difference, as in the search itself.
    """
    signs = unicodedata.normalize("NFKD", typed.encode(errors="replace").decode().casefold())
    words = dict.fromkeys(_WORD.findall("".join(sign for sign in signs if not unicodedata.combining(sign))))
    some = list(words)[:MOST_WORDS]
    return tuple(sorted(hmac.new(key, word.encode(), hashlib.sha256).hexdigest()[:_DIGITS] for word in some))


AGAIN_S = 3600.0
"""After this time a look that goes on, such as at a page that stays open, counts as another one."""
_RETRY_S = 5.0
"""The time before a look that could not be kept is tried again."""
_MOST_REMEMBERED = 20_000
_now_s = time.monotonic
_SHIPPED = "SELECT 1 FROM runs WHERE run_id = ? AND recorded"

Change = Callable[[Callable[[sqlite3.Cursor], None]], "concurrent.futures.Future[None]"]
"""Runs a piece of work in a transaction of the writer (``EventLog.change``)."""


_Access = tuple[str, str | None, str]
"""The kind of the record, the run, and the other fields as JSON. Equal ones count once."""


def _fields(what: str, caller: Caller, session: str | None = None, **more: object) -> str:
    said = {name: value for name, value in {"session": session, **more}.items() if value not in (None, "")}
    return json.dumps({"what": what, **caller_fields(caller), **said})


class AccessLog:
    """Logs the views of one database. Any thread may use it. Logging raises nothing and does not wait.

    Runs that came with the program are left out: they hold nobody's data. If the database can only be read, nothing is
    logged; the store's ``refusal`` says so.

    Attributes:
        fault: why the last view could not be logged; None: it was. lost: how many views were not logged so far.
    """

    def __init__(self, database: Database, change: Change) -> None:
        self._database, self._change = database, change
        self._next_s: dict[_Access, float] = {}
        self._state = threading.Condition()
        self._open = 0
        self.fault: str | None = None
        self.lost = 0

    def viewed(self, run_ids: Iterable[str], what: str, caller: Caller, session: str | None = None) -> None:
        """Keeps that ``caller`` saw content of these runs; ``what`` showed it, such as ``run page``.

        The same view by the same caller in the same ``session``, a browser or a tab, counts once an hour.
        """
        fields = _fields(what, caller, session)
        self._record([(VIEWED, run_id, fields) for run_id in run_ids])

    def exported(
        self, run_ids: Iterable[str], what: str, caller: Caller, session: str | None = None, manifest: str | None = None
    ) -> None:
        """Keeps that ``caller`` asked for a file with content of these runs, in the form ``what``. Each time counts.

        ``manifest``: of a bundle, whose export is logged also for runs that came with the program.
        """
        fields = _fields(what, caller, session, manifest=manifest)
        self._record([(EXPORTED, run_id, fields) for run_id in run_ids], each=True)

    def exported_all(self, what: str, caller: Caller) -> None:
        self._record([(EXPORTED, None, _fields(what, caller))], each=True)

    def read(self, asked: AccessQuery, before: int | None = None, limit: int = 50) -> Page:
        """Returns a page of what is on record, newest first. Raises: StoreError."""
        bound = {"before": 2**63 - 1 if before is None else before, "run_id": asked.run_id}
        query = "SELECT position, record FROM leaves WHERE record IS NOT NULL AND position < :before"
        query += " AND run_id = :run_id" if asked.run_id is not None else ""
        found: list[AccessRecord] = []
        unreadable = 0
        with self._database.reading() as connection, closing(connection.cursor()) as rows:
            for position, text in rows.execute(f"{query} ORDER BY position DESC", bound):
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
        return Page(tuple(found), None, unreadable)

    def resolve(self, prefix: str) -> str:
        """Returns the one run with records whose id begins so, also one that is gone.

        Raises: UnknownRun, BadInput; StoreError.
        """
        found = [str(run_id) for (run_id,) in self._database.rows(_RUNS, {"prefix": prefix})]
        return the_one_run(prefix, found, UnknownRun(f"the log has no record of a run whose id begins with {prefix!r}"))

    def digests(self, typed: str) -> tuple[str, ...]:
        """Returns the digests of these words, as searches for them have. Raises: StoreError; BadInput without a key."""
        key = self._database.privacy.search_key(self._database.path, make=False)
        if key is None:
            raise BadInput("the master key is missing, so nobody can say which words were searched for")
        return digests(key, typed)

    def searched(
        self, typed: str, filters: Iterable[str], what: str, caller: Caller, session: str | None = None
    ) -> None:
        """Keeps that ``caller`` searched the texts of all runs: digests of the words, and the filters' names."""
        if self._database.refusal is not None:
            return
        try:
            words = digests(self._database.privacy.search_key(self._database.path, make=True) or b"", typed)
        except StoreError as error:
            self._failed([], 1, error)
            return
        fields = _fields(what, caller, session, words=words, filters=sorted(filters))
        self._record([(SEARCHED, None, fields)])

    def settle(self) -> str | None:
        """Waits until all views so far are logged or have failed. Returns why the last one is not; None: it is."""
        if self._database.refusal is not None:
            return "the database can only be read"
        with self._state:
            self._state.wait_for(lambda: not self._open)
            return self.fault

    def warn_if_lost(self) -> None:
        """Waits until the views by a command are logged, or says on stderr why they are not. The command goes on."""
        if (why := self.settle()) is not None:
            print(f"warning: this view is not in the access log: {' '.join(why.split())}", file=sys.stderr)

    def _record(self, accesses: Iterable[_Access], *, each: bool = False) -> None:
        if self._database.refusal is not None:
            return
        now_s = _now_s()
        with self._state:
            due = [access for access in dict.fromkeys(accesses) if each or self._next_s.get(access, now_s) <= now_s]
            if not due:
                return
            if not each:
                if len(self._next_s) > _MOST_REMEMBERED:
                    self._next_s = {access: at_s for access, at_s in self._next_s.items() if at_s > now_s}
                self._next_s |= dict.fromkeys(due, now_s + AGAIN_S)
            self._open += 1
        try:
            future = self._change(lambda cursor: _write(cursor, due))
        except StoreError as error:
            self._failed(due, len(due), error)
            self._ended()
            return
        future.add_done_callback(partial(self._done, due))

    def _done(self, due: list[_Access], future: "concurrent.futures.Future[None]") -> None:
        if (error := future.exception()) is not None:
            self._failed(due, len(due), error)
        else:
            self.fault = None
        self._ended()

    def _failed(self, due: Iterable[_Access], count: int, error: BaseException) -> None:
        fault = " ".join(str(error).split()) or type(error).__name__
        if fault != self.fault:
            log.warning("views cannot be logged: %s", fault)
        with self._state:
            self.fault = fault
            self.lost += count
            again_s = _now_s() + _RETRY_S
            self._next_s |= {access: again_s for access in due if access in self._next_s}

    def _ended(self) -> None:
        with self._state:
            self._open -= 1
            self._state.notify_all()


def _write(cursor: sqlite3.Cursor, accesses: Iterable[_Access]) -> None:
    """Adds the records of these accesses to the log."""
    entries = Entries(cursor)
    for kind, run_id, text in accesses:
        fields = json.loads(text)
        if run_id is None or "manifest" in fields or cursor.execute(_SHIPPED, (run_id,)).fetchone() is None:
            entries.add_record(kind, run_id, **fields)
    entries.save()

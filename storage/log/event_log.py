"""The event log: one thread writes over one connection, and callers can wait until their events are on disk.

The next commit writes all events that arrive during a commit (group commit), so durability costs one flush per group,
not per event. The same transaction updates ``runs`` and ``snapshots``.
"""

import asyncio
import concurrent.futures
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from conductor_core.errors import StoreError, StoreGone, StoreLocked, StoreReadOnly
from conductor_core.run.events import FINAL_KINDS, Event, RunCreated, RunTaken
from storage import errors
from storage.database.connections import Database
from storage.encoding import SnapshotRow, encode, stored_line
from storage.log.live_runs import LiveRuns, store_snapshots
from storage.log.owner import Owner
from storage.merkle.chain import Entries
from storage.privacy import event_place
from storage.records import StoredEvent
from storage.redaction import RecordRedaction

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_NEWEST = (
    "SELECT max(coalesce((SELECT max(sequence) FROM events), 0), "
    "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))"
)
"""The highest sequence ever given, because the sequences of deleted events are never given again."""
_INSERT = "INSERT INTO events (sequence, run_id, kind, at_utc, payload, position) VALUES "
_ROW = "(?, ?, ?, ?, ?, ?)"
_MOST_ROWS = 64
"""Rows of one INSERT. SQLite's driver releases the interpreter's lock twice per statement and has to get it back from a
busy engine. With one statement per row, that took longer than the writing."""
_MOST_REQUESTS = 512
_CHECKPOINT_BYTES = 4 << 20
_PAGE_BYTES = 4096
_FEED_EVENTS = 2000
_BEGINNING = 64
"""So many events of a run that began here are kept while it runs, for who follows it from its beginning."""
_IDLE_S = 2.0
"""After so many seconds without an append the WAL is moved, so that the main file is never far behind."""


@dataclass(slots=True)
class _Request:
    """Events to write and the future of the caller who waits. ``loop`` is None if that is a thread.

    Instead of events a request may hold a ``snapshot``, for which nobody waits, or ``work`` for the transaction, whose
    ``result`` goes to who waits, or it ``rewrites`` the file after the transaction.
    """

    events: Sequence[Event] = ()
    loop: asyncio.AbstractEventLoop | None = None
    future: "asyncio.Future[Any] | concurrent.futures.Future[Any]" = field(default_factory=concurrent.futures.Future)
    error: StoreError | None = None
    snapshot: SnapshotRow | None = None
    work: Callable[[sqlite3.Cursor], Any] | None = None
    result: object = None
    rewrites: bool = False


@dataclass(slots=True)
class Feed:
    """The events of a run that one follower has not yet read. Only the thread of ``loop`` touches it.

    Attributes:
        missed: more events came than a feed keeps, or another process may have written some before them; the follower
            reads them from the database.
    """

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[StoredEvent] = field(default_factory=list)
    missed: bool = False

    def push(self, events: Sequence[StoredEvent]) -> None:
        resumed = any(isinstance(stored.event, RunTaken) for stored in events)
        if self.missed or resumed or len(self.events) + len(events) > _FEED_EVENTS:
            self.missed = True
            self.events.clear()
        else:
            self.events.extend(events)
        self.news.set()

    def drain(self) -> tuple[list[StoredEvent], bool]:
        """Returns the events since the last call, and whether some are missing."""
        taken = self.events, self.missed
        self.events, self.missed = [], False
        self.news.clear()
        return taken


class EventLog:
    """The ``EventSink`` of a database. Any thread and any event loop may use it.

    If the database cannot be written, each append fails with the reason, so that nothing is run, and feeds stay empty.
    """

    def __init__(
        self, database: Database, redaction: RecordRedaction, written: Callable[[int], None] = lambda _: None
    ) -> None:
        """``written``: is told, in the writing thread, how many entries of the log have become durable."""
        self._database = database
        self._redaction, self._vault = redaction, database.vault
        self._written = written
        self._owner = Owner(database.owners_folder)
        self._live = LiveRuns(database, self._owner)
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._feeds: dict[str, list[Feed]] = {}
        self._beginnings: dict[str, list[StoredEvent]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._orphans: set[str] = set()
        self._unmoved_bytes = database.log_bytes  # of a process that was killed
        self._thread = threading.Thread(target=self._write_all, name="event-log", daemon=True)
        if database.refusal is None:
            self._thread.start()

    def append(self, *events: Event) -> "asyncio.Future[None]":
        """Returns a future that is done when the events are durable. Raises, when awaited: StoreError; then none of
        *these* events was kept. Cancelling the future does not take the events back."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        try:
            self._submit(_Request(events, loop, future))
        except StoreError as error:
            future.set_exception(error)
        return future

    def append_and_wait(self, *events: Event) -> None:
        """Appends from a thread without an event loop: returns when the events are durable. Raises: StoreError."""
        self._submit(_Request(events)).future.result()

    def change_and_wait(self, work: Callable[[sqlite3.Cursor], _Result]) -> _Result:
        """Runs ``work`` in a transaction of the writing thread, perhaps more than once, and returns its last result.

        Raises: StoreError.
        """
        return self.change(work).result()

    def change(self, work: Callable[[sqlite3.Cursor], _Result]) -> "concurrent.futures.Future[_Result]":
        """Returns a future of the same, which the writing thread completes. Raises: StoreError if the log is closed."""
        future: concurrent.futures.Future[_Result] = concurrent.futures.Future()
        self._submit(_Request(work=work, future=future))
        return future

    def rewrite_and_wait(self) -> None:
        """Rewrites the database, without what was deleted, and empties the log beside it. Raises: StoreError."""
        self._submit(_Request(rewrites=True)).future.result()

    def keep_snapshot(self, snapshot: SnapshotRow) -> None:
        """Stores the snapshot of an ended run soon, without waiting. Ignores failures: a snapshot only saves time."""
        with suppress(StoreError):
            self._submit(_Request(snapshot=snapshot))

    def writes(self, run_id: str) -> bool:
        """Whether this process writes the run, so that its feeds get each event of it."""
        return run_id in self._live

    def subscribe(self, run_id: str) -> tuple[Feed, list[StoredEvent] | None]:
        """Returns a feed of the run's events for the running loop, and the events so far; None: the database has them.

        An event may be in both. End the feed with ``unsubscribe``.
        """
        feed = Feed(asyncio.get_running_loop())
        with self._lock:
            self._feeds[run_id] = [*self._feeds.get(run_id, ()), feed]
            return feed, self._beginnings.get(run_id)

    def unsubscribe(self, run_id: str, feed: Feed) -> None:
        with self._lock:
            rest = [other for other in self._feeds.get(run_id, ()) if other is not feed]
            if rest:
                self._feeds[run_id] = rest  # in one step: the writing thread reads it without the lock
            else:
                self._feeds.pop(run_id, None)

    def close(self) -> None:
        """Writes all appended events, then stops. Later appends raise StoreError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._requests.put(None)
        if self._database.refusal is None:
            self._thread.join()
        self._owner.close()

    def _submit(self, request: _Request) -> _Request:
        if (refusal := self._database.refusal) is not None:
            # A new exception each time: one that is raised again collects the tracebacks of all callers.
            raise type(refusal)(str(refusal))
        with self._lock:
            if self._closed:
                raise errors.closed(self._database.path)
            self._requests.put(request)
        return request

    def _write_all(self) -> None:
        while (first := self._next()) is not None:
            batch = [first]
            last = False
            with suppress(queue.Empty):
                while len(batch) < _MOST_REQUESTS and not last:
                    more = self._requests.get_nowait()
                    batch += [] if more is None else [more]
                    last = more is None
            self._redact(batch)
            self._refuse_orphans(batch)
            if rest := [request for request in batch if request.error is None]:
                self._commit(rest)
            for request in batch:
                if request.rewrites and request.error is None:
                    self._rewrite(request)
            _answer(batch)
            # If requests never pause, SQLite's own checkpoint steps in.
            if self._unmoved_bytes >= _CHECKPOINT_BYTES and self._requests.empty():
                self._checkpoint()
            if last:
                return

    def _next(self) -> _Request | None:
        while True:
            try:
                return self._requests.get(timeout=_IDLE_S if self._unmoved_bytes else None)
            except queue.Empty:
                self._checkpoint()

    def _redact(self, batch: Sequence[_Request]) -> None:
        """Hides what must not be stored. It happens once: it keeps what it has seen of streamed text."""
        for request in batch:
            try:
                request.events = self._redaction.events(request.events)
            except Exception as error:  # noqa: BLE001  who waits must learn of it, and the log must go on
                request.error = error if isinstance(error, StoreError) else _failed(self._database, error)

    def _refuse_orphans(self, batch: Sequence[_Request]) -> None:
        """Fails one append of each run of this process if the lock file that shows that the process lives is gone.

        Later appends of such a run, above all its end, are written unless another process has ended it already.
        """
        path = self._database.path
        try:
            with errors.translated(path):
                if not self._owner.in_place():
                    self._database.check()  # if the database itself is gone, that is the fault to report
                    self._orphans |= self._live.forget_all()
                    self._beginnings.clear()  # others may write these runs from now on
                    self._owner.hold_again()
        except StoreError as error:
            log.warning("the runs of this process cannot be marked as alive: %s", error)
        for request in batch if self._orphans else ():
            if hit := {event.run_id for event in request.events} & self._orphans:
                self._orphans -= hit
                request.error = errors.orphaned(path, self._database.owners_folder)

    def _commit(self, batch: Sequence[_Request]) -> None:
        """Writes ``batch`` in one transaction. If that fails, writes each request alone: none can fail another.

        If the whole database is at fault, all requests fail at once, without further attempts.
        """
        try:
            with self._database.writing():
                written = self._write(self._with_keys(batch))
        except StoreError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  those who wait must learn of any error, and the log must go on
            failure = _failed(self._database, error)
        else:
            self._vault.keep_begun()
            self._announce(written)
            if written:
                self._written(len(written))
            return
        if len(batch) == 1 or isinstance(failure, StoreLocked | StoreReadOnly | StoreGone):
            for request in batch:
                request.error = request.error or failure
        else:
            for request in batch:
                if request.error is None:
                    self._commit([request])

    def _with_keys(self, batch: Sequence[_Request]) -> list[_Request]:
        """Returns the requests whose runs can be encrypted as they have to be, and fails the others."""
        events = list(chain.from_iterable(request.events for request in batch))
        new = {event.run_id for event in events if event.kind == "run.created"}
        others = {event.run_id for event in events} - new
        if faults := self._vault.make_ready(new, others):
            for request in batch:
                request.error = next((faults[event.run_id] for event in request.events if event.run_id in faults), None)
        return [request for request in batch if request.error is None]

    def _write(self, batch: Sequence[_Request]) -> list[StoredEvent]:
        if not batch:
            return []
        with self._live.changing() as live:
            with self._database.transaction() as cursor:
                stored = self._insert(cursor, live, batch)
            # After the commit: if the file was deleted before it, what was just committed is lost.
            self._database.check()
        return stored

    def _insert(self, cursor: sqlite3.Cursor, live: LiveRuns, batch: Sequence[_Request]) -> list[StoredEvent]:
        stored: list[StoredEvent] = []
        rows: list[tuple[object, ...]] = []
        ((sequence,),) = cursor.execute(_NEWEST)
        entries = Entries(cursor)
        for asked in chain.from_iterable(request.events for request in batch):
            sequence += 1
            event, payload = encode(asked)
            run_id, kind, at_utc = event.run_id, event.kind, event.at_utc.isoformat()
            kept = self._vault.seal(run_id, event_place(sequence, kind, at_utc), payload)
            # The evidence is of the bytes that are stored, so that it can be checked without keys.
            exact = kept if isinstance(kept, bytes) else kept.encode()
            row = (sequence, kind.encode(), at_utc.encode(), exact)
            run = live.advance(cursor, event, sequence, stored_line(*row))
            position = entries.add_event(run, run_id, *row)
            if kind in FINAL_KINDS:
                entries.seal(run_id, run)
            stored.append(StoredEvent(sequence, event))
            rows.append((sequence, run_id, kind, at_utc, kept, position))
            self._unmoved_bytes += len(exact) + _PAGE_BYTES
        if rows:
            for start in range(0, len(rows), _MOST_ROWS):
                some = rows[start : start + _MOST_ROWS]
                cursor.execute(_INSERT + ", ".join([_ROW] * len(some)), list(chain.from_iterable(some)))
            entries.save()
            live.save(cursor)
        for request in batch:
            if request.work is not None:
                request.result = request.work(cursor)
                self._unmoved_bytes += _PAGE_BYTES
        if snapshots := [request.snapshot for request in batch if request.snapshot is not None]:
            store_snapshots(cursor, snapshots)
        return stored

    def _rewrite(self, request: _Request) -> None:
        try:
            with self._database.writing():
                if self._database.rewrite():
                    self._unmoved_bytes = 0
                else:
                    request.error = errors.still_read(self._database.path)
        except StoreError as error:
            request.error = error

    def _announce(self, stored: Sequence[StoredEvent]) -> None:
        by_run: dict[str, list[StoredEvent]] = {}
        for item in stored:
            by_run.setdefault(item.event.run_id, []).append(item)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Feed, Sequence[StoredEvent]]]] = {}
        for run_id, events in by_run.items():
            self._keep_beginning(run_id, events)
            for feed in self._feeds.get(run_id, ()):
                by_loop.setdefault(feed.loop, []).append((feed, events))
        for loop, news in by_loop.items():
            _call(loop, _push, news)

    def _keep_beginning(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        if isinstance(events[0].event, RunCreated):
            begun: list[StoredEvent] = []
        elif (known := self._beginnings.get(run_id)) is not None:
            begun = known
        else:
            return
        with self._lock:
            if self.writes(run_id) and len(begun) + len(events) <= _BEGINNING:
                self._beginnings[run_id] = [*begun, *events]
            else:
                self._beginnings.pop(run_id, None)

    def _checkpoint(self) -> None:
        unmoved_bytes, self._unmoved_bytes = self._unmoved_bytes, 0
        try:
            with self._database.writing():
                if not self._database.checkpoint():
                    # A reader is in the way. Try again at the next pause, not after each group.
                    self._unmoved_bytes = min(unmoved_bytes, _CHECKPOINT_BYTES // 2)
        except StoreError:
            # The events are safe in the WAL, and the next commit reports a lasting fault.
            return


def _failed(database: Database, error: Exception) -> StoreError:
    failure = StoreError(f"the database {database.path} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Runs ``function`` in the thread of ``loop``. Does nothing if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _push(news: Sequence[tuple[Feed, Sequence[StoredEvent]]]) -> None:
    for feed, events in news:
        feed.push(events)


def _answer(batch: Sequence[_Request]) -> None:
    """Completes the futures of ``batch``, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in batch:
        if request.loop is None:
            _settle([request])
        else:
            by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        _call(loop, _settle, requests)


def _settle(requests: Sequence[_Request]) -> None:
    for request in requests:
        if request.future.done():  # its waiter was cancelled
            continue
        if request.error is None:
            request.future.set_result(request.result)
        else:
            request.future.set_exception(request.error)

"""The event log: one thread writes over one connection, and callers can wait until their events are on disk.

The next commit writes all events that arrive during a commit (group commit), so durability costs one flush per group,
not per event. The same transaction updates ``runs`` and ``snapshots``.
"""

import asyncio
import concurrent.futures
import hashlib
import json
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from conductor_core.chat.messages import INCOMPLETE, LoadedImage
from conductor_core.errors import (
    ContentMissing,
    EventOutOfOrder,
    OwnerGone,
    StoreError,
    StoreGone,
    StoreLocked,
    StoreReadOnly,
    UnknownRun,
)
from conductor_core.run import events as ev
from conductor_core.run import trace as folding
from conductor_core.run.actor import Caller
from conductor_core.run.costs import basis, cost_so_far
from conductor_core.run.trace import AT_REST, RunTrace
from conductor_core.text import plain
from storage import errors
from storage.database.connections import Database
from storage.encoding import SnapshotRow, add_rows, caller_columns, encode, last_number, snapshot_row, stored_line
from storage.log.owner import Owner
from storage.log.reading import read_run
from storage.merkle.chain import Entries, RunChain, read_chain, read_size
from storage.privacy import event_place
from storage.records import OF_TOOLS, SEALED_COLUMNS, StoredEvent
from storage.redaction import RecordRedaction

if TYPE_CHECKING:
    from hashlib import _Hash

_STREAMED = ev.StepDelta | ev.PlanDelta | ev.StepProgress | ev.PlanProgress
"""Most of all events, and none that changes a run's row or its owner."""
_SNAPSHOT_TAIL_SIZE = 64 << 10
_MOST_NAMED = 5
"""Tools that a list names."""
_CLAIM = "UPDATE runs SET owner_id = ? WHERE run_id = ? AND owner_id = ''"
_SNAPSHOT = (
    "INSERT OR REPLACE INTO snapshots (run_id, sequence, fold_digest, trace, events_sha256, sha256) "
    "SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = ?1)"
)


@dataclass(slots=True)
class _LiveRun:
    """A run and what is stored of it. ``sequence`` is that of the last event folded. Sizes are in characters of JSON.

    Attributes:
        row_due: whether an event has come that can change the row. Streamed text, most of all events, cannot.
    """

    trace: RunTrace
    sequence: int
    digest: "_Hash" = field(default_factory=hashlib.sha256)
    chain: RunChain = field(default_factory=RunChain)
    is_new: bool = False
    row_due: bool = True
    tail_size: int = 0
    snapshot_size: int = 0
    created: dict[str, object] = field(default_factory=dict)

    @property
    def snapshot_due(self) -> bool:
        """True at the run's end, and when it has grown by a quarter: all snapshots then cost a few times the last."""
        return self.trace.ended or self.tail_size > max(_SNAPSHOT_TAIL_SIZE, self.snapshot_size // 4)


class LiveRuns:
    """The runs of the writing thread, which uses them in its transactions. Other threads may only ask ``in``."""

    def __init__(self, database: Database, owner: Owner) -> None:
        self._database = database
        self._owner = owner
        self._runs: dict[str, _LiveRun] = {}
        self._touched: dict[str, _LiveRun] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def forget_all(self) -> set[str]:
        """Forgets all runs, because another process may have ended them, and returns their ids."""
        forgotten = set(self._runs)
        self._runs.clear()
        return forgotten

    @contextmanager
    def changing(self) -> Iterator["LiveRuns"]:
        """Surrounds a transaction. If that fails, forgets the runs folded in it: they are read again when needed."""
        self._touched = {}
        try:
            yield self
        except BaseException:
            for run_id in self._touched:
                self._runs.pop(run_id, None)
            raise
        for run_id, live in self._touched.items():
            live.is_new = False
            if live.trace.ended or live.trace.status in AT_REST:
                self._runs.pop(run_id, None)

    def advance(self, cursor: sqlite3.Cursor, event: ev.Event, sequence: int, line: bytes) -> RunChain:
        """Folds an event that is about to be stored, and returns the chain of its run, for its evidence.

        ``line`` is its part of the digest of its run's events.

        Raises: EventOutOfOrder; RunUnreadable for a run of another process whose events cannot be read.
        """
        run_id = event.run_id
        streamed = isinstance(event, _STREAMED)
        if not streamed and isinstance(event, ev.RunCreated):
            if run_id in self._runs or cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone():
                raise EventOutOfOrder(f"run {run_id} exists already: every run needs an id of its own")
            self._owner.hold()
            live = _LiveRun(folding.begin(event), sequence, is_new=True)
            live.created = fixed_columns(live.trace, sequence) | {
                "vocabulary": ev.VOCABULARY,
                "owner_id": "" if event.queued else self._owner.id,
            }
            self._runs[run_id] = live
            self._touched[run_id] = live
            cursor.executemany(_NAME_IMAGE, [(run_id, image.sha256) for image in event.request.all_images])
        else:
            live = self._runs.get(run_id) or self._load(run_id)
            self._touched[run_id] = live
            if live.trace.ended:
                raise EventOutOfOrder(f"run {run_id} has ended ({live.trace.status}): {event.kind} cannot follow")
            # What an imported run did elsewhere, nobody does here.
            if not streamed and isinstance(event, ev.RunTaken) and live.trace.imported is None:
                self._claim(cursor, run_id)
            try:
                folding.apply(live.trace, event)
            except (KeyError, ValueError) as error:
                raise EventOutOfOrder(
                    f"run {run_id}: {event.kind} cannot follow the events before it ({error})"
                ) from error
            if not streamed and (isinstance(event, ev.RunWaiting) or event.kind in ev.FINAL_KINDS):
                live.created["owner_id"] = ""
                cursor.execute("UPDATE runs SET owner_id = '' WHERE run_id = ?", (run_id,))
        live.sequence = sequence
        live.digest.update(line)
        live.tail_size += len(line)
        live.row_due |= not streamed
        return live.chain

    def _claim(self, cursor: sqlite3.Cursor, run_id: str) -> None:
        """Makes this process the owner of a run at rest. Raises: EventOutOfOrder if another one was quicker."""
        self._owner.hold()
        if cursor.execute(_CLAIM, (self._owner.id, run_id)).rowcount != 1:
            raise EventOutOfOrder(f"run {run_id} is not at rest: another process has taken it up")

    def save(self, cursor: sqlite3.Cursor) -> None:
        new, changed, snapshots = [], [], []
        for run_id, live in self._touched.items():
            if live.row_due:
                row = changing_columns(live.trace) | {"run_id": run_id}
                if live.is_new:
                    new.append(self._sealed(live.created | row))
                else:
                    changed.append(self._sealed(row))
                live.row_due = False
            if live.snapshot_due:
                snapshot = snapshot_row(live.trace, live.sequence, live.digest.hexdigest(), self._database.vault)
                snapshots.append(snapshot)
                live.tail_size, live.snapshot_size = 0, len(snapshot.trace)
        if new:
            add_rows(cursor, "runs", *new)
        if changed:
            values = ", ".join(f"{name} = :{name}" for name in changed[0] if name != "run_id")
            cursor.executemany(f"UPDATE runs SET {values} WHERE run_id = :run_id", changed)  # noqa: S608  own names
        if snapshots:
            store_snapshots(cursor, snapshots)

    def _sealed(self, row: dict[str, object]) -> dict[str, object]:
        run_id, seal = str(row["run_id"]), self._database.vault.seal
        texts = {name: text for name in SEALED_COLUMNS if isinstance(text := row.get(name), str)}
        return row | {name: seal(run_id, f"runs {name}", text) for name, text in texts.items()}

    def _load(self, run_id: str) -> _LiveRun:
        try:
            with self._database.reading() as connection:
                reading = read_run(connection, run_id, self._database.vault)
                chain = read_chain(connection, run_id)
        except UnknownRun as error:
            raise EventOutOfOrder(
                f"run {run_id} is not in this database: its first event must be run.created"
            ) from error
        live = self._runs[run_id] = _LiveRun(reading.trace, reading.sequence, reading.digest, chain)
        return live


def store_snapshots(cursor: sqlite3.Cursor, snapshots: Sequence[SnapshotRow]) -> None:
    cursor.executemany(_SNAPSHOT, snapshots)


_AS_FOLDED = (
    "run_id", "task", "purpose", "parent_run_id", "simulated", "plan_only", "conversation_id", "about_run_id",
)  # fmt: skip
"""Columns of ``runs`` that are as ``run.created`` has them, and as the trace does."""


def fixed_columns(trace: RunTrace, sequence: int) -> dict[str, object]:
    """Returns the columns of ``runs`` that stay as ``run.created``, the event ``sequence``, set them."""
    # The account alone, for sums by person: the run's first event has the process, too.
    who = None if trace.actor is None else trace.actor.account
    actor, door = caller_columns(Caller(actor=who, door=trace.door))
    return {
        **{name: getattr(trace, name) for name in _AS_FOLDED},
        "sequence": sequence,
        "created_at_utc": trace.created_at_utc.isoformat(),
        "actor": actor,
        "door": door,
        "imported": trace.imported is not None,
        "recorded": trace.imported is not None and trace.imported.recorded,
        "conductor": None if trace.conductor is None else trace.conductor.name,
        "pool": trace.pool.name,
        **{f"batch_{name}": getattr(trace.batch, name, None) for name in ("id", "row", "name", "size")},
    }


def changing_columns(trace: RunTrace) -> dict[str, object]:
    """Returns the columns of ``runs`` that change as a run goes on."""
    steps = list(trace.walk())
    statuses = [step.status for step in steps]
    cost = cost_so_far(trace)
    return {
        "status": trace.status,
        "topology": trace.root.topology,
        "agents": json.dumps(list(dict.fromkeys(step.agent for step in steps)), ensure_ascii=False),
        "steps": len(steps),
        "steps_completed": statuses.count("completed"),
        "steps_reused": statuses.count("reused"),
        "imported_answers": any(step.reused_from is not None and step.reused_from.imported for step in steps),
        "steps_failed": sum(status == "failed" or status in INCOMPLETE for status in statuses),
        "input_tokens": trace.usage.input_tokens,
        "output_tokens": trace.usage.output_tokens,
        "cost_usd": cost.usd,
        "known_usd": cost.known_usd,
        "cost_estimated": cost.usd is not None and basis(trace) in ("estimated", "at_most"),
        "duration_ms": trace.duration_ms,
        "error": trace.error,
        "asked_for": _asked_for(trace),
    }


def _asked_for(trace: RunTrace) -> str | None:
    asked = () if trace.ended else trace.asked_for
    if not asked:
        # While other steps run, nobody is asked for the results.
        names = list(dict.fromkeys(plain(call.name[:80]) for call in trace.open_calls))
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        waits = names and trace.status == "waiting"
        return f"{OF_TOOLS}{', '.join(names[:_MOST_NAMED])}{more}" if waits else None
    more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
    return f"{asked[0].what}{more}, by the gate {', '.join(asked[0].rules)}"


UNUSED_KEPT = timedelta(days=1)
"""How long a content stays that no run names: between its choice on the page and the run."""

_KEEP_IMAGE = "INSERT OR IGNORE INTO contents (sha256, media_type, data, created_at_utc) VALUES (?, ?, ?, ?)"
_NAME_IMAGE = (
    "INSERT OR IGNORE INTO run_contents (run_id, sha256) SELECT ?1, ?2 "
    "WHERE EXISTS (SELECT 1 FROM contents WHERE sha256 = ?2)"
)
_UNUSED_IMAGES = "DELETE FROM contents WHERE sha256 NOT IN (SELECT sha256 FROM run_contents) AND created_at_utc < ?"
_UNNAMED_IMAGE = "DELETE FROM contents WHERE sha256 = ? AND sha256 NOT IN (SELECT sha256 FROM run_contents)"


def keep_images(cursor: sqlite3.Cursor, images: Iterable[LoadedImage]) -> None:
    """Keeps images, each once, and drops those that no run has named for a day. Call it in the writer's transaction."""
    now = datetime.now(UTC)
    cursor.execute(_UNUSED_IMAGES, ((now - UNUSED_KEPT).isoformat(),))
    cursor.executemany(_KEEP_IMAGE, [(each.sha256, each.media_type, each.data, now.isoformat()) for each in images])


def forget_images(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Deletes the images that this run names and no other does. Call it in the transaction of the run's deletion."""
    named = cursor.execute("SELECT sha256 FROM run_contents WHERE run_id = ?", (run_id,)).fetchall()
    cursor.execute("DELETE FROM run_contents WHERE run_id = ?", (run_id,))
    cursor.executemany(_UNNAMED_IMAGE, named)


def read_image(connection: sqlite3.Connection, sha256: str) -> tuple[str, bytes]:
    """Returns a content's media type and bytes. Raises: ContentMissing if it is not there, or was changed."""
    row = connection.execute("SELECT media_type, data FROM contents WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None:
        raise ContentMissing(f"the database has no content {sha256[:12]}: it was deleted, or never kept here")
    media_type, data = row
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
        raise ContentMissing(f"the content {sha256[:12]} was changed in the database: its bytes have another digest")
    return str(media_type), data


log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_INSERT = "INSERT INTO events (sequence, run_id, kind, at_utc, payload, position) VALUES "
_ROW = "(?, ?, ?, ?, ?, ?)"
_MOST_ROWS = 64
"""Rows of one INSERT. SQLite's driver releases the interpreter's lock twice per statement and has to get it back from a
busy engine. With one statement per row, that took longer than the writing."""
_MOST_REQUESTS = 512
_CHECKPOINT_BYTES = 4 << 20
_PAGE_BYTES = 4096
_FEED_EVENTS = 2000
_IDLE_S = 2.0
"""After so many seconds without an append the WAL is moved, so that the main file is never far behind."""


@dataclass(slots=True)
class _Request:
    """Events to write and the future of the caller who waits. ``loop`` is None if that is a thread.

    Instead of events a request may hold ``work`` for the transaction, whose ``result`` goes to who waits, or it
    ``rewrites`` the file after the transaction.
    """

    events: Sequence[ev.Event] = ()
    loop: asyncio.AbstractEventLoop | None = None
    future: "asyncio.Future[Any] | concurrent.futures.Future[Any]" = field(default_factory=concurrent.futures.Future)
    error: StoreError | None = None
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
        resumed = any(isinstance(stored.event, ev.RunTaken) for stored in events)
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

    If the database cannot be written, each append fails with the reason, so that nothing is run.
    """

    def __init__(
        self, database: Database, redaction: RecordRedaction, written: Callable[[int], None] = lambda _: None
    ) -> None:
        """``written``: is told, in the writing thread, how many entries the log has got that are durable now."""
        self._database = database
        self._redaction, self._vault = redaction, database.vault
        self._written = written
        self._owner = Owner(database.owners_folder)
        self._live = LiveRuns(database, self._owner)
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._feeds: dict[str, list[Feed]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._orphans: set[str] = set()
        self._unmoved_bytes = database.log_bytes  # of a process that was killed
        self._thread = threading.Thread(target=self._write_all, name="event-log", daemon=True)
        if database.refusal is None:
            self._thread.start()

    def append(self, *events: ev.Event) -> "asyncio.Future[None]":
        """Returns a future that is done when the events are durable. Raises, when awaited: StoreError; then none of
        *these* events was kept. Cancelling the future does not take the events back."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        try:
            self._submit(_Request(events, loop, future))
        except StoreError as error:
            future.set_exception(error)
        return future

    def append_and_wait(self, *events: ev.Event) -> None:
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
            self.change(lambda cursor: store_snapshots(cursor, [snapshot]))

    def writes(self, run_id: str) -> bool:
        """Whether this process writes the run, so that its feeds get each event of it."""
        return run_id in self._live

    @contextmanager
    def feed(self, run_id: str) -> Iterator[Feed]:
        """Gives the run's events from now on that become durable in this process, for the running loop."""
        feed = Feed(asyncio.get_running_loop())
        with self._lock:
            self._feeds[run_id] = [*self._feeds.get(run_id, ()), feed]
        try:
            yield feed
        finally:
            with self._lock:
                if rest := [other for other in self._feeds[run_id] if other is not feed]:
                    self._feeds[run_id] = rest  # in one step: the writing thread reads it without the lock
                else:
                    del self._feeds[run_id]

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
                if request.loop is None:
                    _settle(request)
                else:
                    _call(request.loop, _settle, request)
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
                    self._owner.hold_again()
        except StoreError as error:
            log.warning("the runs of this process cannot be marked as alive: %s", error)
        for request in batch if self._orphans else ():
            if hit := {event.run_id for event in request.events} & self._orphans:
                self._orphans -= hit
                request.error = OwnerGone(
                    f"what says that this program is alive was deleted from {self._database.owners_folder}, so that "
                    "another could take its runs for stopped and end them; the run was ended instead. Leave the files "
                    f"beside {path.name} alone while something runs, and run it again"
                )

    def _commit(self, batch: Sequence[_Request]) -> None:
        """Writes ``batch`` in one transaction. If that fails, writes each request alone: none can fail another.

        If the whole database is at fault, all requests fail at once, without further attempts.
        """
        try:
            with self._database.writing():
                stored, entries = self._write(self._with_keys(batch))
        except StoreError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  those who wait must learn of any error, and the log must go on
            failure = _failed(self._database, error)
        else:
            self._vault.keep_begun()
            self._announce(stored)
            if entries:
                self._written(entries)
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

    def _write(self, batch: Sequence[_Request]) -> tuple[list[StoredEvent], int]:
        """Returns the events that were stored, and how many entries the log has got."""
        if not batch:
            return [], 0
        with self._live.changing() as live:
            with self._database.transaction() as cursor:
                before = read_size(cursor)
                stored = self._insert(cursor, live, batch)
                entries = read_size(cursor) - before
            # After the commit: if the file was deleted before it, what was just committed is lost.
            self._database.check()
        return stored, entries

    def _insert(self, cursor: sqlite3.Cursor, live: LiveRuns, batch: Sequence[_Request]) -> list[StoredEvent]:
        stored: list[StoredEvent] = []
        rows: list[tuple[object, ...]] = []
        sequence = last_number(cursor, "events", "sequence")
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
            if kind in ev.FINAL_KINDS:
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
        return stored

    def _rewrite(self, request: _Request) -> None:
        try:
            with self._database.writing():
                if self._database.rewrite():
                    self._unmoved_bytes = 0
                else:
                    request.error = StoreLocked(
                        f"another program reads the database {self._database.path}, so that what was erased may still "
                        "be in the log beside it: close that program and erase again"
                    )
        except StoreError as error:
            request.error = error

    def _announce(self, stored: Sequence[StoredEvent]) -> None:
        if not self._feeds:
            return
        by_run: dict[str, list[StoredEvent]] = {}
        for item in stored:
            by_run.setdefault(item.event.run_id, []).append(item)
        for run_id, events in by_run.items():
            for feed in self._feeds.get(run_id, ()):
                _call(feed.loop, feed.push, events)

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


def _settle(request: _Request) -> None:
    """Completes the future of ``request``, unless its waiter was cancelled. Call it in the thread of its loop."""
    if request.future.done():
        return
    if request.error is None:
        request.future.set_result(request.result)
    else:
        request.future.set_exception(request.error)

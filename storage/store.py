"""The store as the pages and the command line see it, opened as the settings say, with its log's key and anchor."""

import asyncio
import hashlib
import json
import logging
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.chat.messages import LoadedImage
from conductor_core.errors import BadInput, EventOutOfOrder, RunHasEnded, StoreDamaged, StoreError, UnknownRun
from conductor_core.files import keep_private, private_folder
from conductor_core.privacy import masking
from conductor_core.privacy.detectors import check_installed
from conductor_core.run.actor import Caller
from conductor_core.run.commands import Command, SentCommand
from conductor_core.run.costs import interruption
from conductor_core.run.events import FINAL_KINDS, Event, RunCreated
from conductor_core.run.judgement import Judged
from conductor_core.run.request import BESIDE_PURPOSES
from conductor_core.run.trace import ENDED_STATUSES, RunTrace, RunUnreadable
from conductor_core.settings import Settings, sqlite_url
from conductor_core.text import plain, whole_characters
from storage import errors
from storage.database.connections import BUSY_TIMEOUT_S, Database, path_of
from storage.encoding import (
    add_rows,
    caller_columns,
    caller_fields,
    snapshot_row,
    stored_line,
    stored_rows,
    the_one_run,
)
from storage.evidence import anchoring
from storage.evidence.keys import file_of_log, load_key, new_key, new_key_in_place
from storage.log import commands, queries, reading
from storage.log.commands import CommandWatch, Listener, Signer, records_of_no_run
from storage.log.event_log import EventLog, forget_images, keep_images, read_image
from storage.log.owner import gone, held, left
from storage.log.queries import Listing, Search, Totals, interrupt
from storage.log.reading import Deletion, read_raw, read_run, unknown_run
from storage.merkle.chain import add_record, read_chain, read_origin
from storage.merkle.formats import PublicKey, error_text, rotated_keys, text_of
from storage.privacy import SEALED, Privacy, Sealed
from storage.records import ERASED, OF_TOOLS, BatchSummary, RawEvent, RunSummary, StoredEvent
from storage.redaction import RecordRedaction

if TYPE_CHECKING:
    from storage.access_log import AccessLog
    from storage.endpoint import DeletedResponses, ServiceKeys
    from storage.judgements import Judgements
    from storage.search.search import RunSearch
    from storage.shadow import ShadowTraffic

log = logging.getLogger(__name__)

_POLL_S, _QUIET_S = 0.2, 1.0
_PAGE_EVENTS = 1000
_MOST_WAITING = 1000
MOST_TURNS = 200
"""The most runs of one conversation that are listed."""


# Deleting and erasing runs, and holds. Triggers refuse to delete events of a run that is held or not in `deletions`.

_BLANK = (
    "UPDATE runs SET status = ?, task = '', error = NULL, asked_for = NULL, batch_row = NULL, purpose = '', "
    "owner_id = '' WHERE run_id = ?"
)
_PLAIN = (
    "SELECT EXISTS (SELECT 1 FROM events WHERE run_id = ? AND substr(CAST(ifnull(payload, '') AS BLOB), 1, 1) <> ?)"
)
_WITH_RUN = ("commands", "snapshots", "deleted_responses", "judgements")


@dataclass
class Deleted:
    """The outcome of a deletion or an erasure.

    ``refused`` gives, by run, why a run was not deleted. ``sealed``: the runs that were erased now, and of which
    encrypted events stay. ``keyless``: those of them whose key was not there to be destroyed.
    """

    run_ids: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    sealed: list[str] = field(default_factory=list)
    keyless: list[str] = field(default_factory=list)


def _take_out(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, erased: bool) -> Deleted:
    """Deletes each run that has ended and is not held, or takes its text and leaves it in lists as erased.

    If all events of an erased run are encrypted, they stay: whoever destroys its key makes them unreadable. Else they
    go. A run that was erased before counts as erased again. Call it in a transaction of the writer.
    """
    from storage.search.index import forget as forget_text  # when used: few commands delete runs

    done = Deleted()
    # SQLite then overwrites what it deletes, instead of only unlinking it.
    cursor.execute("PRAGMA secure_delete=ON")
    try:
        for run_id in dict.fromkeys(run_ids):
            run = cursor.execute("SELECT status, created_at_utc FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if erased and run is not None and run[0] == ERASED:
                done.run_ids.append(run_id)
                continue
            if refusal := _refusal(cursor, run_id, run):
                done.refused[run_id] = refusal
                continue
            sealed = False
            if erased:
                cursor.execute(_BLANK, (ERASED, run_id))
                sealed = cursor.execute(_PLAIN, (run_id, SEALED)).fetchone() == (0,)
            _record(cursor, run_id, run, caller, erased=erased, sealed=sealed)
            forget_images(cursor, run_id)
            forget_text(cursor, run_id)
            for table in (*([] if sealed else ["events"]), *_WITH_RUN, *([] if erased else ["runs"])):
                cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608  own names
            done.sealed += [run_id] if sealed else []
            done.run_ids.append(run_id)
    finally:
        cursor.execute("PRAGMA secure_delete=OFF")
    return done


def _refusal(cursor: sqlite3.Cursor, run_id: str, run: tuple[str, str] | None) -> str | None:
    """Says why a run is not deleted or erased; None if it can be."""
    if run is None:
        return "this run no longer exists"
    if run[0] == ERASED:
        return "it was erased: its place in the record stays"
    if run[0] == "waiting":
        return "it waits: deny or cancel it first"
    if run[0] not in ENDED_STATUSES:
        return "it is running: cancel it first"
    return "it is held: release it first" if _is_held(cursor, run_id) else None


def _record(
    cursor: sqlite3.Cursor, run_id: str, run: tuple[str, str], caller: Caller, *, erased: bool, sealed: bool
) -> None:
    from storage.evidence.derived import deletion_digest, erased_digest  # when used: few commands delete runs

    events = stored_rows(cursor.connection, run_id)
    sha256 = hashlib.sha256(b"".join(stored_line(*row) for row in events)).hexdigest()
    now, (actor, door) = datetime.now(UTC).isoformat(), caller_columns(caller)
    row: dict[str, object] = {"run_id": run_id, "created_at_utc": run[1], "status": run[0], "erased": erased}
    row |= {"deleted_at_utc": now, "actor": actor, "door": door, "events": len(events), "events_sha256": sha256}
    add_rows(cursor, "deletions", row)
    more = {"erased": True, "run_sha256": erased_digest(cursor, run_id)} if erased else {}
    more |= {"sealed": True} if sealed else {}  # then its events stay
    more |= {"at_utc": now, "row_sha256": deletion_digest(row), **caller_fields(caller)}
    run_chain = read_chain(cursor, run_id)  # before its events go
    add_record(cursor, "run.deleted", run_id, events=run_chain.places, head=run_chain.head.hex(), **more)


def _hold(cursor: sqlite3.Cursor, run_ids: Sequence[str], caller: Caller, *, held: bool) -> None:
    """Places a hold on each run, or takes it off (``held`` False), and records it in the log.

    Call it in a transaction of the writer.
    """
    now = datetime.now(UTC).isoformat()
    actor, door = caller_columns(caller)
    for run_id in dict.fromkeys(run_ids):
        add_rows(cursor, "holds", {"run_id": run_id, "held": held, "at_utc": now, "actor": actor, "door": door})
        add_record(cursor, "run.held" if held else "run.released", run_id, at_utc=now, **caller_fields(caller))


def _is_held(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> bool:
    held = connection.execute("SELECT held FROM holds WHERE run_id = ? ORDER BY id DESC LIMIT 1", (run_id,)).fetchone()
    return held is not None and bool(held[0])


class Store:
    """The runs of one database; safe to use from any thread. All reading methods raise StoreError.

    Attributes:
        path: the database file. vault: the keys of its encrypted runs.
        log: where the engine's events go.
        shadow_traffic: requests that were forwarded, and the Conductor's runs of them.
        search: full-text search over all runs, and what an auditor asks of them.
        access_log: logs who viewed what.
        service_keys: who may use the endpoint. deleted_responses: what it does not show any more.
        judgements: what people, graders and judges hold of runs.
    """

    def __init__(
        self,
        database: Database,
        redaction: RecordRedaction,
        places: anchoring.Places | None = None,
        machine_key: Path | None = None,
    ) -> None:
        """``places``: of the log's key, and of what is published of it. ``machine_key``: of the key that proves what
        this machine sends. None: beside the database."""
        self._database = database
        self.path, self.vault = database.path, database.vault
        self._redaction = redaction
        self._show_in_logs: Callable[[], None] | None = masking.hide_in_logs(redaction.text)
        # Runs of dead processes in a database that cannot be written: they can only be shown as interrupted.
        self._stopped: set[str] = set()
        self._listing = Listing(database.path, self._stopped, database.vault)
        self._snapshots_made: set[str] = set()
        self._watches: list[CommandWatch] = []
        self.places = places or anchoring.places_of(database.path)
        self._machine_key = machine_key or anchoring.evidence_folder(database.path) / "machine-key"
        self._anchoring = anchoring.Anchoring(database, lambda work: self.log.change_and_wait(work), self.places)
        self.log = EventLog(database, redaction, self._anchoring.written)
        if self.refusal is None:
            with suppress(StoreDamaged):  # whatever is read next says so
                self._anchoring.resume()
            self._drop_left_keys()

    # Rooms of their own, each opened when it is first used: a run needs none of them.

    @cached_property
    def search(self) -> "RunSearch":
        from storage.search.search import RunSearch

        return RunSearch(self._database, self.log.change_and_wait)

    @cached_property
    def shadow_traffic(self) -> "ShadowTraffic":
        from storage.shadow import ShadowTraffic

        return ShadowTraffic(self._database)

    @cached_property
    def access_log(self) -> "AccessLog":
        from storage.access_log import AccessLog

        return AccessLog(self._database, self.log.change)

    @cached_property
    def service_keys(self) -> "ServiceKeys":
        from storage.endpoint import ServiceKeys

        return ServiceKeys(self._database, self.log.change_and_wait)

    @cached_property
    def deleted_responses(self) -> "DeletedResponses":
        from storage.endpoint import DeletedResponses

        return DeletedResponses(self._database, self.log.change_and_wait)

    @cached_property
    def judgements(self) -> "Judgements":
        from storage.judgements import Judgements

        return Judgements(self._database, self.log.change_and_wait, self._redaction.note)

    @property
    def refusal(self) -> StoreError | None:
        """Why the database can only be read, so that nothing can be run; None if it can be written."""
        return self._database.refusal

    @property
    def fault(self) -> StoreDamaged | None:
        """What was wrong with the database file when runs were last listed. All that could be read was listed."""
        return self._listing.fault

    def trace(self, run_id: str) -> tuple[RunTrace, int]:
        """Returns the run's trace, and the sequence from which to ``follow`` it.

        Raises: UnknownRun; RunDamaged or RunTooNew, with what can be read of the run.
        """
        try:
            with self._database.reading() as connection:
                reading = read_run(connection, run_id, self.vault)
        except StoreError:
            self._listing.doubt(run_id)
            raise
        if reading.snapshot_due and reading.trace.ended and run_id not in self._snapshots_made:
            self._snapshots_made.add(run_id)
            digest = reading.digest.hexdigest()
            with suppress(Sealed):  # its key went meanwhile, and a snapshot only saves time
                self.log.keep_snapshot(snapshot_row(reading.trace, reading.sequence, digest, self.vault))
        if run_id in self._stopped:
            interrupt(reading.trace)
        return reading.trace, reading.sequence

    def resumed_from(self, trace: RunTrace) -> tuple[RunTrace, ...]:
        """Returns the runs that ``trace`` took up, latest first, as far as readable. It reuses their answers."""
        found: list[RunTrace] = []
        with suppress(UnknownRun, RunUnreadable):
            while trace.resumed and trace.parent_run_id is not None:
                trace, _ = self.trace(trace.parent_run_id)
                found.append(trace)
        return tuple(found)

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        """Returns the run's events with a sequence above ``after``, in order; none for an unknown run.

        Raises: RunDamaged or RunTooNew if one of them cannot be read.
        """
        events, fault = self.readable_events(run_id, after, limit)
        if fault is not None:
            raise fault
        return events

    def readable_events(
        self, run_id: str, after: int = 0, limit: int | None = None
    ) -> tuple[list[StoredEvent], RunUnreadable | None]:
        """Returns the run's events after ``after`` up to the first that cannot be read, and what is wrong with that."""
        with self._database.reading() as connection:
            return reading.read_events(connection, run_id, self.vault, after, limit)

    def raw_events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[RawEvent]:
        """Returns events as they are stored, so that damaged ones and those too new can be looked at."""
        with self._database.reading() as connection:
            return read_raw(connection, run_id, self.vault, after, limit)

    def runs(
        self,
        limit: int = 50,
        before: int | None = None,
        search: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        batch: str | None = None,
        alone: bool = False,
        tree: str | None = None,
        recorded: bool = False,
        without: Collection[str] = (),
        among: Collection[str] | None = None,
        answers: bool = False,
        conversation: str | None = None,
        judged: Judged | None = None,
        purpose: str | None = None,
    ) -> list[RunSummary]:
        """Returns runs, newest first.

        Args:
            before: the ``sequence`` of the last run of the page before this one.
            search: text that the task contains, ignoring case (ASCII); words of the answer, as the search index has
                it; six or more characters of the run's id.
            status: only runs of this status; ``waiting`` also lists runs of which other steps still run. ``damaged``
                and ``too_new`` read every run of the database. Any other status also lists, marked, the faulty runs
                whose rows have it.
            parent: only re-runs of this run, and runs that take it up.
            batch: only runs of this batch. alone: only runs of no batch.
            tree: only this run, the runs that it came from, and whatever came from any of them.
            recorded: only runs that came with the program.
            without: leaves out runs of these purposes, such as the replays of a blame.
            among: only runs of these ids.
            answers: also says what each was named by and what its answer comes to, for which its events are read once.
            conversation: only this run, and those of the conversation that it began.
            judged: only runs of which that counts (``conductor_core.run.judgement.Judged``).
            purpose: only runs of this purpose.
        """
        ids = None if among is None else json.dumps(list(among))
        left_out = json.dumps(list(without)) if without else None
        asked = Search(
            limit, before, search, status, parent, batch, alone, tree, recorded, left_out, ids, answers, conversation,
            judged, purpose,
        )  # fmt: skip
        with self._database.reading() as connection:
            asked = _with_answers(connection, asked)
            return self._listing.read(connection, asked)

    def conversation(self, run_id: str) -> list[RunSummary]:
        """Returns the runs of the conversation that this run belongs to, oldest first, with their answers.

        At most ``MOST_TURNS``, the newest. A run that is in no conversation is the only one; of an unknown one: none.
        """
        root = self._database.row(queries.ROOT, (run_id,))
        return [] if root is None else self.runs(MOST_TURNS, conversation=text_of(root[0]), answers=True)[::-1]

    def turn_numbers(self, run_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Returns the place of each of these runs in its conversation, from 1, and how many runs that has.

        Leaves out runs that are in none.
        """
        rows = self._database.rows(queries.TURNS, (json.dumps(list(run_ids)),))
        return {run_id: (place, count) for run_id, place, count in rows if count > 1 and run_id in run_ids}

    def newest(self) -> int:
        """Returns the ``sequence`` of the newest event: while it stays, no run has gone on."""
        return int(self._database.row("SELECT max(sequence) FROM events")[0] or 0)

    def was_used(self) -> bool:
        """Returns whether the database ever held a run, even if all were deleted since."""
        return self._database.row("SELECT 1 FROM sqlite_sequence WHERE name = 'events'") is not None

    def spent_since(self, purposes: Collection[str], since_utc: datetime) -> tuple[float, int]:
        """Returns the known USD and the tokens of all runs of these purposes that began since then."""
        usd, tokens = self._database.row(queries.SPENT, (json.dumps(list(purposes)), since_utc.isoformat()))
        return float(usd), int(tokens or 0)

    def totals(
        self,
        search: str | None = None,
        batch: str | None = None,
        status: str | None = None,
        judged: Judged | None = None,
        purpose: str | None = None,
    ) -> Totals:
        """Returns the totals of what ``runs`` finds on all its pages, of a purpose or of all that people ask for."""
        beside = json.dumps(BESIDE_PURPOSES) if batch is None and purpose is None else None
        with self._database.reading() as connection:
            asked = Search(0, text=search, status=status, batch=batch, without=beside, judged=judged, purpose=purpose)
            asked = _with_answers(connection, asked)
            return queries.read_totals(connection, asked)

    def cursor_at(self, moment_utc: datetime) -> int:
        """Returns the ``before`` with which ``runs`` begins at the last run before ``moment_utc``; 0: there is none."""
        query = "SELECT sequence FROM runs WHERE created_at_utc < ? ORDER BY created_at_utc DESC LIMIT 1"
        row = self._database.row(query, (moment_utc.isoformat(),))
        return 0 if row is None else int(row[0]) + 1

    def batches(
        self, limit: int = 50, before: int | None = None, name: str | None = None, batch: str | None = None
    ) -> list[BatchSummary]:
        """Returns batches, newest first. ``name``: only those of files of this name. ``batch``: only this one."""
        with self._database.reading() as connection:
            return queries.read_batches(connection, limit, before, name, batch)

    @contextmanager
    def carrying_out(self, key: str, what: str) -> Iterator[None]:
        """Keeps other processes from the batch ``key``. Raises: BadInput, about ``what``, if one carries it out."""
        with ExitStack() as stack:
            with errors.translated(self._database.path):
                stack.enter_context(held(self._database.owners_folder, key, what))
            yield

    def resolve(self, prefix: str) -> str:
        """Returns the one run id that begins with ``prefix``. Raises: UnknownRun; BadInput if there are several."""
        with self._database.reading() as connection:
            found = queries.read_run_ids(connection, prefix, limit=4) if prefix else []
        return the_one_run(prefix, found, unknown_run(prefix))

    def created(self, run_id: str) -> RunCreated:
        """The first event of the run. Raises: UnknownRun, RunUnreadable, StoreDamaged."""
        events = self.events(run_id, limit=1)
        if not events:
            raise unknown_run(run_id)
        first = events[0].event
        if not isinstance(first, RunCreated):
            raise EventOutOfOrder(f"run {run_id} does not begin with run.created")
        return first

    def send(self, command: Command) -> int:
        """Keeps a command for whoever carries out its run, in whatever process, and returns its id.

        Raises: UnknownRun; RunHasEnded; StoreError.
        """
        stored = self._redaction.command(command)
        if self.refusal is not None:
            raise self.refusal
        with self._database.reading() as connection:
            origin = read_origin(connection)
        machine, log_key = _signer(self._machine_key, origin, of_machine=True), _signer(self.places.key, origin)
        outcome = self.log.change_and_wait(
            lambda cursor: commands.send(cursor, stored, self.vault, machine, log_key, self._trusted)
        )
        if isinstance(outcome, int):
            for watch in self._watches:
                watch.wake()
            return outcome
        if outcome == "unknown":
            raise unknown_run(command.run_id)
        raise RunHasEnded(f"run {command.run_id} has already ended: {outcome}")

    def as_kept(self, command: Command) -> Command:
        """Returns a command as it would be kept: without what is hidden from records. Raises: StoreError."""
        return self._redaction.command(command)

    def commands(self, run_id: str, after: int = 0) -> list[SentCommand]:
        """Returns the commands sent to the run after the command ``after``, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(commands.OF_RUN, (run_id, after)).fetchall()
            return commands.read_sent(connection, rows, self.vault, self._trusted)

    def unproven(self, run_id: str) -> list[str]:
        """Returns what the run's events say that somebody decided, although no machine has sent it: a sentence each."""
        from storage.evidence import sent_commands  # when used: it concerns runs that are resumed
        from storage.evidence.history import Report

        report = Report()
        with self._database.reading() as connection:
            keys = self._trusted(records_of_no_run(connection), read_origin(connection))
            sent_commands.check(connection, keys, report, self.vault, run_id)
        return [finding.what for finding in report.findings if finding.sequence is not None]  # none: of a command alone

    def waiting(self) -> list[RunTrace]:
        """Returns the runs of which something waits for an approval, the one that waits longest first.

        Of some of them other steps still run. Leaves out those that cannot be read.
        """
        found = [trace for trace in self._at_rest() if trace.asked_for and not trace.ended]
        return sorted(found, key=lambda trace: trace.asked_for[0].requested_at_utc)

    def waiting_for_tools(self) -> list[RunTrace]:
        """Returns the runs that wait for nothing but their client's tools, the one that waits longest first.

        Leaves out those that cannot be read.
        """
        found = [trace for trace in self._at_rest() if trace.status == "waiting" and not trace.asked_for]
        return sorted(found, key=lambda trace: trace.waiting_since_utc or trace.created_at_utc)

    def _at_rest(self) -> Iterator[RunTrace]:
        """Yields the runs that their rows say are waiting, but for those that cannot be read."""
        for run in self.runs(limit=_MOST_WAITING, status="waiting"):
            with suppress(UnknownRun, RunUnreadable):
                yield self.trace(run.run_id)[0]

    def waiting_approvals(self) -> int:
        """Returns how many runs wait for an approval, also while other steps of them run."""
        return int(self._database.row(queries.APPROVALS, (len(OF_TOOLS), OF_TOOLS))[0])

    def keep_images(self, images: Sequence[LoadedImage]) -> None:
        """Keeps the bytes of images, each once. Begin the run that names them within a day. Raises: StoreError."""
        if images:
            self.log.change_and_wait(lambda cursor: keep_images(cursor, images))

    def import_run(self, events: Sequence[Event], images: Sequence[LoadedImage]) -> None:
        """Keeps a whole run from elsewhere, or nothing of it. Raises: EventOutOfOrder; StoreError."""
        self.keep_images(images)
        self.log.append_and_wait(*events)

    def content(self, sha256: str) -> tuple[str, bytes]:
        """Returns the media type and the bytes of a content. Raises: ContentMissing if they are gone or changed."""
        with self._database.reading() as connection:
            return read_image(connection, sha256)

    def sent_to_waiting(self) -> list[str]:
        """Returns the runs that wait and to which anything was ever sent."""
        sent = "SELECT DISTINCT run_id FROM runs JOIN commands USING (run_id) WHERE status = 'waiting'"
        return [run_id for (run_id,) in self._database.rows(f"{sent} ORDER BY runs.sequence")]

    def watch(self, listener: Listener) -> CommandWatch:
        """Tells ``listener`` each command that any process sends from now on, in a thread of its own, until closed.

        Raises: StoreError.
        """
        watch = CommandWatch(self._database, listener, self._trusted)
        self._watches.append(watch)
        return watch

    def read(self, run_id: str) -> RunTrace:
        """The run as it stands. Raises: UnknownRun, RunUnreadable, StoreDamaged."""
        return self.trace(run_id)[0]

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[list[StoredEvent], None]:
        """Yields the run's events after ``after``, in groups as they are committed, each exactly once, until its end.

        Events of this process come as soon as they are durable, those of another process within 0.2 s, rarely 1 s.

        Raises: UnknownRun, also when the run is deleted meanwhile; RunDamaged or RunTooNew after all events before the
        one that cannot be read.
        """
        with self.log.feed(run_id) as feed:
            group: list[StoredEvent] = []
            fault: StoreError | None = None
            missed = True
            while True:
                if missed:
                    group, fault = await asyncio.to_thread(self.readable_events, run_id, after, _PAGE_EVENTS)
                # Nothing came: the run may have ended, or its rows may have gone, without an event for this reader.
                silent = missed and not group and fault is None
                if silent and await asyncio.to_thread(self._status, run_id) in {*ENDED_STATUSES, ERASED}:
                    group, fault = await asyncio.to_thread(self.readable_events, run_id, after)
                    if not group and fault is None:
                        return
                if group:
                    yield group
                    after = group[-1].sequence
                    if group[-1].event.kind in FINAL_KINDS:
                        return
                if fault is not None:
                    raise fault
                if missed := len(group) >= _PAGE_EVENTS:
                    continue
                # Another process may be quicker to resume a run that this one seems to write.
                timeout_s = _QUIET_S if self.log.writes(run_id) else _POLL_S
                try:
                    async with asyncio.timeout(timeout_s):
                        await feed.news.wait()
                except TimeoutError:
                    missed = True
                else:
                    news, missed = feed.drain()
                    group = [stored for stored in news if stored.sequence > after]

    def mark_interrupted(self) -> list[str]:
        """Ends each run whose process is gone with ``run.interrupted``, and returns their ids.

        Leaves a run that cannot be read as it is. If the database cannot be written, such runs are only shown as
        interrupted.
        """
        try:
            # A queued run has no owner: it waits for one.
            unfinished = [row for row in self._database.rows(queries.UNFINISHED, queries.ENDED_BOUNDS) if row[1]]
        except StoreDamaged as error:
            log.warning("interrupted runs cannot be determined: %s", error)
            return []
        if self.refusal is not None:
            self._stopped |= {run_id for run_id, owner in unfinished if left(self._database.owners_folder, owner)}
            return []
        marked = []
        for owner_id in dict.fromkeys(owner for _, owner in unfinished):
            with errors.translated(self._database.path), gone(self._database.owners_folder, owner_id) as is_gone:
                if is_gone:
                    marked += [run_id for run_id, owner in unfinished if owner == owner_id and self._interrupt(run_id)]
        return marked

    def evidence(self) -> anchoring.Evidence:
        """Returns how much of the log is published, and since when the rest is not."""
        with self._database.reading() as connection:
            evidence = anchoring.read_evidence(connection, self.places, self._anchoring.fault)
        if evidence.fault is None and evidence.unanchored_events:  # another program may know why
            return replace(evidence, fault=anchoring.kept_fault(self.path))
        return evidence

    def publish(self) -> None:
        """Publishes all that is not published yet, and returns when it is. Raises: BadInput; StoreError."""
        with errors.translated(self._database.path):
            self._anchoring.publish_all()

    def rotate_key(self, caller: Caller) -> PublicKey:
        """Replaces the signing key, on record by both signatures; returns the new. Raises: BadInput; StoreError."""
        new, record = new_key(self.places.key, self.evidence().origin)
        record |= caller_fields(caller)
        self.log.change_and_wait(lambda cursor: add_record(cursor, "key.rotated", None, **record))
        new_key_in_place(self.places.key)
        return new.public

    def delete(self, run_ids: Sequence[str], caller: Caller) -> Deleted:
        """Deletes runs for good, except running and held ones, and records that ``caller`` deleted them.

        Their keys go last, so that no copy of the database can be read with them. Raises: StoreError.
        """
        outcome = self._take_out(run_ids, caller, erased=False)
        self.vault.destroy(outcome.run_ids)
        return outcome

    def erase(
        self, run_ids: Sequence[str], caller: Caller, forget: Callable[[str], None] = lambda run_id: None
    ) -> Deleted:
        """Destroys the text of runs for good, except of running and held ones. They stay in lists as erased.

        Their keys are destroyed, ``forget`` is called for each, then the file is rewritten without what was deleted:
        seconds for a gigabyte. Each of these is done even if another fails. A run that was erased before goes through
        the same again, in case that was interrupted.

        Raises: what ``forget`` raises; StoreError; StoreLocked if a reader keeps the log of SQLite from being emptied.
        """
        outcome = self._take_out(run_ids, caller, erased=True)
        if outcome.run_ids:
            with ExitStack() as last_first:
                last_first.callback(self.log.rewrite_and_wait)
                last_first.callback(self.search.sweep)
                for run_id in outcome.run_ids:
                    last_first.callback(forget, run_id)
                outcome.keyless = sorted(set(outcome.sealed) - set(self.vault.all_of(outcome.sealed)))
                self.vault.destroy(outcome.run_ids)
        return outcome

    def _take_out(self, run_ids: Sequence[str], caller: Caller, *, erased: bool) -> Deleted:
        outcome = self.log.change_and_wait(lambda cursor: _take_out(cursor, run_ids, caller, erased=erased))
        for run_id in outcome.run_ids:
            self._listing.doubt(run_id)
        return outcome

    def unfinished(self, run_ids: Sequence[str]) -> set[str]:
        """Returns the runs among these erased ones whose key is still there: to erase them was broken off."""
        return set(self.vault.all_of(run_ids))

    def _drop_left_keys(self) -> None:
        """Destroys the keys of runs whose deletion was broken off after its transaction.

        It holds the write lock of the file, so that no other process begins a run of such an id meanwhile.
        """
        if not self.vault.path.exists():
            return
        try:
            if self._left_keys():
                with self._database.writing():
                    self.vault.destroy(self._left_keys())
        except StoreError as error:
            log.warning("keys of deleted runs may be left: %s", error)

    def _left_keys(self) -> list[str]:
        with self._database.reading() as connection:
            return self.vault.all_of([run_id for (run_id,) in connection.execute(reading.GONE)])

    def copies(self, run_id: str) -> list[str]:
        """Returns the re-runs of a run, which may hold text of it."""
        reruns = "SELECT run_id FROM runs WHERE parent_run_id = ? AND status <> ?"
        return [other for (other,) in self._database.rows(reruns, (run_id, ERASED))]

    def hold(self, run_ids: Sequence[str], caller: Caller, *, held: bool = True) -> None:
        """Forbids to delete these runs, or allows it again (``held`` False), and records who did so."""
        self.log.change_and_wait(lambda cursor: _hold(cursor, run_ids, caller, held=held))

    def held(self, run_ids: Sequence[str]) -> set[str]:
        with self._database.reading() as connection:
            return {run_id for run_id in run_ids if _is_held(connection, run_id)}

    def deletion(self, run_id: str) -> Deletion | None:
        """Returns when the run was deleted or erased and who did so; None: it was not."""
        with self._database.reading() as connection:
            return reading.read_deletion(connection, run_id)

    def deletions(self, limit: int = 50) -> tuple[list[Deletion], int]:
        with self._database.reading() as connection:
            rows = connection.execute(f"{reading.DELETIONS} ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
            ((count,),) = connection.execute("SELECT count(*) FROM deletions")
        return [reading.deletion(row) for row in rows], count

    def close(self) -> None:
        """Writes all appended events and publishes them, then closes the file. The store cannot be used afterwards.

        Says on stderr if nothing is published, whatever command ends: else nobody might hear of it for months.
        """
        for watch in self._watches:
            watch.close()
        if "search" in self.__dict__:
            self.search.close()
        self._anchoring.close()
        if self.refusal is None and (fault := self._anchoring.fault) is not None:
            where = self.places.anchor.file
            said = plain(" ".join(f"checkpoints are not published to {where}: {fault}".split()))
            print(
                f"warning: {said}. Until they are, nothing protects new events: run conductor log verify",
                file=sys.stderr,
            )
        if self._show_in_logs is not None:
            self._show_in_logs()
            self._show_in_logs = None
        self.log.close()
        self._database.close()

    def _trusted(self, records: dict[int, bytes], origin: str) -> Sequence[PublicKey]:
        """Returns the log's own key, and those that it took the place of. Raises: StoreError."""
        return rotated_keys(records, [_signer(self.places.key, origin).public])

    def _status(self, run_id: str) -> str:
        row = self._database.row("SELECT status FROM runs WHERE run_id = ?", (run_id,))
        if row is None:
            raise unknown_run(run_id)
        return str(row[0])

    def _interrupt(self, run_id: str) -> bool:
        try:
            trace, _ = self.trace(run_id)
            if trace.ended:
                return False
            self.log.append_and_wait(interruption(trace))
        except EventOutOfOrder:  # another process was quicker
            return False
        except (RunUnreadable, StoreDamaged) as error:
            log.warning("run %s was interrupted, but cannot be marked so: %s", run_id, error)
            return False
        return True


def _with_answers(connection: sqlite3.Connection, search: Search) -> Search:
    """Returns ``search`` so that it looks at answers, too, if there is an index and its text has words for it."""
    if search.text:
        search = replace(search, text=whole_characters(search.text))
    if not search.text or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'search_places'").fetchall():
        return search
    from storage.search.filters import read_words  # when used: few lists are searched

    with suppress(BadInput):
        words = read_words(search.text)
        if words is not None and words.match is not None:
            return replace(search, match=words.match, table=words.table)
    return search


def _signer(file: Path, origin: str, *, of_machine: bool = False) -> Signer:
    """Returns the key in ``file``, or beside it for a machine's other logs. It is made if there is none.

    Raises: StoreError.
    """
    try:
        private_folder(file.parent)
        key = load_key(file_of_log(file, origin) if of_machine else file, origin)
    except (BadInput, OSError) as error:
        raise StoreError(f"no command can be sent or heard without a key: {error_text(error)}") from error
    return Signer(key.public, key.private.sign)


def open_store(
    url: str,
    privacy: Privacy | None = None,
    *,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    anchor: str | None = None,
    signing_key: Path | None = None,
    machine_key: Path | None = None,
) -> Store:
    """Opens the database at ``url`` (``sqlite:///FOLDER/FILE``), creating or upgrading it if need be.

    A database that cannot be written is opened for reading, and ``Store.refusal`` says why. ``privacy``: None: as by
    default. ``busy_timeout_s`` is how long to wait while another program writes. ``anchor``, ``signing_key``: as in
    the settings. ``machine_key``: as ``Store`` has it.

    Raises: StoreError: StoreTooNew, StoreReadOnly, StoreFull, StoreLocked, StoreDamaged or a plain one; BadInput about
    ``anchor``, or about what finds names of people or phone numbers.
    """
    privacy = privacy or Privacy()
    check_installed(privacy.redact)
    places = anchoring.places_of(path_of(url), anchor, signing_key)
    database = Database(url, privacy, busy_timeout_s=busy_timeout_s)
    try:
        digest_key = None if database.refusal else privacy.digest_key(database.path)
        redaction = RecordRedaction(privacy.redact, privacy.region, digest_key, privacy.people())
        return Store(database, redaction, places, machine_key)
    except BaseException:
        database.close()
        raise


def store_of(file: Path, settings: Settings) -> Store:
    """Returns the store of a database file. Raises: StoreError; BadInput about the anchor."""
    privacy = Privacy.of(settings)
    keep_private(settings.data_folder.resolve(), levels=2)
    return open_store(
        sqlite_url(file),
        privacy,
        anchor=settings.anchor,
        signing_key=settings.signing_key,
        machine_key=settings.machine_key,
    )

"""Folds the runs that are being written, for their rows in ``runs`` and their snapshots."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from conductor_core.chat.messages import INCOMPLETE, LoadedImage
from conductor_core.errors import ContentMissing, EventOutOfOrder, UnknownRun
from conductor_core.run import trace as folding
from conductor_core.run.actor import Caller
from conductor_core.run.costs import basis, cost_so_far
from conductor_core.run.events import (
    FINAL_KINDS,
    VOCABULARY,
    Event,
    PlanDelta,
    PlanProgress,
    RunCreated,
    RunTaken,
    RunWaiting,
    StepDelta,
    StepProgress,
)
from conductor_core.run.trace import AT_REST, RunTrace
from conductor_core.text import plain
from storage.database.connections import Database
from storage.encoding import SnapshotRow, caller_columns, snapshot_row
from storage.log.owner import Owner
from storage.log.reading import read_run
from storage.merkle.chain import RunChain, read_chain
from storage.records import OF_TOOLS, SEALED_COLUMNS

if TYPE_CHECKING:
    from hashlib import _Hash

_STREAMED = StepDelta | PlanDelta | StepProgress | PlanProgress
"""Most of all events, and none that changes a run's row or its owner."""
_TO_JSON = json.JSONEncoder(ensure_ascii=False)
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

    def advance(self, cursor: sqlite3.Cursor, event: Event, sequence: int, line: bytes) -> RunChain:
        """Folds an event that is about to be stored, and returns the chain of its run, for its evidence.

        ``line`` is its part of the digest of its run's events.

        Raises: EventOutOfOrder; RunUnreadable for a run of another process whose events cannot be read.
        """
        run_id = event.run_id
        streamed = isinstance(event, _STREAMED)
        if not streamed and isinstance(event, RunCreated):
            if run_id in self._runs or cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone():
                raise EventOutOfOrder(f"run {run_id} exists already: every run needs an id of its own")
            self._owner.hold()
            live = _LiveRun(folding.begin(event), sequence, is_new=True)
            live.created = fixed_columns(live.trace, sequence) | {
                "vocabulary": VOCABULARY,
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
            if not streamed and isinstance(event, RunTaken) and live.trace.imported is None:
                self._claim(cursor, run_id)
            try:
                folding.apply(live.trace, event)
            except (KeyError, ValueError) as error:
                raise EventOutOfOrder(
                    f"run {run_id}: {event.kind} cannot follow the events before it ({error})"
                ) from error
            if not streamed and (isinstance(event, RunWaiting) or event.kind in FINAL_KINDS):
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
            insert = f"INSERT INTO runs ({', '.join(new[0])}) VALUES (:{', :'.join(new[0])})"  # noqa: S608  own names
            cursor.executemany(insert, new)
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


def fixed_columns(trace: RunTrace, sequence: int) -> dict[str, object]:
    """Returns the columns of ``runs`` that stay as ``run.created``, the event ``sequence``, set them."""
    # The account alone, for sums by person: the run's first event has the process, too.
    who = None if trace.actor is None else trace.actor.account
    actor, door = caller_columns(Caller(actor=who, door=trace.door))
    return {
        "run_id": trace.run_id,
        "sequence": sequence,
        "created_at_utc": trace.created_at_utc.isoformat(),
        "task": trace.task,
        "actor": actor,
        "door": door,
        "purpose": trace.purpose,
        "imported": trace.imported is not None,
        "recorded": trace.imported is not None and trace.imported.recorded,
        "conductor": None if trace.conductor is None else trace.conductor.name,
        "pool": trace.pool.name,
        "parent_run_id": trace.parent_run_id,
        "simulated": trace.simulated,
        "plan_only": trace.plan_only,
        "conversation_id": trace.conversation_id,
        "about_run_id": trace.about_run_id,
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
        "agents": _names(tuple(dict.fromkeys(step.agent for step in steps))),
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


@lru_cache(maxsize=64)  # most runs name the same agents again and again
def _names(agents: tuple[str, ...]) -> str:
    return _TO_JSON.encode(agents)


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

"""Declares the tables. ``events`` is the truth; ``runs`` and ``snapshots`` are folded from it and could be built again.

Times are ISO 8601 text in UTC, and JSON is text: both read the same in every database. Only migrations import this
module, because its import takes as long as a short command.
"""

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, Text, text
from sqlmodel import Field, SQLModel


class EventRow(SQLModel, table=True):
    """One event. Triggers forbid to change it, and to delete it before its run is in ``deletions``.

    Attributes:
        sequence: counts over all runs, in the order of commits, and is never given twice.
        payload: the event as JSON, in the exact bytes (UTF-8) that a digest covers.
        position: of its leaf in ``leaves``; None for events from before there was one.
    """

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_run_id_sequence", "run_id", "sequence"), {"sqlite_autoincrement": True})

    sequence: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True, autoincrement=True))
    run_id: str = Field(sa_column=Column(Text, nullable=False))
    kind: str = Field(sa_column=Column(Text, nullable=False))
    at_utc: str = Field(sa_column=Column(Text, nullable=False))
    payload: str = Field(sa_column=Column(Text, nullable=False))
    position: int | None = Field(default=None, sa_column=Column(Integer))


class EvidenceLogRow(SQLModel, table=True):
    """The one row of the evidence: the log's name, and the sequence from which on events have a leaf. Never changed."""

    __tablename__ = "evidence_log"

    origin: str = Field(sa_column=Column(Text, primary_key=True))
    covered_from: int


class LeafRow(SQLModel, table=True):
    """The leaf of an event, or of a record that is kept here. Triggers forbid to change or delete one.

    Attributes:
        position: in the log's Merkle tree; 0, 1, 2 and so on, without gaps.
        hash: see ``storage.merkle.formats``. record: JSON in the exact bytes that were hashed; None for an event.
    """

    __tablename__ = "leaves"
    __table_args__ = (Index("ix_leaves_records", "run_id", sqlite_where=text("record IS NOT NULL")),)

    position: int = Field(sa_column=Column(Integer, primary_key=True))
    run_id: str | None = Field(default=None, sa_column=Column(Text))
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    record: str | None = Field(default=None, sa_column=Column(Text))


class CheckpointRow(SQLModel, table=True):
    """A checkpoint that was signed and published elsewhere. The copy here says how far that went, and proves nothing.

    Attributes:
        size: how many entries it covers. peaks: of the tree then (``storage.merkle.formats.Tree``).
    """

    __tablename__ = "checkpoints"

    size: int = Field(sa_column=Column(Integer, primary_key=True))
    at_utc: str = Field(sa_column=Column(Text, nullable=False))
    note: str = Field(sa_column=Column(Text, nullable=False))
    peaks: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class RunRow(SQLModel, table=True):
    """A run for lists (``storage.records.RunSummary``), changed in the transaction of the event that changes it.

    Attributes:
        sequence: of its ``run.created``; the order of the list.
        actor: who caused it, as JSON (``conductor_core.run.actor.Actor``); None in older records.
        agents: as a JSON list.
        asked_for: what of it waits for an approval, in words; None: nothing.
        imported: whether it came as a file. imported_answers: whether it reuses answers of a run that did. recorded:
            whether the file is one of this program's own.
        cost_estimated: whether it is no exact figure, see ``conductor_core.run.costs.basis``.
        vocabulary: the version of the events (``conductor_core.run.events.VOCABULARY``) of the program that began the
        run. owner_id: names the lock file of the process that carries it out; empty: none does.
        batch_id, batch_row, batch_name, batch_size: the batch, its place there, and the file of tasks
            (``conductor_core.run.values.BatchRow``).
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_sequence", "sequence", unique=True),
        Index("ix_runs_status_sequence", "status", "sequence"),
        Index("ix_runs_parent_run_id", "parent_run_id"),
        Index("ix_runs_batch_id_sequence", "batch_id", "sequence"),
        Index("ix_runs_created_at_utc", "created_at_utc"),
        Index("ix_runs_asked_for", "sequence", sqlite_where=text("asked_for IS NOT NULL")),
    )

    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    sequence: int
    created_at_utc: str = Field(sa_column=Column(Text, nullable=False))
    status: str = Field(sa_column=Column(Text, nullable=False))
    task: str = Field(sa_column=Column(Text, nullable=False))
    door: str = Field(sa_column=Column(Text, nullable=False))
    conductor: str | None = Field(default=None, sa_column=Column(Text))
    pool: str = Field(sa_column=Column(Text, nullable=False))
    parent_run_id: str | None = Field(default=None, sa_column=Column(Text))
    simulated: bool
    plan_only: bool
    topology: str | None = Field(default=None, sa_column=Column(Text))
    agents: str = Field(sa_column=Column(Text, nullable=False))
    steps: int
    steps_completed: int
    steps_reused: int
    steps_failed: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None
    duration_ms: float | None = None
    error: str | None = Field(default=None, sa_column=Column(Text))
    owner_id: str = Field(sa_column=Column(Text, nullable=False))
    vocabulary: int = Field(sa_column=Column(Integer, nullable=False, server_default="1"))
    batch_id: str | None = Field(default=None, sa_column=Column(Text))
    batch_row: str | None = Field(default=None, sa_column=Column(Text))
    known_usd: float = Field(sa_column=Column(Float, nullable=False, server_default="0"))
    cost_estimated: bool = Field(sa_column=Column(Boolean, nullable=False, server_default="0"))
    actor: str | None = Field(default=None, sa_column=Column(Text))
    purpose: str = Field(sa_column=Column(Text, nullable=False, server_default=""))
    asked_for: str | None = Field(default=None, sa_column=Column(Text))
    imported: bool = Field(sa_column=Column(Boolean, nullable=False, server_default="0"))
    imported_answers: bool = Field(sa_column=Column(Boolean, nullable=False, server_default="0"))
    recorded: bool = Field(sa_column=Column(Boolean, nullable=False, server_default="0"))
    batch_name: str | None = Field(default=None, sa_column=Column(Text))
    batch_size: int | None = None


class SnapshotRow(SQLModel, table=True):
    """The latest stored fold of a run: its trace after the event ``sequence``.

    Attributes:
        fold_digest: of the code that folded it; a snapshot of other code is ignored.
        events_sha256: of the run's events up to ``sequence`` as written: if it differs now, an event was changed.
        sha256: of all other columns; a snapshot that was changed itself is ignored.
    """

    __tablename__ = "snapshots"

    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    sequence: int
    fold_digest: str = Field(sa_column=Column(Text, nullable=False))
    trace: str = Field(sa_column=Column(Text, nullable=False))
    events_sha256: str = Field(sa_column=Column(Text, nullable=False, server_default=""))
    sha256: str = Field(sa_column=Column(Text, nullable=False, server_default=""))


class CommandRow(SQLModel, table=True):
    """A command to a run (``conductor_core.run.commands``), as JSON. Never changed; deleted only with its run."""

    __tablename__ = "commands"
    __table_args__ = (Index("ix_commands_run_id_id", "run_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True, autoincrement=True))
    run_id: str = Field(sa_column=Column(Text, nullable=False))
    kind: str = Field(sa_column=Column(Text, nullable=False))
    at_utc: str = Field(sa_column=Column(Text, nullable=False))
    payload: str = Field(sa_column=Column(Text, nullable=False))


class ContentRow(SQLModel, table=True):
    """Bytes that events name by their digest, each kept once: the images of tasks. Triggers forbid to change one.

    Attributes:
        sha256: of ``data``, in hexadecimal.
    """

    __tablename__ = "contents"

    sha256: str = Field(sa_column=Column(Text, primary_key=True))
    media_type: str = Field(sa_column=Column(Text, nullable=False))
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    created_at_utc: str = Field(sa_column=Column(Text, nullable=False))


class RunContentRow(SQLModel, table=True):
    """Which run's ``run.created`` names which content. A content that no run names goes with the last that did."""

    __tablename__ = "run_contents"
    __table_args__ = (Index("ix_run_contents_sha256", "sha256"),)

    run_id: str = Field(sa_column=Column(Text, primary_key=True))
    sha256: str = Field(sa_column=Column(Text, primary_key=True))


class DeletionRow(SQLModel, table=True):
    """A run that somebody deleted. Triggers demand it before the run's events go, and forbid to change or delete it.

    Attributes:
        erased: whether it stays in lists, and in the log if it was encrypted, without any text that can be read.
        created_at_utc, status: of the run. events: how many it had. events_sha256: of all, as in ``SnapshotRow``.
    """

    __tablename__ = "deletions"
    __table_args__ = (Index("ix_deletions_run_id", "run_id", unique=True), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True, autoincrement=True))
    run_id: str = Field(sa_column=Column(Text, nullable=False))
    deleted_at_utc: str = Field(sa_column=Column(Text, nullable=False))
    door: str = Field(sa_column=Column(Text, nullable=False))
    created_at_utc: str = Field(sa_column=Column(Text, nullable=False))
    status: str = Field(sa_column=Column(Text, nullable=False))
    events: int
    events_sha256: str = Field(sa_column=Column(Text, nullable=False))
    actor: str | None = Field(default=None, sa_column=Column(Text))
    erased: bool = Field(sa_column=Column(Boolean, nullable=False, server_default="0"))


class HoldRow(SQLModel, table=True):
    """A hold placed on a run (``held``) or taken off; the last one counts. Triggers forbid to change or delete it."""

    __tablename__ = "holds"
    __table_args__ = (Index("ix_holds_run_id_id", "run_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True, autoincrement=True))
    run_id: str = Field(sa_column=Column(Text, nullable=False))
    held: bool
    at_utc: str = Field(sa_column=Column(Text, nullable=False))
    door: str = Field(sa_column=Column(Text, nullable=False))
    actor: str | None = Field(default=None, sa_column=Column(Text))


class SearchRunRow(SQLModel, table=True):
    """A run whose texts are in the search index. This and the other ``search_`` tables can be built again from events.

    Attributes:
        run: sequence of its ``run.created``; the other tables name the run by it.
        indexed_to: sequence of the last event that was read.
        fault: why the run could not be read to its end; empty: it could.
    """

    __tablename__ = "search_runs"

    run: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    run_id: str = Field(sa_column=Column(Text, nullable=False, unique=True))
    indexed_to: int
    fault: str = Field(sa_column=Column(Text, nullable=False))


class SearchTextRow(SQLModel, table=True):
    """A text of a run, once however often it stands there. The full-text tables ``search_words`` and ``search_signs``
    index it: all texts by words, and those with signs of a script without spaces (``dense``) by three signs each."""

    __tablename__ = "search_texts"
    __table_args__ = (
        Index("ix_search_texts_run", "run"),
        Index("ix_search_texts_dense", "id", sqlite_where=text("dense")),
    )

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    run: int
    dense: bool
    text: str = Field(sa_column=Column(Text, nullable=False))


class SearchPlaceRow(SQLModel, table=True):
    """Where a text stands (``storage.search.reading.Place``). ``event``: sequence of the event."""

    __tablename__ = "search_places"
    __table_args__ = (
        Index("ix_search_places_text_id", "text_id"),
        Index("ix_search_places_run", "run"),
        Index("ix_search_places_error", "detail", "run", sqlite_where=text("field = 'error'")),
    )

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    text_id: int
    run: int
    field: str = Field(sa_column=Column(Text, nullable=False))
    event: int
    path: str = Field(sa_column=Column(Text, nullable=False))
    agent: str = Field(sa_column=Column(Text, nullable=False))
    detail: str = Field(sa_column=Column(Text, nullable=False))


class SearchCallRow(SQLModel, table=True):
    """A call of a model (``conductor_core.run.egress.Call``). ``event``: sequence of the event that holds its messages.

    Attributes:
        messages: how many were sent. images: how many of their parts were images.
        input_tokens, output_tokens, cost_usd: of this call. The cost is None if the price is unknown.
    """

    __tablename__ = "search_calls"
    __table_args__ = (Index("ix_search_calls_event", "event"), Index("ix_search_calls_run", "run"))

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    run: int
    event: int
    at_utc: str = Field(sa_column=Column(Text, nullable=False))
    purpose: str = Field(sa_column=Column(Text, nullable=False))
    path: str = Field(sa_column=Column(Text, nullable=False))
    agent: str = Field(sa_column=Column(Text, nullable=False))
    provider: str = Field(sa_column=Column(Text, nullable=False))
    host: str = Field(sa_column=Column(Text, nullable=False))
    simulated: bool
    how: str = Field(sa_column=Column(Text, nullable=False))
    ended: str = Field(sa_column=Column(Text, nullable=False))
    messages: int
    images: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


class SearchFacetRow(SQLModel, table=True):
    """A value that a filter can ask for, and how often it stands in the run."""

    __tablename__ = "search_facets"
    __table_args__ = (Index("ix_search_facets_run", "run"), {"sqlite_with_rowid": False})

    kind: str = Field(sa_column=Column(Text, primary_key=True))
    value: str = Field(sa_column=Column(Text, primary_key=True))
    run: int = Field(sa_column=Column(Integer, primary_key=True))
    times: int


class SearchStateRow(SQLModel, table=True):
    """How far the index is, in one row.

    Attributes:
        reached: all runs that ended up to this sequence are in the index.
        residue: whether the full-text tables still hold words of a run that was taken out (``index.sweep``).
    """

    __tablename__ = "search_state"

    id: int | None = Field(default=None, sa_column=Column(Integer, primary_key=True))
    reached: int
    residue: bool

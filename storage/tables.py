"""The tables. ``events`` is the truth; ``runs``, ``batches`` and ``snapshots`` are folded from it, and could be again.

Times are ISO 8601 text in UTC, and JSON is text: both read the same in every database.
"""

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, Table, Text

METADATA = MetaData()


def _text(name: str, *, null: bool = False, default: str | None = None) -> "Column[str]":
    return Column(name, Text, nullable=null, server_default=default)


def _number(name: str, *, default: str | None = None) -> "Column[int]":
    return Column(name, Integer, nullable=False, server_default=default)


def _counted(name: str) -> "Column[int]":
    """A key that counts and is never given twice."""
    return Column(name, Integer, primary_key=True, autoincrement=True)


# One event, never changed; its triggers let it go only with its whole run, whose deletion is on record.
#   sequence   counts over all runs, in the order of commits, and is never given twice
#   payload    the event as JSON, in the very bytes (UTF-8) that a digest of it is taken over
EVENTS = Table(
    "events",
    METADATA,
    _counted("sequence"),
    _text("run_id"),
    _text("kind"),
    _text("at_utc"),
    _text("payload"),
    Index("ix_events_run_id_sequence", "run_id", "sequence"),
    sqlite_autoincrement=True,
)

# A run at a glance, for lists; changed in the transaction of the event that changes it.
#   sequence   of its run.created; the order of the list
#   agents     JSON list of the agents of its steps, each once, in order of appearance
#   cost_usd   NULL: some price is unknown
#   vocabulary the version of the events' vocabulary (conductor_core.events.VOCABULARY) that the run was begun with
#   batch_*    its place in a batch, NULL for a run that came alone
#   owner_id   names the lock file of the process that writes it; the rest of owner_* tells people which process that
#              was and when it opened the database
RUNS = Table(
    "runs",
    METADATA,
    Column("run_id", Text, primary_key=True),
    _number("sequence"),
    _text("created_at_utc"),
    _text("status"),
    _text("task"),
    _text("by"),
    _text("conductor", null=True),
    _text("pool"),
    _text("parent_run_id", null=True),
    Column("simulated", Boolean, nullable=False),
    Column("plan_only", Boolean, nullable=False),
    _text("topology", null=True),
    _text("agents"),
    _number("steps"),
    _number("steps_completed"),
    _number("steps_reused"),
    _number("steps_failed"),
    _number("input_tokens"),
    _number("output_tokens"),
    Column("cost_usd", Float),
    Column("duration_ms", Float),
    _text("error", null=True),
    _text("owner_id"),
    _text("owner_host"),
    _number("owner_pid"),
    _text("owner_opened_at_utc"),
    _number("vocabulary", default="1"),
    _text("batch_id", null=True),
    _text("batch_row", null=True),
    Index("ix_runs_sequence", "sequence", unique=True),
    Index("ix_runs_status_sequence", "status", "sequence"),
    Index("ix_runs_parent_run_id", "parent_run_id"),
    Index("ix_runs_batch_id_sequence", "batch_id", "sequence"),
    Index("ix_runs_created_at_utc", "created_at_utc"),
)

# The latest stored fold of a run: its trace after the event ``sequence``.
#   fold_digest    of the code that folded it; a snapshot of other code is passed over, not believed
#   events_sha256  of the run's events up to ``sequence`` as they were written: if they differ now, one was changed
#   sha256         of all other columns: a snapshot that was changed itself is passed over
SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("run_id", Text, primary_key=True),
    _number("sequence"),
    _text("fold_digest"),
    _text("trace"),
    _text("events_sha256", default=""),
    _text("sha256", default=""),
)

# A batch, as its first run told of it.
#   sequence   of that run's run.created: its place in the list
#   name       of the file of tasks; size: how many it held
BATCHES = Table(
    "batches",
    METADATA,
    Column("batch_id", Text, primary_key=True),
    _number("sequence"),
    _text("created_at_utc"),
    _text("name"),
    _number("size"),
    Index("ix_batches_sequence", "sequence", unique=True),
)

# A run that somebody deleted. Written before its events may go, never changed or deleted (triggers hold it).
#   created_at_utc, status   of the run
#   events, events_sha256    how many it had, and the digest of them all, as of a snapshot's
DELETIONS = Table(
    "deletions",
    METADATA,
    _counted("id"),
    _text("run_id"),
    _text("deleted_at_utc"),
    _text("by"),
    _text("created_at_utc"),
    _text("status"),
    _number("events"),
    _text("events_sha256"),
    Index("ix_deletions_run_id", "run_id", unique=True),
    sqlite_autoincrement=True,
)

# A hold placed on a run (held: it may not be deleted) or taken off; the last one of a run counts. Never changed or
# deleted (triggers hold it).
HOLDS = Table(
    "holds",
    METADATA,
    _counted("id"),
    _text("run_id"),
    Column("held", Boolean, nullable=False),
    _text("at_utc"),
    _text("by"),
    Index("ix_holds_run_id_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

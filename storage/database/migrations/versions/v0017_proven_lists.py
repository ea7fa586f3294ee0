"""Every list can be compared with events and records.

What nobody read of the owner goes. Batches are read from their runs. The log gets a digest of the deletions, holds and
erased runs of before, so that a later change of one is found.
"""

import hashlib
import json
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_OWNER = ("owner_host", "owner_pid", "owner_opened_at_utc")
_BATCH_ROWS = (
    "SELECT r.run_id, (SELECT payload FROM events e WHERE e.run_id = r.run_id ORDER BY sequence LIMIT 1), b.name, "
    "b.size FROM runs r LEFT JOIN batches b ON b.batch_id = r.batch_id WHERE r.batch_id IS NOT NULL"
)
_KEPT_TRIGGER = (
    "CREATE TRIGGER run_contents_no_delete BEFORE DELETE ON run_contents WHEN NOT EXISTS (SELECT 1 FROM deletions "
    "WHERE run_id = OLD.run_id) OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) "
    "BEGIN SELECT RAISE(ABORT, 'a run keeps its contents'); END"
)
_LISTS = {
    "deletions": "SELECT id, run_id, deleted_at_utc, actor, door, created_at_utc, status, events, events_sha256, "
    "erased FROM deletions ORDER BY id",
    "holds": "SELECT id, run_id, held, at_utc, actor, door FROM holds ORDER BY id",
    "erased": "SELECT run_id, sequence, created_at_utc, status, door, conductor, pool, parent_run_id, simulated, "
    "plan_only, topology, agents, steps, steps_completed, steps_reused, steps_failed, input_tokens, output_tokens, "
    "cost_usd, duration_ms, vocabulary, batch_id, batch_name, batch_size, known_usd, cost_estimated, actor, imported, "
    "imported_answers, recorded FROM runs WHERE status = 'erased' ORDER BY run_id",
}


def upgrade() -> None:
    op.execute("UPDATE runs SET owner_id = '' WHERE status NOT IN ('queued', 'running', 'waiting')")
    for column in _OWNER:
        op.drop_column("runs", column)
    op.add_column("runs", sa.Column("batch_name", sa.Text))
    op.add_column("runs", sa.Column("batch_size", sa.Integer))
    connection = op.get_bind()
    for run_id, payload, name, size in connection.exec_driver_sql(_BATCH_ROWS).fetchall():
        said = _batch_of(payload)
        values = (said.get("name", name), said.get("size", size), run_id)
        connection.exec_driver_sql("UPDATE runs SET batch_name = ?, batch_size = ? WHERE run_id = ?", values)
    op.drop_index("ix_batches_sequence", "batches")
    op.drop_table("batches")
    # A run that came as a file may have come without some of its images.
    op.execute("DROP TRIGGER run_contents_no_delete")
    op.execute(
        "DELETE FROM run_contents WHERE sha256 NOT IN (SELECT sha256 FROM contents) AND run_id IN "
        "(SELECT run_id FROM runs WHERE imported)"
    )
    op.execute(_KEPT_TRIGGER)
    _record(connection)


def _batch_of(payload: object) -> dict[str, object]:
    """Returns the batch that a run's first event names; nothing if that is encrypted or damaged."""
    try:
        event = json.loads(payload) if isinstance(payload, str) else {}
        found = (event.get("request") or event).get("batch") or {}
        return {"name": str(found["name"]), "size": int(found["size"])}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def _record(connection: sa.Connection) -> None:
    """Adds a record to the log: how many rows of each list there are now, and their digest."""
    lists = {name: connection.exec_driver_sql(query).fetchall() for name, query in _LISTS.items()}
    digests = {
        name: [len(rows), hashlib.sha256(json.dumps([list(row) for row in rows], default=repr).encode()).hexdigest()]
        for name, rows in lists.items()
    }
    found = connection.exec_driver_sql(
        "SELECT origin, (SELECT coalesce(max(position), -1) + 1 FROM leaves) FROM evidence_log"
    ).fetchall()
    if not found:  # blank, so that there is nothing to record: an upgrade begins no log
        return
    ((origin, position),) = found
    record = {"at_utc": datetime.now(UTC).isoformat(), "kind": "lists.recorded", **digests}
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    leaf = hashlib.sha256(f"\0record\n{origin}\n{text}".encode()).digest()
    insert = "INSERT INTO leaves (position, run_id, hash, record) VALUES (?, NULL, ?, ?)"
    connection.exec_driver_sql(insert, (position, leaf, text))


def downgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.Text, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("created_at_utc", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
    )
    op.create_index("ix_batches_sequence", "batches", ["sequence"], unique=True)
    op.execute(
        "INSERT INTO batches SELECT batch_id, min(sequence), created_at_utc, batch_name, batch_size FROM runs "
        "WHERE batch_id IS NOT NULL GROUP BY batch_id"
    )
    op.drop_column("runs", "batch_name")
    op.drop_column("runs", "batch_size")
    for column, kind, default in zip(_OWNER, (sa.Text, sa.Integer, sa.Text), ("", "0", ""), strict=True):
        op.add_column("runs", sa.Column(column, kind, nullable=False, server_default=default))

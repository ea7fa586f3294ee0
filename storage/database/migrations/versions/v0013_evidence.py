"""The evidence of the log: a leaf for each event from now on and for each record, and the checkpoints that were signed.

Events of before have no leaf. The log's first record says from which sequence on events have one.
"""

import hashlib
import json
import secrets
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_NEWEST = (
    "SELECT max(coalesce((SELECT max(sequence) FROM events), 0), "
    "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))"
)
_TABLES = ("evidence_log", "leaves", "checkpoints")


def upgrade() -> None:
    op.add_column("events", sa.Column("position", sa.Integer))
    op.create_table(
        "evidence_log",
        sa.Column("origin", sa.Text, primary_key=True),
        sa.Column("covered_from", sa.Integer, nullable=False),
    )
    op.create_table(
        "leaves",
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("record", sa.Text),
    )
    op.create_table(
        "checkpoints",
        sa.Column("size", sa.Integer, primary_key=True),
        sa.Column("at_utc", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("peaks", sa.LargeBinary, nullable=False),
    )
    _begin()
    for table in _TABLES:
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are only ever added'); END"
            )


def _begin() -> None:
    connection = op.get_bind()
    newest = connection.exec_driver_sql(_NEWEST).scalar_one()
    events = connection.exec_driver_sql("SELECT count(*) FROM events").scalar_one()
    origin = f"conductor-inspector/{secrets.token_hex(8)}"
    record = {
        "at_utc": datetime.now(UTC).isoformat(),
        "covered_from": newest + 1,
        "events_before": events,
        "kind": "log.began",
    }
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    leaf = hashlib.sha256(f"\0record\n{origin}\n{text}".encode()).digest()
    connection.exec_driver_sql("INSERT INTO evidence_log VALUES (?, ?)", (origin, newest + 1))
    insert = "INSERT INTO leaves (position, run_id, hash, record) VALUES (0, NULL, ?, ?)"
    connection.exec_driver_sql(insert, (leaf, text))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
    op.drop_column("events", "position")

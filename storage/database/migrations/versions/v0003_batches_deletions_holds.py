"""Batches of runs; deleted runs, each on record before its events may go; holds, which keep a run from being deleted.

The triggers hold it: events are only ever added, and leave only as a whole run that is in ``deletions`` and not held.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("batch_id", sa.Text))
    op.add_column("runs", sa.Column("batch_row", sa.Text))
    op.create_index("ix_runs_batch_id_sequence", "runs", ["batch_id", "sequence"])
    op.create_index("ix_runs_created_at_utc", "runs", ["created_at_utc"])
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.Text, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("created_at_utc", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
    )
    op.create_index("ix_batches_sequence", "batches", ["sequence"], unique=True)
    op.create_table(
        "deletions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("deleted_at_utc", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("created_at_utc", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("events", sa.Integer, nullable=False),
        sa.Column("events_sha256", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deletions_run_id", "deletions", ["run_id"], unique=True)
    op.create_table(
        "holds",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("at_utc", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_holds_run_id_id", "holds", ["run_id", "id"])
    for table in ("deletions", "holds"):
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are only ever added'); END"
            )
    op.execute("DROP TRIGGER events_no_delete")
    op.execute(
        "CREATE TRIGGER events_no_delete BEFORE DELETE ON events "
        "WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) "
        "OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) "
        "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER events_no_delete")
    op.execute(
        "CREATE TRIGGER events_no_delete BEFORE DELETE ON events "
        "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
    )
    op.drop_table("holds")
    op.drop_table("deletions")
    op.drop_table("batches")
    op.drop_index("ix_runs_created_at_utc", "runs")
    op.drop_index("ix_runs_batch_id_sequence", "runs")
    op.drop_column("runs", "batch_row")
    op.drop_column("runs", "batch_id")

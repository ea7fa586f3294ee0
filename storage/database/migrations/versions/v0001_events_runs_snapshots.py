"""Events, runs and snapshots; events can only be added."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at_utc", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_run_id_sequence", "events", ["run_id", "sequence"])
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("created_at_utc", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("conductor", sa.Text),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("parent_run_id", sa.Text),
        sa.Column("simulated", sa.Boolean, nullable=False),
        sa.Column("plan_only", sa.Boolean, nullable=False),
        sa.Column("topology", sa.Text),
        sa.Column("agents", sa.Text, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("steps_completed", sa.Integer, nullable=False),
        sa.Column("steps_reused", sa.Integer, nullable=False),
        sa.Column("steps_failed", sa.Integer, nullable=False),
        sa.Column("input_tokens", sa.Integer, nullable=False),
        sa.Column("output_tokens", sa.Integer, nullable=False),
        sa.Column("cost_usd", sa.Float),
        sa.Column("duration_ms", sa.Float),
        sa.Column("error", sa.Text),
        sa.Column("owner_id", sa.Text, nullable=False),
        sa.Column("owner_host", sa.Text, nullable=False),
        sa.Column("owner_pid", sa.Integer, nullable=False),
        sa.Column("owner_opened_at_utc", sa.Text, nullable=False),
    )
    op.create_index("ix_runs_sequence", "runs", ["sequence"], unique=True)
    op.create_index("ix_runs_status_sequence", "runs", ["status", "sequence"])
    op.create_index("ix_runs_parent_run_id", "runs", ["parent_run_id"])
    op.create_table(
        "snapshots",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("fold_digest", sa.Text, nullable=False),
        sa.Column("trace", sa.Text, nullable=False),
    )
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER events_no_{action.lower()} BEFORE {action} ON events "
            "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
        )


def downgrade() -> None:
    op.drop_table("snapshots")
    op.drop_table("runs")
    op.drop_table("events")

"""The evidence of the log: a leaf for each event and each record, and the checkpoints that were signed.

It begins no log: only ``storage.database.schema.create`` does, in a blank database.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

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
    for table in _TABLES:
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} are only ever added'); END"
            )


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
    op.drop_column("events", "position")

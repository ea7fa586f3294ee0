"""Finds the records of the log, such as who looked at a run, without reading the leaves of all events."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_leaves_records", "leaves", ["run_id"], sqlite_where=sa.text("record IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_leaves_records", "leaves")

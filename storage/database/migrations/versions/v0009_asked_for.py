"""What of a run waits for an approval, in its row, so that a list can say it and count such runs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("asked_for", sa.Text))
    # What a run waits for is in its events. Until its next one, this much is known.
    op.execute("UPDATE runs SET asked_for = 'an approval' WHERE status = 'waiting'")
    op.create_index("ix_runs_asked_for", "runs", ["sequence"], sqlite_where=sa.text("asked_for IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_runs_asked_for")
    op.drop_column("runs", "asked_for")

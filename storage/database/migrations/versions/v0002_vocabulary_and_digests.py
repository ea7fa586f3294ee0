"""With each run the version of the events' vocabulary; with each snapshot digests of itself and of its events.

A snapshot from before has no digests, so it is not believed, and made again when its run is next read.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("vocabulary", sa.Integer, nullable=False, server_default="1"))
    op.add_column("snapshots", sa.Column("events_sha256", sa.Text, nullable=False, server_default=""))
    op.add_column("snapshots", sa.Column("sha256", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("snapshots", "sha256")
    op.drop_column("snapshots", "events_sha256")
    op.drop_column("runs", "vocabulary")

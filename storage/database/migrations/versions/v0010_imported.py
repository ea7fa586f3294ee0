"""Whether a run came as a file, in its row, so that a list can say it."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("imported", sa.Boolean, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("runs", "imported")

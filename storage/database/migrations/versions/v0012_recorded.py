"""Whether a run came with the program, in its row, so that a list can say it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("recorded", sa.Boolean, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("runs", "recorded")

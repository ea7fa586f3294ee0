"""Whether a run was erased rather than deleted: then it stays in lists, without its text."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("deletions", sa.Column("erased", sa.Boolean, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("deletions", "erased")

"""Who caused a run, a deletion or a hold (``actor``), and through which door.

Before, one text ``by`` held the door, or what the run was for. No actor was recorded.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLES = ("runs", "deletions", "holds")


def upgrade() -> None:
    for table in _TABLES:
        op.execute(f'ALTER TABLE {table} RENAME COLUMN "by" TO door')
        op.add_column(table, sa.Column("actor", sa.Text))
    op.add_column("runs", sa.Column("purpose", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE runs SET purpose = door, door = 'cli' WHERE door NOT IN ('page', 'cli', 'api')")


def downgrade() -> None:
    op.execute("UPDATE runs SET door = purpose WHERE purpose <> ''")
    op.drop_column("runs", "purpose")
    for table in _TABLES:
        op.drop_column(table, "actor")
        op.execute(f'ALTER TABLE {table} RENAME COLUMN door TO "by"')

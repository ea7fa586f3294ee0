"""Commands to runs, only ever added; those of a deleted run may go with it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "commands",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at_utc", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_commands_run_id_id", "commands", ["run_id", "id"])
    op.execute(
        "CREATE TRIGGER commands_no_update BEFORE UPDATE ON commands "
        "BEGIN SELECT RAISE(ABORT, 'commands are only ever added'); END"
    )
    op.execute(
        "CREATE TRIGGER commands_no_delete BEFORE DELETE ON commands "
        "WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) "
        "OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) "
        "BEGIN SELECT RAISE(ABORT, 'commands are only ever added'); END"
    )


def downgrade() -> None:
    op.drop_table("commands")

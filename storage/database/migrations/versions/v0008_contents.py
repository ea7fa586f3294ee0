"""Contents that events name by their digest, and which run names which."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "contents",
        sa.Column("sha256", sa.Text, primary_key=True, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("created_at_utc", sa.Text, nullable=False),
    )
    op.create_table(
        "run_contents",
        sa.Column("run_id", sa.Text, primary_key=True, nullable=False),
        sa.Column("sha256", sa.Text, primary_key=True, nullable=False),
    )
    op.create_index("ix_run_contents_sha256", "run_contents", ["sha256"])
    for table in ("contents", "run_contents"):
        op.execute(
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'contents are never changed'); END"
        )
    op.execute(
        "CREATE TRIGGER contents_no_delete BEFORE DELETE ON contents "
        "WHEN EXISTS (SELECT 1 FROM run_contents WHERE sha256 = OLD.sha256) "
        "BEGIN SELECT RAISE(ABORT, 'a run names this content'); END"
    )
    op.execute(
        "CREATE TRIGGER run_contents_no_delete BEFORE DELETE ON run_contents "
        "WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) "
        "OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) "
        "BEGIN SELECT RAISE(ABORT, 'a run keeps its contents'); END"
    )


def downgrade() -> None:
    op.drop_table("run_contents")
    op.drop_table("contents")

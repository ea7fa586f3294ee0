"""What is known of a run's cost where a part of it has no price: what it cost at the least.

Of runs that have ended it stands in the snapshot; where that cannot be read, the list finds it in the run's events.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("known_usd", sa.Float, nullable=False, server_default="0"))
    op.execute("UPDATE runs SET known_usd = cost_usd WHERE cost_usd IS NOT NULL")
    op.execute(
        "UPDATE runs SET known_usd = coalesce((SELECT json_extract(trace, '$.known_usd') FROM snapshots "
        "WHERE snapshots.run_id = runs.run_id AND json_valid(trace)), 0) WHERE cost_usd IS NULL"
    )


def downgrade() -> None:
    op.drop_column("runs", "known_usd")

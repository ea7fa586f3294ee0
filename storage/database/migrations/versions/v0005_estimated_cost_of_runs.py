"""Whether a run's cost rests on estimated tokens.

Of runs that have ended it is found in the snapshot, by the rule of ``costs.basis``. Where that cannot be read it
stands as false, and the list finds it in the run's events.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("cost_estimated", sa.Boolean, nullable=False, server_default="0"))
    op.execute(
        "UPDATE runs SET cost_estimated = coalesce((SELECT json_extract(trace, '$.usage.estimated') "
        "AND json_extract(trace, '$.at_list_price') FROM snapshots "
        "WHERE snapshots.run_id = runs.run_id AND json_valid(trace)), 0) WHERE cost_usd > 0"
    )


def downgrade() -> None:
    op.drop_column("runs", "cost_estimated")

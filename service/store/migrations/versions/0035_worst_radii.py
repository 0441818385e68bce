"""The radius of a job's worst case, which lists are sorted by before its accuracy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

BEFORE = "tenant kind state model study_id seed clean worst examples started_at finished_at name id"
LISTED = BEFORE.replace(" worst ", " worst_at worst ")


def upgrade() -> None:
    """Adds the column; workers summarise jobs with a worst case once more."""
    op.drop_index("jobs_list_idx", "jobs")
    op.add_column("jobs", sa.Column("worst_at", sa.Double))
    op.execute("UPDATE jobs SET summary = NULL WHERE worst IS NOT NULL")
    op.create_index("jobs_list_idx", "jobs", LISTED.split())


def downgrade() -> None:
    """Takes it away again; an earlier version summarises what it cannot read."""
    op.drop_index("jobs_list_idx", "jobs")
    op.execute("UPDATE jobs SET summary = NULL WHERE worst IS NOT NULL")
    op.drop_column("jobs", "worst_at")
    op.create_index("jobs_list_idx", "jobs", BEFORE.split())

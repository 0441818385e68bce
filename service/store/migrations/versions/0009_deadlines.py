"""The default deadline of a job does not run while the job waits for a worker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Adds a column; jobs planned by earlier versions have no default deadline."""
    op.add_column("jobs", sa.Column("paused_at", sa.Double))


def downgrade() -> None:
    """Takes it away again."""
    op.drop_column("jobs", "paused_at")

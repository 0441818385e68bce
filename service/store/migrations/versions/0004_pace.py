"""When a job's attempt began to measure, so that its remaining time is not guessed from its start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds two columns; jobs that run meanwhile have no estimate until their next attempt."""
    op.add_column("jobs", sa.Column("paced_at", sa.Double))
    op.add_column("jobs", sa.Column("paced_from", sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    """Takes them away again."""
    op.drop_column("jobs", "paced_from")
    op.drop_column("jobs", "paced_at")

"""How fast each evaluation of a job runs, for its remaining time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Adds a column; jobs that run meanwhile go on at their mean speed."""
    op.add_column("jobs", sa.Column("pace", sa.Text))


def downgrade() -> None:
    """Takes it away again."""
    op.drop_column("jobs", "pace")

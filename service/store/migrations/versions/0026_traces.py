"""The trace in which a job was submitted, which workers continue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Adds the column; earlier jobs have no trace."""
    op.add_column("jobs", sa.Column("trace", sa.Text))


def downgrade() -> None:
    """Takes it away again."""
    op.drop_column("jobs", "trace")

"""What an operator watches: counters, what workers report of themselves, and expired artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds a table and two columns; existing rows stay as they are."""
    op.create_table(
        "counters",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", "labels", name="counters_pkey"),
    )
    op.add_column("workers", sa.Column("gauges", sa.Text))
    op.add_column("artifacts", sa.Column("expired_at", sa.Double))


def downgrade() -> None:
    """Takes them away again."""
    op.drop_column("artifacts", "expired_at")
    op.drop_column("workers", "gauges")
    op.drop_table("counters")

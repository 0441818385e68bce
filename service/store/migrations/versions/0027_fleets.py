"""Fleets: workers that a scheduler of machines starts and ends, as its controller last reported them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "fleets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("most", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("pending", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="fleets_pkey"),
    )


def downgrade() -> None:
    """Takes it away again: controllers report within a minute."""
    op.drop_table("fleets")

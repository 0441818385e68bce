"""Cordons of workers, names of workers that outlive their processes, and shards' faults of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Adds the table and the columns; workers get their names with their next heartbeat."""
    op.create_table(
        "cordons",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("drain", sa.Boolean, nullable=False),
        sa.Column("by_whom", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="cordons_pkey"),
    )
    op.add_column("workers", sa.Column("name", sa.Text, nullable=False, server_default=""))
    op.add_column("shards", sa.Column("device_faults", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Takes them away again: every worker may claim."""
    op.drop_column("shards", "device_faults")
    op.drop_column("workers", "name")
    op.drop_table("cordons")

"""A training may need several devices of one worker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"


def upgrade() -> None:
    """Adds a column to both sides: what there was needs one device, and has one."""
    for table in ("shards", "workers"):
        op.add_column(table, sa.Column("devices", sa.Integer, nullable=False, server_default="1"))


def downgrade() -> None:
    """Takes them away again."""
    for table in ("workers", "shards"):
        op.drop_column(table, "devices")

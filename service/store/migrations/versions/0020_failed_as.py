"""The fingerprint of a shard's last failure, to end a job at the second identical one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Adds a column; failures before it have no fingerprint."""
    op.add_column("shards", sa.Column("failed_as", sa.Text))


def downgrade() -> None:
    """Takes it away again: every failure is retried up to the cap."""
    op.drop_column("shards", "failed_as")

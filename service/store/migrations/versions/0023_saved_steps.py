"""The last step that a training has saved, and all its failures: neither is forgotten with a checkpoint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Adds the columns; failures before them do not count."""
    op.add_column("shards", sa.Column("saved_step", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("shards", sa.Column("all_failures", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Takes them away again: every checkpoint forgives what was before it."""
    op.drop_column("shards", "all_failures")
    op.drop_column("shards", "saved_step")

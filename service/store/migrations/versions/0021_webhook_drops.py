"""How many messages of a webhook were given up because too many waited."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Adds a column; nothing was given up before."""
    op.add_column("webhooks", sa.Column("dropped", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    """Takes it away again."""
    op.drop_column("webhooks", "dropped")

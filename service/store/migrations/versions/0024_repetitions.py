"""Who measured a shard, and what came of the shards that were computed again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Adds the columns; who measured before is not known."""
    op.add_column("outcomes", sa.Column("worker", sa.Text))
    op.add_column("jobs", sa.Column("repeated", sa.Text))


def downgrade() -> None:
    """Takes them away again, with the shards that would be computed again."""
    op.execute("DELETE FROM shards WHERE kind = 'repeat'")
    op.drop_column("jobs", "repeated")
    op.drop_column("outcomes", "worker")

"""Identities of workers, in the queue: a job is measured by workers of the identity that planned it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INDEX = "shards_claim_idx"
BEFORE = ("state", "tenant", "device")
BEHIND = ("precedence", "job_id", "evaluation", "number")


def upgrade() -> None:
    """Adds the columns; jobs that are planned already may be measured by any worker, as before."""
    for table in ("shards", "workers"):
        op.add_column(table, sa.Column("identity", identifier, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("replans", sa.Text))
    op.drop_index(INDEX, "shards")
    op.create_index(INDEX, "shards", [*BEFORE, "identity", *BEHIND])


def downgrade() -> None:
    """Takes them away again."""
    op.drop_index(INDEX, "shards")
    op.create_index(INDEX, "shards", [*BEFORE, *BEHIND])
    op.drop_column("jobs", "replans")
    for table in ("workers", "shards"):
        op.drop_column(table, "identity")

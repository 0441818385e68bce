"""Requirements of shards: what their worker must have beside its device and its identity."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INDEX = "shards_claim_idx"
BEFORE = ("state", "tenant", "device", "identity")
BEHIND = ("precedence", "job_id", "evaluation", "number")
NEW = "shards_requirements_idx"


def upgrade() -> None:
    """Adds them; shards of earlier versions have none."""
    op.add_column("shards", sa.Column("requirements", identifier, nullable=False, server_default=""))
    op.drop_index(INDEX, "shards")
    op.create_index(INDEX, "shards", [*BEFORE, "requirements", *BEHIND])
    where = sa.text("state <> 'done' AND requirements <> ''")
    op.create_index(NEW, "shards", ["requirements", "state"], postgresql_where=where, sqlite_where=where)
    op.create_table(
        "lanes",
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("identity", identifier, nullable=False),
        sa.Column("requirements", identifier, nullable=False),
        sa.Column("stated", sa.Text, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("device", "identity", "requirements", name="lanes_pkey"),
    )


def downgrade() -> None:
    """Takes them away again."""
    op.drop_table("lanes")
    op.drop_index(NEW, "shards")
    op.drop_index(INDEX, "shards")
    op.create_index(INDEX, "shards", [*BEFORE, *BEHIND])
    op.drop_column("shards", "requirements")

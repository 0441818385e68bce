"""Indices of the shards that are left, running and queued; when a shard began to wait; who sweeps for all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

INDICES = {
    "shards_left_idx": (["job_id", "evaluation"], "state <> 'done'"),
    "shards_running_idx": (["job_id"], "state = 'running'"),
    "shards_queued_idx": (["queued_at"], "state = 'queued'"),
}


def upgrade() -> None:
    """Adds them; it is not known since when shards of earlier versions have waited."""
    for column in ("queued_at", "progressed_at"):
        op.add_column("shards", sa.Column(column, sa.Double))
    for name, (columns, condition) in INDICES.items():
        where = sa.text(condition)
        op.create_index(name, "shards", columns, postgresql_where=where, sqlite_where=where)
    op.create_table(
        "duties",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="duties_pkey"),
    )


def downgrade() -> None:
    """Takes them away again."""
    op.drop_table("duties")
    for name in INDICES:
        op.drop_index(name, "shards")
    for column in ("progressed_at", "queued_at"):
        op.drop_column("shards", column)

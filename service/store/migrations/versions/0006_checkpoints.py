"""Uploaded weights, each checked by a job of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
jobs = sa.table("jobs", sa.column("kind", sa.Text))


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "checkpoints",
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("name", identifier, nullable=False),
        sa.Column("job_id", identifier, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="checkpoints_pkey"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], "checkpoints_job_id_fkey", ondelete="CASCADE"),
        sa.UniqueConstraint("job_id", name="checkpoints_job_id_key"),
    )


def downgrade() -> None:
    """Forgets the checkpoints, and the jobs that checked them: earlier versions have no such kind."""
    op.drop_table("checkpoints")
    op.execute(sa.delete(jobs).where(jobs.c.kind == "check"))

"""Studies: arms x seeds, and the jobs that they became."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds two tables, and the study of a job; those of earlier versions have none."""
    op.create_table(
        "studies",
        sa.Column("id", identifier, nullable=False),
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("templates", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("body_sha256", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="studies_pkey"),
        sa.UniqueConstraint("tenant", "key", name="studies_tenant_key"),
    )
    op.create_index("studies_tenant_id_idx", "studies", ["tenant", "id"])
    op.create_table(
        "study_jobs",
        sa.Column("study_id", identifier, nullable=False),
        sa.Column("arm", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("seed", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("job_id", identifier, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "arm", "seed", "role", name="study_jobs_pkey"),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name="study_jobs_study_id_fkey", ondelete="CASCADE"
        ),
    )
    op.create_index("study_jobs_job_id_idx", "study_jobs", ["job_id"])
    op.add_column("jobs", sa.Column("study_id", identifier))


def downgrade() -> None:
    """Forgets the studies; their jobs stay."""
    op.drop_column("jobs", "study_id")
    op.drop_table("study_jobs")
    op.drop_table("studies")

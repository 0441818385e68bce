"""Results of studies that have ended, so that a page does not make them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the table; the service fills it."""
    study = sa.ForeignKey("studies.id", name="study_results_study_id_fkey", ondelete="CASCADE")
    op.create_table(
        "study_results",
        sa.Column("study_id", identifier, study, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("results", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="study_results_pkey"),
    )


def downgrade() -> None:
    """Forgets them."""
    op.drop_table("study_results")

"""Studies that the service extends by seeds until their primary question is precisely answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the table; studies of before have no row."""
    study = sa.ForeignKey("studies.id", name="study_extensions_study_id_fkey", ondelete="CASCADE")
    op.create_table(
        "study_extensions",
        sa.Column("study_id", identifier, study, nullable=False),
        sa.Column("looks", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("claimed_until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="study_extensions_pkey"),
    )


def downgrade() -> None:
    """Forgets how far they were."""
    op.drop_table("study_extensions")

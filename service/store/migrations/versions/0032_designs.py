"""Registered designs of studies, and when the design of a study was fixed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COLUMNS = ("design", "fixing")


def upgrade() -> None:
    """Adds table and columns; of studies of before it is not known."""
    op.create_table(
        "study_designs",
        sa.Column("id", identifier, nullable=False),
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("design", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("earlier", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="study_designs_pkey"),
        sa.UniqueConstraint("tenant", "sha256", name="study_designs_tenant_key"),
    )
    for name in COLUMNS:
        op.add_column("studies", sa.Column(name, sa.Text))
    op.create_index("studies_design_idx", "studies", ["tenant", "design"])


def downgrade() -> None:
    """Forgets the designs; their studies stay."""
    op.drop_index("studies_design_idx", "studies")
    for name in COLUMNS:
        op.drop_column("studies", name)
    op.drop_table("study_designs")

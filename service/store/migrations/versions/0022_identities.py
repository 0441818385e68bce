"""Identities of workers that may take work, and what releases the workers' code is of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the table and the column; until a service declares a release, any worker may claim."""
    op.create_table(
        "identities",
        sa.Column("name", identifier, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("by_whom", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="identities_pkey"),
    )
    op.add_column("workers", sa.Column("release", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Takes them away again: every worker may claim."""
    op.drop_column("workers", "release")
    op.drop_table("identities")

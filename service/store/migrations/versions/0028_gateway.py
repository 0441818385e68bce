"""The secret that signs the tokens of claims over the gateway."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table; the first claim draws the secret."""
    op.create_table(
        "gateway_secrets",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("secret", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drops it; workers' outcomes that wait on nodes are refused."""
    op.drop_table("gateway_secrets")

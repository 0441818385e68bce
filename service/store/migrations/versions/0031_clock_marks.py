"""When the database's clock was last right by a clock that cannot jump: for a process that begins to lead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table, which the next leader fills."""
    op.create_table(
        "clock_marks",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("monotonic", sa.Double, nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Takes it away again."""
    op.drop_table("clock_marks")

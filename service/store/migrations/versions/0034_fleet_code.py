"""The code of a fleet's workers, which outlives them; since when workers are there; ends of controllers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COLUMNS = ("identity", "release", "code_since", "ended")


def upgrade() -> None:
    """Adds the columns; what a fleet's workers are is learned from the next that start."""
    op.add_column("workers", sa.Column("begun_at", sa.Double, nullable=False, server_default="0"))
    of_fleets = (
        sa.Column("identity", identifier, nullable=False, server_default=""),
        sa.Column("release", sa.Text, nullable=False, server_default=""),
        sa.Column("code_since", sa.Double, nullable=False, server_default="0"),
        sa.Column("ended", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    for column in of_fleets:
        op.add_column("fleets", column)


def downgrade() -> None:
    """Takes them away again."""
    for name in COLUMNS:
        op.drop_column("fleets", name)
    op.drop_column("workers", "begun_at")

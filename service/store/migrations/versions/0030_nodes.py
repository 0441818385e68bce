"""What a claim was charged as lost, which a late outcome takes off again; and files that are on their way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

COLUMNS = ("lost", "lost_day")
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds columns and table; losses of before stay lost."""
    for name in COLUMNS:
        op.add_column("shards", sa.Column(name, sa.BigInteger))
    job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    op.create_table(
        "promised_files",
        sa.Column("job_id", identifier, job, primary_key=True, nullable=False),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Takes them away again."""
    op.drop_table("promised_files")
    for name in COLUMNS:
        op.drop_column("shards", name)

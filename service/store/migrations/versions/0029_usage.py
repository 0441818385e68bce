"""The ledger of device-seconds: by job, pool and day; and when a training was last saved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the tables; the ledger begins empty, as earlier claims have left only sums of a day."""
    op.create_table(
        "usage",
        sa.Column("job_id", identifier, primary_key=True),
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("study_id", identifier),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("milliseconds", "starts", "lost", "repeated")
        ),
    )
    op.create_index("usage_day_idx", "usage", ["day", "tenant"])
    op.create_table(
        "deleted_tags",
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("job_id", identifier, primary_key=True),
    )
    op.create_index("deleted_tags_job_id_idx", "deleted_tags", ["job_id"])
    op.add_column("shards", sa.Column("saved_at", sa.Double))


def downgrade() -> None:
    """Takes them away again, with what they know."""
    op.drop_column("shards", "saved_at")
    op.drop_table("deleted_tags")
    op.drop_table("usage")

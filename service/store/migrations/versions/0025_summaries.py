"""Seeds and summaries of jobs as columns, which lists are sorted by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

COLUMNS = ("seed", sa.BigInteger), ("clean", sa.Double), ("worst", sa.Double), ("examples", sa.BigInteger)
SEED = {"postgresql": "(spec::json ->> 'seed')::bigint", "sqlite": "json_extract(spec, '$.seed')"}

LISTED = "tenant kind state model study_id seed clean worst examples started_at finished_at name id"


def upgrade() -> None:
    """Adds the columns, with the seeds that the specs have; workers summarise earlier jobs."""
    for name, kind in (*COLUMNS, ("summary", sa.Text)):
        op.add_column("jobs", sa.Column(name, kind))
    op.execute(f"UPDATE jobs SET seed = {SEED[op.get_bind().dialect.name]}")  # noqa: S608
    op.create_index("jobs_list_idx", "jobs", LISTED.split())


def downgrade() -> None:
    """Takes them away again; the specs and results have them."""
    op.drop_index("jobs_list_idx", "jobs")
    for name, _ in (*COLUMNS, ("summary", sa.Text)):
        op.drop_column("jobs", name)

"""Seeds and summaries of jobs as columns, which lists are sorted by."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

BATCH = 500
COLUMNS = {
    "seed": sa.BigInteger,
    "clean": sa.Double,
    "worst": sa.Double,
    "examples": sa.BigInteger,
    "summary": sa.Text,
}


def upgrade() -> None:
    """Adds the columns, with the seeds that the specs have; the service summarises earlier jobs."""
    for name, kind in COLUMNS.items():
        op.add_column("jobs", sa.Column(name, kind))
    jobs = sa.table(
        "jobs", sa.column("id", sa.Text), sa.column("spec", sa.Text), sa.column("seed", sa.BigInteger)
    )
    connection, last = op.get_bind(), ""
    change = sa.update(jobs).where(jobs.c.id == sa.bindparam("job")).values(seed=sa.bindparam("given"))
    while True:
        statement = sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id > last).order_by(jobs.c.id).limit(BATCH)
        found = connection.execute(statement).all()
        if not found:
            return
        last = found[-1].id
        connection.execute(
            change, [{"job": row.id, "given": json.loads(row.spec).get("seed")} for row in found]
        )


def downgrade() -> None:
    """Takes them away again; the specs and results have them."""
    for name in reversed(COLUMNS):
        op.drop_column("jobs", name)

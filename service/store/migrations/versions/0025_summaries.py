"""Seeds and summaries of jobs as columns, which lists are sorted by."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

COLUMNS = ("seed", sa.BigInteger), ("clean", sa.Double), ("worst", sa.Double), ("examples", sa.BigInteger)
BATCH = 500
LISTED = "tenant kind state model study_id seed clean worst examples started_at finished_at name id"


def upgrade() -> None:
    """Adds the columns, with the seeds that the specs have; workers summarise earlier jobs."""
    for name, kind in (*COLUMNS, ("summary", sa.Text)):
        op.add_column("jobs", sa.Column(name, kind))
    _read_seeds()
    op.create_index("jobs_list_idx", "jobs", LISTED.split())


def _read_seeds() -> None:
    # Not in SQL: PostgreSQL's `json` refuses texts with NUL or lone surrogates.
    jobs = sa.table(
        "jobs", sa.column("id", sa.Text), sa.column("spec", sa.Text), sa.column("seed", sa.BigInteger)
    )
    write = sa.update(jobs).where(jobs.c.id == sa.bindparam("job")).values(seed=sa.bindparam("found"))
    connection, last = op.get_bind(), ""
    while True:
        statement = sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id > last).order_by(jobs.c.id).limit(BATCH)
        rows = connection.execute(statement).all()
        if not rows:
            return
        last = rows[-1].id
        seeds = {row.id: json.loads(row.spec).get("seed") for row in rows}
        whole = {job: seed for job, seed in seeds.items() if type(seed) is int and -(2**63) <= seed < 2**63}
        if whole:
            connection.execute(write, [{"job": job, "found": seed} for job, seed in whole.items()])


def downgrade() -> None:
    """Takes them away again; the specs and results have them."""
    op.drop_index("jobs_list_idx", "jobs")
    for name, _ in (*COLUMNS, ("summary", sa.Text)):
        op.drop_column("jobs", name)

"""The name of a job as a column, which lists are searched by."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

BATCH = 500


def upgrade() -> None:
    """Adds the column, with the names that the specs have; specs are read in batches."""
    op.add_column("jobs", sa.Column("name", sa.Text, nullable=False, server_default=""))
    # Named here: a revision says what the table was then.
    jobs = sa.table("jobs", sa.column("id", sa.Text), sa.column("spec", sa.Text), sa.column("name", sa.Text))
    connection, last = op.get_bind(), ""
    while True:
        statement = sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id > last).order_by(jobs.c.id).limit(BATCH)
        found = connection.execute(statement).all()
        if not found:
            return
        last = found[-1].id
        names = {row.id: str(json.loads(row.spec).get("name") or "") for row in found}
        for job_id, name in names.items():
            if stored := "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in name):
                connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(name=stored))


def downgrade() -> None:
    """Takes it away again; the specs have the names."""
    op.drop_column("jobs", "name")

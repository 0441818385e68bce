"""A job may need the weights of several jobs: for itself, and for models that its attacks start from."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
jobs = sa.table("jobs", *(sa.column(name, sa.Text) for name in ("id", "spec", "depends_on")))
dependencies = sa.table("dependencies", *(sa.column(name, sa.Text) for name in ("job_id", "depends_on")))
# As specs are written: the only attack that named another job then.
TRANSFER = '"name":"transfer"'


def upgrade() -> None:
    """Moves the column to a table, and adds the jobs whose models are attacked."""
    op.create_table(
        "dependencies",
        sa.Column("job_id", identifier, nullable=False),
        sa.Column("depends_on", identifier, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "depends_on", name="dependencies_pkey"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], "dependencies_job_id_fkey", ondelete="CASCADE"),
    )
    op.create_index("dependencies_depends_on_idx", "dependencies", ["depends_on"])
    connection = op.get_bind()
    attacking = sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.spec.contains(TRANSFER))
    weights = sa.select(jobs.c.id, jobs.c.depends_on).where(jobs.c.depends_on.is_not(None))
    needs = {(row.id, row.depends_on) for row in connection.execute(weights)}
    needs |= {(row.id, source) for row in connection.execute(attacking) for source in _sources(row.spec)}
    if needs:
        rows = [{"job_id": job_id, "depends_on": source} for job_id, source in sorted(needs)]
        connection.execute(sa.insert(dependencies), rows)
    op.drop_index("jobs_depends_on_idx", "jobs")
    op.drop_column("jobs", "depends_on")


def downgrade() -> None:
    """Keeps the jobs that a model's own weights come from, and forgets the others."""
    op.add_column("jobs", sa.Column("depends_on", identifier))
    op.create_index("jobs_depends_on_idx", "jobs", ["depends_on"])
    written = sa.literal('"weights":{"job":"').concat(dependencies.c.depends_on).concat('"}')
    own = sa.select(dependencies.c.depends_on).where(
        dependencies.c.job_id == jobs.c.id, jobs.c.spec.contains(written)
    )
    op.execute(sa.update(jobs).values(depends_on=own.limit(1).scalar_subquery()))
    op.drop_table("dependencies")


def _sources(spec: str) -> set[str]:
    """The jobs whose models the transfer attacks of a spec use."""
    items = json.loads(spec).get("evaluations", [])
    return {item["params"]["job"] for item in items if item["name"] == "transfer"}

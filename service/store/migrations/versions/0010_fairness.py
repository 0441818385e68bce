"""Each tenant has a queue of its own, a weight, limits, and accounts of what it has used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
LIMITS = ("queued_jobs", "running_shards", "gpu_seconds", "cpu_seconds", "stored_bytes", "uploads")
ORDER = ["precedence", "job_id", "evaluation", "number"]


def upgrade() -> None:
    """Shards learn whose they are; those that run now were claimed at an unknown time and cost nothing."""
    op.add_column("shards", sa.Column("tenant", identifier, nullable=False, server_default=""))
    op.add_column("shards", sa.Column("claimed_at", sa.Double))
    op.add_column("shards", sa.Column("pool", sa.Text))
    jobs = sa.table("jobs", sa.column("id", sa.Text), sa.column("tenant", sa.Text))
    shards = sa.table("shards", sa.column("job_id", sa.Text), sa.column("tenant", sa.Text))
    owner = sa.select(jobs.c.tenant).where(jobs.c.id == shards.c.job_id).scalar_subquery()
    owned = sa.select(jobs.c.id).where(jobs.c.tenant.is_not(None))
    op.execute(sa.update(shards).where(shards.c.job_id.in_(owned)).values(tenant=owner))
    op.execute("UPDATE shards SET device = 'checks' WHERE kind = 'check'")
    op.drop_index("shards_claim_idx", "shards")
    op.create_index("shards_claim_idx", "shards", ["state", "tenant", "device", *ORDER])
    op.drop_index("jobs_queue_idx", "jobs")
    op.create_index("jobs_queue_idx", "jobs", ["state", "tenant", "priority", "id"])
    op.create_table(
        "tenants",
        sa.Column("name", identifier, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in LIMITS),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="tenants_pkey"),
    )
    op.create_table(
        "accounts",
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("virtual", sa.Double, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "pool", name="accounts_pkey"),
    )
    op.create_table(
        "clocks",
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("virtual", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("pool", name="clocks_pkey"),
    )
    op.create_table(
        "reservations",
        sa.Column("id", identifier, nullable=False),
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="reservations_pkey"),
    )
    op.create_index("reservations_tenant_idx", "reservations", ["tenant"])


def downgrade() -> None:
    """Forgets weights, limits and usage; there is one queue again."""
    for table in ("reservations", "clocks", "accounts", "tenants"):
        op.drop_table(table)
    op.drop_index("jobs_queue_idx", "jobs")
    op.create_index("jobs_queue_idx", "jobs", ["state", "priority", "id"])
    op.drop_index("shards_claim_idx", "shards")
    op.create_index("shards_claim_idx", "shards", ["state", *ORDER])
    op.execute("UPDATE shards SET device = 'auto' WHERE kind = 'check'")
    for column in ("pool", "claimed_at", "tenant"):
        op.drop_column("shards", column)

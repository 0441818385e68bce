"""API keys, browser sessions, and whose a job is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# Revisions say what the tables were then, so they share no definitions with `service.store.tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TENANT_INDEXES = {
    "jobs_tenant_idx": ["tenant", "id"],
    "jobs_tenant_state_idx": ["tenant", "state", "id"],
    "jobs_tenant_kind_idx": ["tenant", "kind", "id"],
    "jobs_tenant_model_idx": ["tenant", "model", "id"],
}


def upgrade() -> None:
    """Adds the tables of keys; jobs that are there already belong to no tenant."""
    _keys()
    _sessions()
    op.add_column("jobs", sa.Column("tenant", identifier))
    for name, columns in TENANT_INDEXES.items():
        op.create_index(name, "jobs", columns)
    _idempotency_keys(tenant=True)


def downgrade() -> None:
    """Forgets keys, sessions and tenants; of an idempotency key that several tenants used, one stays."""
    _idempotency_keys(tenant=False)
    for name in TENANT_INDEXES:
        op.drop_index(name, "jobs")
    op.drop_column("jobs", "tenant")
    op.drop_table("sessions")
    op.drop_table("api_keys")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def _identifier(name: str) -> sa.Column[str]:
    return sa.Column(name, identifier, nullable=False)


def _keys() -> None:
    op.create_table(
        "api_keys",
        _identifier("id"),
        _text("name"),
        _text("prefix"),
        _text("secret_sha256"),
        _text("scopes"),
        _identifier("tenant"),
        _real("created_at"),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="api_keys_pkey"),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        _identifier("token_sha256"),
        _identifier("key_id"),
        _text("csrf"),
        _real("created_at"),
        _real("expires_at"),
        sa.PrimaryKeyConstraint("token_sha256", name="sessions_pkey"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], "sessions_key_id_fkey", ondelete="CASCADE"),
    )
    op.create_index("sessions_key_id_idx", "sessions", ["key_id"])
    op.create_index("sessions_expires_at_idx", "sessions", ["expires_at"])


def _idempotency_keys(*, tenant: bool) -> None:
    """Makes the table anew, with its rows: SQLite cannot change a primary key."""
    op.execute("CREATE TABLE old_idempotency_keys AS SELECT * FROM idempotency_keys")
    op.drop_table("idempotency_keys")
    primary = ["tenant", "key"] if tenant else ["key"]
    op.create_table(
        "idempotency_keys",
        *([_identifier("tenant")] if tenant else []),
        _text("key"),
        _text("body_sha256"),
        _identifier("job_id"),
        _real("created_at"),
        sa.PrimaryKeyConstraint(*primary, name="idempotency_keys_pkey"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], "idempotency_keys_job_id_fkey", ondelete="CASCADE"),
    )
    op.create_index("idempotency_keys_job_id_idx", "idempotency_keys", ["job_id"])
    if tenant:
        op.execute(
            "INSERT INTO idempotency_keys (tenant, key, body_sha256, job_id, created_at)"
            " SELECT '', key, body_sha256, job_id, created_at FROM old_idempotency_keys"
        )
    else:
        op.execute(
            "INSERT INTO idempotency_keys (key, body_sha256, job_id, created_at)"
            " SELECT key, body_sha256, job_id, created_at FROM old_idempotency_keys AS old"
            " WHERE NOT EXISTS (SELECT 1 FROM old_idempotency_keys AS other"
            " WHERE other.key = old.key AND other.job_id < old.job_id)"
        )
    op.drop_table("old_idempotency_keys")

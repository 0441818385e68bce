"""Webhooks, and the outbox of their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

# Revisions say what the tables were then, so they share no definitions with `service.store.tenant_tables`.
identifier = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds two tables."""
    op.create_table(
        "webhooks",
        sa.Column("id", identifier, nullable=False),
        sa.Column("tenant", identifier, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("kinds", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("old_secret", sa.Text),
        sa.Column("old_secret_until", sa.Double),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("failing_since", sa.Double),
        sa.Column("disabled_reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="webhooks_pkey"),
    )
    op.create_index("webhooks_tenant_idx", "webhooks", ["tenant", "id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", identifier, nullable=False),
        sa.Column("webhook_id", identifier, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("object", identifier, nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("once", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Double),
        sa.Column("last_at", sa.Double),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="webhook_deliveries_pkey"),
        sa.UniqueConstraint("webhook_id", "once", name="webhook_deliveries_webhook_id_key"),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="webhook_deliveries_webhook_id_fkey", ondelete="CASCADE"
        ),
    )
    op.create_index("webhook_deliveries_webhook_id_idx", "webhook_deliveries", ["webhook_id", "id"])
    op.create_index("webhook_deliveries_created_at_idx", "webhook_deliveries", ["created_at"])
    where = sa.text("state = 'pending'")
    op.create_index(
        "webhook_deliveries_due_idx",
        "webhook_deliveries",
        ["next_at"],
        postgresql_where=where,
        sqlite_where=where,
    )


def downgrade() -> None:
    """Takes them away, with what was not delivered."""
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")

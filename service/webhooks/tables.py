"""The tables of webhooks: addresses of tenants, and the outbox of what is posted to them.

    webhooks ──< webhook_deliveries

Times are unix seconds of the database's clock.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
)

from assay.service.store.columns import Identifier, Json, PlainText, metadata, where

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Identifier, primary_key=True),
    # Empty for those without tenant.
    Column("tenant", Identifier, nullable=False),
    Column("url", PlainText, nullable=False),
    Column("description", PlainText),
    Column("events", Json, nullable=False),
    Column("kinds", Json, nullable=False),
    Column("tags", Json, nullable=False),
    # As it is: the service signs with it.
    Column("secret", Text, nullable=False),
    # The one before the last rotation signs too, until then.
    Column("old_secret", Text),
    Column("old_secret_until", Double),
    Column("created_at", Double, nullable=False),
    Column("failing_since", Double),
    # Messages given up because more waited than may.
    Column("dropped", BigInteger, nullable=False, server_default="0"),
    # Null while it is enabled.
    Column("disabled_reason", PlainText),
    Index("webhooks_tenant_idx", "tenant", "id"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    # A ULID: in the order of the events.
    Column("id", Identifier, primary_key=True),
    Column("webhook_id", Identifier, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, nullable=False),
    # The job or study.
    Column("object", Identifier, nullable=False),
    # The body; null for the end of a study until someone has looked whether it has ended.
    Column("payload", Json),
    # What the event is: one that is found twice is delivered once.
    Column("once", PlainText),
    Column("created_at", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # When it is tried, or tried again if nothing is heard of the present attempt; null once it is settled.
    Column("next_at", Double),
    Column("last_at", Double),
    Column("status", Integer),
    Column("error", PlainText),
    UniqueConstraint("webhook_id", "once"),
    Index("webhook_deliveries_webhook_id_idx", "webhook_id", "id"),
    Index("webhook_deliveries_created_at_idx", "created_at"),
    Index("webhook_deliveries_due_idx", "next_at", **where("state = 'pending'")),
)
# As in the index, with the constant in the text.
PENDING = webhook_deliveries.c.state == literal_column("'pending'")

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
    Column("tenant", Identifier, nullable=False),  # Empty for those without tenant.
    Column("url", PlainText, nullable=False),
    Column("description", PlainText),
    Column("events", Json, nullable=False),
    Column("kinds", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("secret", Text, nullable=False),  # As it is: the service signs with it.
    Column("old_secret", Text),  # The one before the last rotation signs too, until then.
    Column("old_secret_until", Double),
    Column("created_at", Double, nullable=False),
    Column("failing_since", Double),
    Column("dropped", BigInteger, nullable=False, server_default="0"),  # Given up: more waited than may.
    Column("disabled_reason", PlainText),  # Null while it is enabled.
    Index("webhooks_tenant_idx", "tenant", "id"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Identifier, primary_key=True),  # A ULID: in the order of the events.
    Column("webhook_id", Identifier, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, nullable=False),
    Column("object", Identifier, nullable=False),  # The job or study.
    Column("payload", Json),  # The body; null for a study's end until someone has looked at it.
    Column("once", PlainText),  # What the event is: one that is found twice is delivered once.
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
PENDING = webhook_deliveries.c.state == literal_column("'pending'")  # As in the index: a constant in the text

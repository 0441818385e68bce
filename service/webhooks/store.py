"""The webhooks of a tenant, and the log of their deliveries. Every method is one short transaction."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.store.audit import record
from assay.service.store.clock import now
from assay.service.store.ids import decode_cursor, encode_cursor, is_id, new_id
from assay.service.store.tenants import TenantPart
from assay.service.webhooks.outbox import add_delivery, message
from assay.service.webhooks.tables import PENDING, webhook_deliveries, webhooks
from assay.service.webhooks.wire import SECRET_PREFIX, WebhookRequest

SECRET_BYTES = 32
ROTATION_SECONDS = 86_400.0  # The old secret signs too for so long after a rotation.


class Webhooks(TenantPart):
    """The webhooks of the caller's tenant, for administrators too."""

    def add(self, request: WebhookRequest, most: int) -> tuple[Row[Any], str]:
        """Registers a webhook; returns it and its secret. Raises InvalidState: the tenant has too many."""
        secret = _new_secret()
        values = {
            **request.model_dump(),
            "id": new_id(time.time()),
            "tenant": self._owner,
            "secret": secret,
            "created_at": now(),
        }
        with self._database.writing() as connection:
            mine = webhooks.c.tenant == self._owner
            count = connection.execute(select(func.count()).select_from(webhooks).where(mine)).scalar_one()
            if count >= most:
                raise InvalidState(
                    f"there are {count} webhooks, at most {most} may be registered: remove some"
                )
            connection.execute(insert(webhooks).values(**values))
            record(connection, self._by, "webhook.create", values["id"], detail={"url": request.url})
            return _webhook(connection, values["id"], self._owner), secret

    def list(self) -> Sequence[Row[Any]]:
        """The tenant's webhooks, oldest first."""
        mine = webhooks.c.tenant == self._owner
        with self._database.reading() as connection:
            return connection.execute(_with_pending().where(mine).order_by(webhooks.c.id)).all()

    def get(self, webhook_id: str) -> Row[Any]:
        """One of the tenant's webhooks."""
        with self._database.reading() as connection:
            return _webhook(connection, webhook_id, self._owner)

    def delete(self, webhook_id: str) -> None:
        """Removes a webhook with its deliveries."""
        with self._database.writing() as connection:
            row = _webhook(connection, webhook_id, self._owner)
            connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))
            record(connection, self._by, "webhook.delete", webhook_id, detail={"url": row.url})

    def rotate(self, webhook_id: str) -> tuple[Row[Any], str]:
        """Makes a new secret; the old one signs beside it for a day."""
        secret = _new_secret()
        values = {
            "secret": secret,
            "old_secret": webhooks.c.secret,
            "old_secret_until": now() + ROTATION_SECONDS,
        }
        with self._database.writing() as connection:
            _webhook(connection, webhook_id, self._owner)
            connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**values))
            record(connection, self._by, "webhook.rotate", webhook_id)
            return _webhook(connection, webhook_id, self._owner), secret

    def enable(self, webhook_id: str) -> Row[Any]:
        """Puts a disabled webhook into service again; what it missed can be redelivered."""
        with self._database.writing() as connection:
            row = _webhook(connection, webhook_id, self._owner)
            if row.disabled_reason is not None:
                fresh = {"disabled_reason": None, "failing_since": None}
                connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**fresh))
                record(connection, self._by, "webhook.enable", webhook_id)
            return _webhook(connection, webhook_id, self._owner)

    def test(self, webhook_id: str) -> Row[Any]:
        """Queues a message without news; returns the delivery."""
        with self._database.writing() as connection:
            _enabled(_webhook(connection, webhook_id, self._owner))
            body = message("webhook.test", {"webhook": webhook_id})
            made = add_delivery(connection, webhook_id, "webhook.test", webhook_id, body)
            record(connection, self._by, "webhook.test", webhook_id)
            return _delivery(connection, webhook_id, made)

    def deliveries(
        self, webhook_id: str, limit: int, cursor: str | None
    ) -> tuple[Sequence[Row[Any]], str | None]:
        """The deliveries of a webhook, newest first."""
        wanted = (
            select(webhook_deliveries)
            .where(webhook_deliveries.c.webhook_id == webhook_id)
            .order_by(webhook_deliveries.c.id.desc())
            .limit(limit + 1)
        )
        if cursor is not None:
            wanted = wanted.where(webhook_deliveries.c.id < decode_cursor(cursor))
        with self._database.reading() as connection:
            _webhook(connection, webhook_id, self._owner)
            rows = connection.execute(wanted).all()
        return rows[:limit], encode_cursor(rows[limit - 1].id) if len(rows) > limit else None

    def redeliver(self, webhook_id: str, delivery_id: str) -> Row[Any]:
        """Queues a settled delivery again, under its id."""
        with self._database.writing() as connection:
            _enabled(_webhook(connection, webhook_id, self._owner))
            row = _delivery(connection, webhook_id, delivery_id)
            if row.state == "pending":
                raise InvalidState(f"delivery {delivery_id} is pending: it is tried again by itself")
            this = webhook_deliveries.c.id == delivery_id
            again = {"state": "pending", "attempts": 0, "next_at": now(), "error": None, "status": None}
            connection.execute(update(webhook_deliveries).where(this).values(**again))
            record(connection, self._by, "webhook.redeliver", webhook_id, detail={"delivery": delivery_id})
            return _delivery(connection, webhook_id, delivery_id)


def _new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _with_pending() -> Any:
    waiting = (
        select(func.count())
        .select_from(webhook_deliveries)
        .where(webhook_deliveries.c.webhook_id == webhooks.c.id, PENDING)
        .scalar_subquery()
    )
    return select(webhooks, waiting.label("pending"))


def _webhook(connection: Connection, webhook_id: str, tenant: str) -> Row[Any]:
    mine = (webhooks.c.id == webhook_id) & (webhooks.c.tenant == tenant)
    row = connection.execute(_with_pending().where(mine)).one_or_none() if is_id(webhook_id) else None
    if row is None:
        raise NotFound(f"there is no webhook {webhook_id[:60]!r}")
    found: Row[Any] = row
    return found


def _delivery(connection: Connection, webhook_id: str, delivery_id: str) -> Row[Any]:
    table = webhook_deliveries
    mine = (table.c.id == delivery_id) & (table.c.webhook_id == webhook_id)
    row = connection.execute(select(table).where(mine)).one_or_none() if is_id(delivery_id) else None
    if row is None:
        raise NotFound(f"webhook {webhook_id} has no delivery {delivery_id[:60]!r}")
    return row


def _enabled(row: Row[Any]) -> None:
    if row.disabled_reason is not None:
        raise InvalidState(f"the webhook is disabled ({row.disabled_reason}): enable it first")


TENANT_STORE = Webhooks  # which `TenantStore.features` gives to routes

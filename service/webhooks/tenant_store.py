"""Webhooks as one caller of the service sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from assay.service.store.audit import Actor
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.wire import WebhookRequest


class TenantWebhooks:
    """The webhooks of the caller's tenant, for administrators too."""

    def __init__(self, webhooks: Webhooks, tenant: str | None, by: Actor | None) -> None:
        self._webhooks = webhooks
        self._tenant = tenant
        self._by = by

    def add(self, request: WebhookRequest, most: int) -> tuple[Row[Any], str]:
        """Registers one."""
        return self._webhooks.add(request, tenant=self._tenant, most=most, by=self._by)

    def list(self) -> Sequence[Row[Any]]:
        """All of them."""
        return self._webhooks.list(tenant=self._tenant)

    def get(self, webhook_id: str) -> Row[Any]:
        """One of them."""
        return self._webhooks.get(webhook_id, tenant=self._tenant)

    def delete(self, webhook_id: str) -> None:
        """Removes one."""
        self._webhooks.delete(webhook_id, tenant=self._tenant, by=self._by)

    def rotate(self, webhook_id: str) -> tuple[Row[Any], str]:
        """Gives one a new secret."""
        return self._webhooks.rotate(webhook_id, tenant=self._tenant, by=self._by)

    def enable(self, webhook_id: str) -> Row[Any]:
        """Puts one into service again."""
        return self._webhooks.enable(webhook_id, tenant=self._tenant, by=self._by)

    def test(self, webhook_id: str) -> Row[Any]:
        """Queues a message without news."""
        return self._webhooks.test(webhook_id, tenant=self._tenant, by=self._by)

    def deliveries(
        self, webhook_id: str, limit: int, cursor: str | None
    ) -> tuple[Sequence[Row[Any]], str | None]:
        """The deliveries of a webhook, newest first."""
        return self._webhooks.deliveries(webhook_id, tenant=self._tenant, limit=limit, cursor=cursor)

    def redeliver(self, webhook_id: str, delivery_id: str) -> Row[Any]:
        """Queues a settled delivery again."""
        return self._webhooks.redeliver(webhook_id, delivery_id, tenant=self._tenant, by=self._by)

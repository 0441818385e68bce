"""The Python client's calls for webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.contract.results import Page
from assay.service.webhooks.wire import NewWebhook, Webhook, WebhookDelivery, WebhookEvent

WEBHOOKS = f"{API}/webhooks"


class WebhookCalls(Connection):
    """Registers, lists, removes and tries the webhooks of the caller's tenant."""

    def webhooks(self) -> list[Webhook]:
        """All webhooks of the tenant, oldest first."""
        return parsed(Page[Webhook], self._json("GET", WEBHOOKS)).items

    def webhook(self, webhook_id: str) -> Webhook:
        """One webhook."""
        return parsed(Webhook, self._json("GET", f"{WEBHOOKS}/{part(webhook_id)}"))

    def add_webhook(
        self,
        url: str,
        *,
        events: Sequence[WebhookEvent] | None = None,
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        description: str | None = None,
    ) -> NewWebhook:
        """Registers a webhook; its secret is in the answer, and cannot be had again.

        `url` is an https address of a public host; `events` are by default the end of jobs, limited to
        `kinds` ("train", "evaluate") and to jobs with one of `tags`; `description` is for people. Raises
        InvalidSpec for a wrong value or forbidden address, InvalidState if the tenant has its maximum.
        """
        body = {"url": url, "kinds": list(kinds), "tags": list(tags)}
        given = {"events": None if events is None else list(events), "description": description}
        body |= {name: value for name, value in given.items() if value is not None}
        return parsed(NewWebhook, self._json("POST", WEBHOOKS, body=body))

    def remove_webhook(self, webhook_id: str) -> None:
        """Removes a webhook with its log."""
        self._call("DELETE", f"{WEBHOOKS}/{part(webhook_id)}")

    def rotate_webhook(self, webhook_id: str) -> NewWebhook:
        """Makes a new secret; the old one signs beside it for a day."""
        return parsed(NewWebhook, self._json("POST", f"{WEBHOOKS}/{part(webhook_id)}/rotate"))

    def enable_webhook(self, webhook_id: str) -> Webhook:
        """Puts a disabled webhook into service again."""
        return parsed(Webhook, self._json("POST", f"{WEBHOOKS}/{part(webhook_id)}/enable"))

    def test_webhook(self, webhook_id: str) -> WebhookDelivery:
        """Queues a test message; InvalidState if the webhook is disabled."""
        return parsed(WebhookDelivery, self._json("POST", f"{WEBHOOKS}/{part(webhook_id)}/test"))

    def webhook_deliveries(self, webhook_id: str, *, page_size: int = 50) -> Iterator[WebhookDelivery]:
        """The deliveries of a webhook, newest first; pages are fetched on demand."""
        path = f"{WEBHOOKS}/{part(webhook_id)}/deliveries"
        return self._pages(WebhookDelivery, path, {"limit": page_size})

    def redeliver_webhook(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Queues a delivered or failed message again, same id; InvalidState: pending, or disabled webhook."""
        path = f"{WEBHOOKS}/{part(webhook_id)}/deliveries/{part(delivery_id)}/redeliver"
        return parsed(WebhookDelivery, self._json("POST", path))

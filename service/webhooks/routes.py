"""Routes of webhooks: registered, listed, removed, rotated and tried by a tenant for its own events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Response
from sqlalchemy import Row

from assay.service.api.deps import (
    BodyDep,
    Cursor,
    Limit,
    SettingsDep,
    StoreDep,
    StrictRouter,
    json_body,
    validated,
)
from assay.service.api.errors import documented
from assay.service.api.views import view
from assay.service.contract.errors import (
    ErrorDetail,
    InvalidSpec,
    InvalidState,
    MalformedJson,
    NotFound,
    UnsupportedMediaType,
)
from assay.service.contract.results import Page
from assay.service.contract.times import iso_or_none
from assay.service.settings import Settings
from assay.service.webhooks.address import BadAddress, Reach
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.wire import NewWebhook, Webhook, WebhookDelivery, WebhookRequest

WebhookId = Annotated[str, Path(description="webhook id", examples=["01jd3q0x5v8f7m2n9k4t6w1z0w"])]
DeliveryId = Annotated[str, Path(description="delivery id, the header webhook-id")]

router = StrictRouter(prefix="/api/v1/webhooks", tag="webhooks")
ROUTERS, BEFORE = (router,), "keys"


async def _webhooks(store: StoreDep) -> Webhooks:
    return store.features.of(Webhooks)


WebhooksDep = Annotated[Webhooks, Depends(_webhooks)]


@router.get("", summary="List webhooks")
def list_webhooks(webhooks: WebhooksDep) -> Page[Webhook]:
    """The webhooks of the caller's tenant, oldest first, without their secrets."""
    return Page(items=[webhook_view(row) for row in webhooks.list()])


@router.post(
    "",
    summary="Register a webhook",
    status_code=201,
    responses=documented(MalformedJson, UnsupportedMediaType, InvalidState),
    openapi_extra=json_body(WebhookRequest),
)
def create_webhook(
    body: BodyDep, webhooks: WebhooksDep, settings: SettingsDep, response: Response
) -> NewWebhook:
    """The answer has the secret that signs its messages, which cannot be had again."""
    request = validated(WebhookRequest, body)
    _check_address(settings, request.url)
    row, secret = webhooks.add(request, settings.max_webhooks)
    return _with_secret(row, secret, response)


@router.get("/{webhook_id}", summary="A webhook", responses=documented(NotFound))
def get_webhook(webhook_id: WebhookId, webhooks: WebhooksDep) -> Webhook:
    """One webhook without its secret."""
    return webhook_view(webhooks.get(webhook_id))


@router.delete("/{webhook_id}", summary="Remove a webhook", status_code=204, responses=documented(NotFound))
def delete_webhook(webhook_id: WebhookId, webhooks: WebhooksDep) -> None:
    """Nothing is posted to it from now on; its log is deleted too."""
    webhooks.delete(webhook_id)


@router.post("/{webhook_id}/rotate", summary="Give a webhook a new secret", responses=documented(NotFound))
def rotate_webhook(webhook_id: WebhookId, webhooks: WebhooksDep, response: Response) -> NewWebhook:
    """For a day, messages have a signature by the old secret and a signature by the new secret."""
    row, secret = webhooks.rotate(webhook_id)
    return _with_secret(row, secret, response)


@router.post("/{webhook_id}/enable", summary="Enable a disabled webhook", responses=documented(NotFound))
def enable_webhook(webhook_id: WebhookId, webhooks: WebhooksDep) -> Webhook:
    """It gets new events again; what it missed can be redelivered."""
    return webhook_view(webhooks.enable(webhook_id))


@router.post(
    "/{webhook_id}/test",
    summary="Post a test message",
    status_code=202,
    responses=documented(NotFound, InvalidState),
)
def test_webhook(webhook_id: WebhookId, webhooks: WebhooksDep) -> WebhookDelivery:
    """Queues a message of type `webhook.test`."""
    return delivery_view(webhooks.test(webhook_id))


@router.get(
    "/{webhook_id}/deliveries",
    operation_id="list_webhook_deliveries",
    summary="The deliveries of a webhook",
    responses=documented(NotFound),
)
def list_deliveries(
    webhook_id: WebhookId, webhooks: WebhooksDep, limit: Limit = 50, cursor: Cursor | None = None
) -> Page[WebhookDelivery]:
    """Newest first; settled ones are kept for a week."""
    rows, following = webhooks.deliveries(webhook_id, limit, cursor)
    return Page(items=[delivery_view(row) for row in rows], next_cursor=following)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    operation_id="redeliver_webhook",
    summary="Post a message again",
    status_code=202,
    responses=documented(NotFound, InvalidState),
)
def redeliver(webhook_id: WebhookId, delivery_id: DeliveryId, webhooks: WebhooksDep) -> WebhookDelivery:
    """Queues a delivered or failed message again, under the same id."""
    return delivery_view(webhooks.redeliver(webhook_id, delivery_id))


def webhook_view(row: Row[Any]) -> Webhook:
    """A webhook as users see it."""
    disabled = row.disabled_reason is not None
    return view(Webhook, row, failing_since=iso_or_none(row.failing_since), disabled=disabled)


def delivery_view(row: Row[Any]) -> WebhookDelivery:
    """A delivery as users see it."""
    return view(WebhookDelivery, row)


def _with_secret(row: Row[Any], secret: str, response: Response) -> NewWebhook:
    response.headers["Cache-Control"] = "no-store"
    return NewWebhook(**webhook_view(row).model_dump(), secret=secret)


def _check_address(settings: Settings, url: str) -> None:
    try:
        Reach(settings.webhook_allow).check(url)
    except BadAddress as error:
        allowed = (
            "https, a public host, port 443 or 8443; the operator allows others with ASSAY_WEBHOOK_ALLOW"
        )
        detail = ErrorDetail(loc=["url"], message=str(error), given=url[:200], allowed=allowed)
        raise InvalidSpec(f"url: {error}", [detail]) from None

"""Webhooks: addresses that a tenant's events are posted to, and the log of their deliveries.

Signed as Standard Webhooks (standardwebhooks.com): `webhook-id`, `webhook-timestamp` and `webhook-signature`,
which is `v1,` and the base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from assay.service.contract.keys import NAME_PATTERN
from assay.service.contract.results import Answer

WebhookEvent = Literal[
    "job.succeeded",
    "job.failed",
    "job.canceled",
    "job.timed_out",
    "evaluation.finished",
    "study.ended",
    "webhook.test",
]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
JOB_ENDED: tuple[WebhookEvent, ...] = ("job.succeeded", "job.failed", "job.canceled", "job.timed_out")
DeliveryState = Literal["pending", "delivered", "failed"]
SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix of secrets)


class WebhookRequest(BaseModel):
    """A webhook to be registered; `kinds` and `tags` limit events of jobs to any of them, if not empty."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    description: Annotated[str, Field(max_length=200, pattern=NAME_PATTERN)] | None = None
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=20)] = list(JOB_ENDED)
    kinds: Annotated[list[Literal["train", "evaluate"]], Field(max_length=2)] = []
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=20)] = []


class Webhook(Answer):
    """A webhook without its secret. `pending` counts deliveries that are still tried.

    `dropped` counts deliveries given up because more than `ASSAY_MAX_WEBHOOK_PENDING` were waiting.

    `failing_since` is when the first of the latest deliveries failed, null after a success. A `disabled`
    webhook gets nothing until it is enabled; `disabled_reason` says why.
    """

    id: str
    url: str
    description: str | None
    events: list[WebhookEvent]
    kinds: list[str]
    tags: list[str]
    created_at: str
    failing_since: str | None
    disabled: bool
    disabled_reason: str | None
    pending: int
    dropped: int = 0


class NewWebhook(Webhook):
    """A new webhook, or one with a new secret, which is shown this once."""

    secret: str


class WebhookDelivery(Answer):
    """An event on its way to a webhook. `id` is the `webhook-id` of every attempt.

    `next_at` is null at the end. Only an answer's `status` is kept; `error` says why there was none.
    """

    id: str
    event: WebhookEvent
    object: str
    state: DeliveryState
    attempts: int
    created_at: str
    last_at: str | None
    next_at: str | None
    status: int | None
    error: str | None
    payload: dict[str, Any] | None

"""The outbox of webhooks: events are written in the transaction of the change that they report.

Nothing is sent here. A tenant without webhooks costs one look at an index for each job that ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from assay.service.contract.records import ResultJson
from assay.service.store.clock import now
from assay.service.store.ids import new_id
from assay.service.store.tables import jobs, results, tags
from assay.service.store.tenant_tables import webhook_deliveries, webhooks
from assay.service.webhooks.wire import WebhookEvent

JOBS, STUDIES = "/api/v1/jobs", "/api/v1/studies"
# The message of a job's end has the first metric of at most so many evaluations.
MAX_METRICS = 50
FIELDS = ("value", "ci_low", "ci_high", "n", "unit")


def announce_end(connection: Connection, job_id: str) -> None:
    """Writes the end of a job, and that its study may have ended, for the webhooks that want them."""
    job = _job(connection, job_id)
    if job is None:
        return
    event: WebhookEvent = f"job.{job.state}"  # type: ignore[assignment]
    _write(connection, job, event, lambda: _ended(connection, job))
    if job.study_id is not None:
        # If two jobs end at once, neither sees the other's end: the delivery looks again.
        for hook in _wanting(connection, job.tenant, "study.ended"):
            add_delivery(connection, hook.id, "study.ended", job.study_id, None)


def announce_evaluation(connection: Connection, job_id: str, evaluation: int, result: ResultJson) -> None:
    """Writes the result of an evaluation for the webhooks that want it."""
    job = _job(connection, job_id)
    if job is not None:
        parts = {"evaluation": evaluation, **_headline(result, every=True)}
        _write(connection, job, "evaluation.finished", lambda: {**_about(job), "job_name": job.name, **parts})


def message(event: WebhookEvent, data: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a message."""
    text = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    return {"type": event, "timestamp": text.replace("+00:00", "Z"), "data": dict(data)}


def add_delivery(
    connection: Connection,
    webhook_id: str,
    event: WebhookEvent,
    about: str,
    payload: Mapping[str, Any] | None,
) -> str:
    """Puts a message for a webhook into the outbox; returns its id."""
    delivery_id = new_id(time.time())
    values = {
        "id": delivery_id,
        "webhook_id": webhook_id,
        "event": event,
        "object": about,
        "payload": payload,
        "created_at": now(),
        "state": "pending",
        "attempts": 0,
        "next_at": now(),
    }
    connection.execute(insert(webhook_deliveries).values(**values))
    return delivery_id


def _job(connection: Connection, job_id: str) -> Any:
    columns = (jobs.c.id, jobs.c.kind, jobs.c.name, jobs.c.state, jobs.c.attempt, jobs.c.tenant)
    wanted = select(*columns, jobs.c.study_id, jobs.c.error).where(
        jobs.c.id == job_id, jobs.c.kind != "check"
    )
    return connection.execute(wanted).one_or_none()


def _wanting(connection: Connection, tenant: str | None, event: WebhookEvent) -> Sequence[Any]:
    mine = (webhooks.c.tenant == (tenant or "")) & webhooks.c.disabled_reason.is_(None)
    columns = (webhooks.c.id, webhooks.c.events, webhooks.c.kinds, webhooks.c.tags)
    # Locked against deletion: a job's end must not fail for a webhook that is deleted meanwhile.
    wanted = select(*columns).where(mine).order_by(webhooks.c.id).with_for_update(read=True, key_share=True)
    return [hook for hook in connection.execute(wanted) if event in hook.events]


def _write(connection: Connection, job: Row[Any], event: WebhookEvent, data: Any) -> None:
    hooks = [
        hook for hook in _wanting(connection, job.tenant, event) if (not hook.kinds or job.kind in hook.kinds)
    ]
    if any(hook.tags for hook in hooks):
        mine = set(connection.execute(select(tags.c.tag).where(tags.c.job_id == job.id)).scalars())
        hooks = [hook for hook in hooks if not hook.tags or mine & set(hook.tags)]
    if hooks:
        body = message(event, data())
        for hook in hooks:
            add_delivery(connection, hook.id, event, job.id, body)


def _about(job: Row[Any]) -> dict[str, Any]:
    path = f"{JOBS}/{job.id}"
    return {
        "job": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "attempt": job.attempt,
        "study": job.study_id,
        "links": {"self": path, "results": f"{path}/results"},
    }


def _ended(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    wanted = select(results.c.result).where(results.c.job_id == job.id).order_by(results.c.evaluation)
    found = connection.execute(wanted.limit(MAX_METRICS)).scalars()
    return {
        **_about(job),
        "error": job.error,
        "metrics": [_headline(result, every=False) for result in found],
    }


def _headline(result: Mapping[str, Any], *, every: bool) -> dict[str, Any]:
    """Name, epsilon and the first metric of an evaluation, or all of its metrics; breakdowns are left out."""
    metrics = dict(list((result.get("metrics") or {}).items())[: None if every else 1])
    shown = {
        name: {field: metric.get(field) for field in FIELDS if field in metric}
        for name, metric in metrics.items()
    }
    return {
        "name": result.get("name"),
        "epsilon": (result.get("params") or {}).get("epsilon"),
        "metrics": shown,
    }

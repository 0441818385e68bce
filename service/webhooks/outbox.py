"""The outbox of webhooks: events are written in the transaction of the change that they report, and claimed.

Nothing is sent here. A tenant without webhooks costs one look at an index for each job that ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from assay.service.contract.records import ResultJson
from assay.service.contract.states import TERMINAL, JobState
from assay.service.contract.times import iso
from assay.service.store.clock import now
from assay.service.store.database import StorePart
from assay.service.store.ids import new_id
from assay.service.store.tables import jobs, results, studies, study_jobs, tags
from assay.service.store.tenant_tables import study_extensions
from assay.service.webhooks.tables import PENDING, webhook_deliveries, webhooks
from assay.service.webhooks.wire import WebhookEvent

JOBS, STUDIES = "/api/v1/jobs", "/api/v1/studies"
MAX_METRICS = 50  # The message of a job's end has the first metric of at most so many evaluations.
FIELDS = ("value", "ci_low", "ci_high", "n", "unit")
# Pauses before each further attempt, about a day in all. Each is varied by a fifth.
PAUSES = (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 29_000)
JITTER = 0.2
FAILING_SECONDS = 64_800.0  # After so long without a success, giving up a delivery disables it.
CLAIM_SECONDS = 60.0  # After it, a claimed delivery is due again; an attempt takes a fraction of it.
CLAIMS_EACH = 2  # Deliveries of a webhook at a time, so that a slow webhook does not hold up the others.
KEPT_SECONDS = 7 * 86_400.0
GONE = 410


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
    return {"type": event, "timestamp": iso(time.time()), "data": dict(data)}


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


@dataclass(frozen=True)
class DueDelivery:
    """A claimed delivery. `attempt` guards its outcome: a later claim has another."""

    id: str
    webhook_id: str
    url: str
    secrets: tuple[str, ...]  # that sign it, the present one first
    body: Mapping[str, Any]  # of the message
    attempt: int


class Outbox(StorePart):
    """The queue of deliveries.

    A delivery is claimed by moving its next attempt into the future: a process that dies while it posts
    leaves a delivery that is due again. Nothing is posted inside a transaction.
    """

    def claim(self, most: int) -> Sequence[DueDelivery]:
        """Takes due deliveries, at most two of each webhook; the oldest first."""
        due = PENDING & (webhook_deliveries.c.next_at <= now())
        if not self._any(due):
            return []
        place = func.row_number().over(
            partition_by=webhook_deliveries.c.webhook_id,
            order_by=(webhook_deliveries.c.next_at, webhook_deliveries.c.id),
        )
        ranked = select(webhook_deliveries.c.id, place.label("place")).where(due).subquery()
        first = select(ranked.c.id).where(ranked.c.place <= CLAIMS_EACH)
        chosen = (
            select(webhook_deliveries.c.id)
            .where(due, webhook_deliveries.c.id.in_(first))
            .order_by(webhook_deliveries.c.next_at, webhook_deliveries.c.id)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        values = {
            "attempts": webhook_deliveries.c.attempts + 1,
            "next_at": now() + CLAIM_SECONDS,
            "last_at": now(),
        }
        with self._database.writing() as connection:
            ids = list(connection.execute(chosen).scalars())
            if not ids:
                return []
            mine = webhook_deliveries.c.id.in_(ids)
            connection.execute(update(webhook_deliveries).where(mine).values(**values))
            found = select(webhook_deliveries, webhooks, now().label("at")).join(
                webhooks, webhooks.c.id == webhook_deliveries.c.webhook_id
            )
            rows = connection.execute(found.where(mine).order_by(webhook_deliveries.c.id)).all()
            claimed = (self._claimed(connection, row) for row in rows)
            return [one for one in claimed if one is not None]

    def settle(self, due: DueDelivery, *, status: int | None, error: str | None) -> str | None:
        """Notes an attempt: "delivered" (2xx), "failed" (once more), "given_up"; None: claimed since."""
        held = (webhook_deliveries.c.id == due.id) & (webhook_deliveries.c.attempts == due.attempt) & PENDING
        values: dict[str, Any] = {"status": status, "error": error, "last_at": now()}
        delivered = status is not None and 200 <= status < 300
        given_up = not delivered and (due.attempt > len(PAUSES) or status == GONE)
        if delivered or given_up:
            values |= {"state": "delivered" if delivered else "failed", "next_at": None}
        else:
            pause = PAUSES[due.attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)
            values["next_at"] = now() + pause
        with self._database.writing() as connection:
            this = webhooks.c.id == due.webhook_id
            # First of all, so that two outcomes of the same webhook wait here and not for each other.
            connection.execute(select(webhooks.c.id).where(this).with_for_update(key_share=True))
            if not connection.execute(update(webhook_deliveries).where(held).values(**values)).rowcount:
                return None
            if delivered:
                well = update(webhooks).where(this, webhooks.c.failing_since.is_not(None))
                connection.execute(well.values(failing_since=None))
            else:
                begun = update(webhooks).where(this, webhooks.c.failing_since.is_(None))
                connection.execute(begun.values(failing_since=now()))
            if given_up:
                _disable(connection, due.webhook_id, gone=status == GONE)
        return "delivered" if delivered else "given_up" if given_up else "failed"

    def trim(self, most: int) -> Mapping[str, int]:
        """Gives up the oldest deliveries above `most` of a webhook; numbers by id. The log keeps them."""
        full = select(webhook_deliveries.c.webhook_id).where(PENDING)
        full = full.group_by(webhook_deliveries.c.webhook_id).having(func.count() > most)
        with self._database.reading() as connection:
            ids = connection.execute(full).scalars().all()
        return {webhook_id: dropped for webhook_id in ids if (dropped := self._drop(webhook_id, most))}

    def _drop(self, webhook_id: str, most: int) -> int:
        waiting = (webhook_deliveries.c.webhook_id == webhook_id) & PENDING
        kept = select(webhook_deliveries.c.id).where(waiting)
        kept = kept.order_by(webhook_deliveries.c.id.desc()).limit(most)
        values = {"state": "failed", "next_at": None, "error": f"more than {most} messages were waiting"}
        this = webhooks.c.id == webhook_id
        with self._database.writing() as connection:
            connection.execute(select(webhooks.c.id).where(this).with_for_update(key_share=True))
            newest = connection.execute(kept).scalars().all()
            if len(newest) < most:
                return 0
            old = waiting & (webhook_deliveries.c.id < newest[-1])
            count = connection.execute(update(webhook_deliveries).where(old).values(**values)).rowcount
            connection.execute(update(webhooks).where(this).values(dropped=webhooks.c.dropped + count))
        return count

    def forget(self) -> int:
        """Deletes settled deliveries that are a week old; returns how many."""
        old = (webhook_deliveries.c.created_at < now() - KEPT_SECONDS) & ~PENDING
        if not self._any(old):
            return 0
        with self._database.writing() as connection:
            return connection.execute(delete(webhook_deliveries).where(old)).rowcount

    def _any(self, condition: ColumnElement[bool]) -> bool:
        with self._database.reading() as connection:
            wanted = select(webhook_deliveries.c.id).where(condition).limit(1)
            return connection.execute(wanted).first() is not None

    def _claimed(self, connection: Connection, row: Row[Any]) -> DueDelivery | None:
        body = row.payload
        if body is None:
            body = _study_ended(connection, row)
            if body is None:
                return None
        rotating = row.old_secret is not None and row.old_secret_until > row.at
        keys = (row.secret, row.old_secret) if rotating else (row.secret,)
        return DueDelivery(row.id, row.webhook_id, row.url, keys, body, row.attempts)


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


def _disable(connection: Connection, webhook_id: str, *, gone: bool) -> None:
    this = (webhooks.c.id == webhook_id) & webhooks.c.disabled_reason.is_(None)
    reason = "its address answered 410 (gone)" if gone else "its deliveries failed for a day"
    if not gone:
        this &= webhooks.c.failing_since < now() - FAILING_SECONDS
    if connection.execute(update(webhooks).where(this).values(disabled_reason=reason)).rowcount:
        waiting = (webhook_deliveries.c.webhook_id == webhook_id) & PENDING
        values = {"state": "failed", "next_at": None, "error": "the webhook was disabled"}
        connection.execute(update(webhook_deliveries).where(waiting).values(**values))


def _looked_for(connection: Connection, study_id: str) -> bool:
    """Whether all jobs of a study have succeeded, and the service may add seeds: it has not ended yet."""
    mine = (study_extensions.c.study_id == study_id) & (study_extensions.c.state == "open")
    unfinished = (
        select(study_jobs.c.job_id)
        .outerjoin(jobs, jobs.c.id == study_jobs.c.job_id)
        .where(study_jobs.c.study_id == study_id, jobs.c.state.is_distinct_from(str(JobState.SUCCEEDED)))
    )
    going_on = select(study_extensions.c.study_id).where(mine, ~unfinished.exists())
    return connection.execute(going_on).first() is not None


def _study_ended(connection: Connection, row: Row[Any]) -> dict[str, Any] | None:
    """The message of a study's end; without one yet, or told before, its delivery is removed."""
    made = study_jobs.join(jobs, jobs.c.id == study_jobs.c.job_id)
    wanted = select(jobs.c.state, jobs.c.attempt, jobs.c.finished_at, jobs.c.id).select_from(made)
    states = connection.execute(wanted.where(study_jobs.c.study_id == row.object).order_by(jobs.c.id)).all()
    study = connection.execute(select(studies.c.name).where(studies.c.id == row.object)).one_or_none()
    going = any(one.state not in TERMINAL for one in states)
    # What the end is: the attempts of all jobs. One that is told twice is delivered once.
    last = max(((one.finished_at or 0.0) for one in states), default=0.0)
    once = f"{row.object} {len(states)} {sum(one.attempt for one in states)} {last!r}"
    told = (webhook_deliveries.c.webhook_id == row.webhook_id) & (webhook_deliveries.c.once == once)
    known = connection.execute(select(webhook_deliveries.c.id).where(told)).first()
    waits = study is not None and not going and _looked_for(connection, row.object)
    # The newest of those that wait stays, so that two processes never remove each other's.
    newer = PENDING & (webhook_deliveries.c.id > row.id) & (webhook_deliveries.c.object == row.object)
    newer &= (webhook_deliveries.c.webhook_id == row.webhook_id) & webhook_deliveries.c.payload.is_(None)
    if waits and connection.execute(select(webhook_deliveries.c.id).where(newer)).first() is None:
        later = update(webhook_deliveries).where(webhook_deliveries.c.id == row.id)
        connection.execute(later.values(next_at=now() + PAUSES[0], attempts=row.attempts - 1))
        return None
    if study is None or going or waits or known is not None:
        connection.execute(delete(webhook_deliveries).where(webhook_deliveries.c.id == row.id))
        return None
    counts: dict[str, int] = {}
    for one in states:
        counts[one.state] = counts.get(one.state, 0) + 1
    path = f"{STUDIES}/{row.object}"
    data = {
        "study": row.object,
        "name": study.name,
        "jobs": counts,
        "links": {"self": path, "results": f"{path}/results"},
    }
    body = message("study.ended", data)
    connection.execute(
        update(webhook_deliveries).where(webhook_deliveries.c.id == row.id).values(payload=body, once=once)
    )
    return body

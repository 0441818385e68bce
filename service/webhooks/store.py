"""Webhooks of tenants, and the queue of what is posted to them. Every method is one short transaction.

A delivery is claimed by moving its next attempt into the future: a process that dies while it posts leaves a
delivery that is due again. Nothing is posted inside a transaction.
"""

from __future__ import annotations

import base64
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.states import TERMINAL
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.database import Database
from assay.service.store.ids import decode_cursor, encode_cursor, is_id, new_id
from assay.service.store.tables import jobs, studies, study_jobs
from assay.service.store.tenant_tables import PENDING, webhook_deliveries, webhooks
from assay.service.webhooks.outbox import STUDIES, add_delivery, message
from assay.service.webhooks.wire import SECRET_PREFIX, WebhookRequest

SECRET_BYTES = 32
ROTATION_SECONDS = 86_400.0  # The old secret signs too for so long after a rotation.
# Pauses before each further attempt, about a day in all. Each is varied by a fifth.
PAUSES = (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 29_000)
JITTER = 0.2
# A webhook that has failed for so long without a success is disabled when a delivery is given up.
FAILING_SECONDS = 64_800.0
CLAIM_SECONDS = 60.0  # After it, a claimed delivery is due again; an attempt takes a fraction of it.
# Deliveries of a webhook at a time, so that a slow webhook does not hold up the others.
CLAIMS_EACH = 2
KEPT_SECONDS = 7 * 86_400.0
GONE = 410


@dataclass(frozen=True)
class DueDelivery:
    """A claimed delivery. `attempt` guards its outcome: a later claim has another."""

    id: str
    webhook_id: str
    url: str
    secrets: tuple[str, ...]  # that sign it, the present one first
    body: Mapping[str, Any]  # of the message
    attempt: int


class Webhooks:
    """The webhooks, their deliveries, and the queue."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, request: WebhookRequest, *, tenant: str | None, most: int, by: Actor | None = None
    ) -> tuple[Row[Any], str]:
        """Registers a webhook; returns it and its secret. Raises InvalidState: the tenant has too many."""
        secret = _new_secret()
        values = {
            **request.model_dump(),
            "id": new_id(time.time()),
            "tenant": tenant or "",
            "secret": secret,
            "created_at": now(),
        }
        with self._database.writing() as connection:
            mine = webhooks.c.tenant == (tenant or "")
            count = connection.execute(select(func.count()).select_from(webhooks).where(mine)).scalar_one()
            if count >= most:
                raise InvalidState(
                    f"there are {count} webhooks, at most {most} may be registered: remove some"
                )
            connection.execute(insert(webhooks).values(**values))
            record(connection, by, "webhook.create", values["id"], detail={"url": request.url})
            return _webhook(connection, values["id"], tenant), secret

    def list(self, *, tenant: str | None) -> Sequence[Row[Any]]:
        """The tenant's webhooks, oldest first."""
        mine = webhooks.c.tenant == (tenant or "")
        with self._database.reading() as connection:
            return connection.execute(_with_pending().where(mine).order_by(webhooks.c.id)).all()

    def get(self, webhook_id: str, *, tenant: str | None) -> Row[Any]:
        """One of the tenant's webhooks."""
        with self._database.reading() as connection:
            return _webhook(connection, webhook_id, tenant)

    def delete(self, webhook_id: str, *, tenant: str | None, by: Actor | None = None) -> None:
        """Removes a webhook with its deliveries."""
        with self._database.writing() as connection:
            row = _webhook(connection, webhook_id, tenant)
            connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))
            record(connection, by, "webhook.delete", webhook_id, detail={"url": row.url})

    def rotate(self, webhook_id: str, *, tenant: str | None, by: Actor | None = None) -> tuple[Row[Any], str]:
        """Makes a new secret; the old one signs beside it for a day."""
        secret = _new_secret()
        values = {
            "secret": secret,
            "old_secret": webhooks.c.secret,
            "old_secret_until": now() + ROTATION_SECONDS,
        }
        with self._database.writing() as connection:
            _webhook(connection, webhook_id, tenant)
            connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**values))
            record(connection, by, "webhook.rotate", webhook_id)
            return _webhook(connection, webhook_id, tenant), secret

    def enable(self, webhook_id: str, *, tenant: str | None, by: Actor | None = None) -> Row[Any]:
        """Puts a disabled webhook into service again; what it missed can be redelivered."""
        with self._database.writing() as connection:
            row = _webhook(connection, webhook_id, tenant)
            if row.disabled_reason is not None:
                fresh = {"disabled_reason": None, "failing_since": None}
                connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**fresh))
                record(connection, by, "webhook.enable", webhook_id)
            return _webhook(connection, webhook_id, tenant)

    def test(self, webhook_id: str, *, tenant: str | None, by: Actor | None = None) -> Row[Any]:
        """Queues a message without news; returns the delivery."""
        with self._database.writing() as connection:
            _enabled(_webhook(connection, webhook_id, tenant))
            body = message("webhook.test", {"webhook": webhook_id})
            made = add_delivery(connection, webhook_id, "webhook.test", webhook_id, body)
            record(connection, by, "webhook.test", webhook_id)
            return _delivery(connection, webhook_id, made)

    def deliveries(
        self, webhook_id: str, *, tenant: str | None, limit: int, cursor: str | None
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
            _webhook(connection, webhook_id, tenant)
            rows = connection.execute(wanted).all()
        return rows[:limit], encode_cursor(rows[limit - 1].id) if len(rows) > limit else None

    def redeliver(
        self, webhook_id: str, delivery_id: str, *, tenant: str | None, by: Actor | None = None
    ) -> Row[Any]:
        """Queues a settled delivery again, under its id."""
        with self._database.writing() as connection:
            _enabled(_webhook(connection, webhook_id, tenant))
            row = _delivery(connection, webhook_id, delivery_id)
            if row.state == "pending":
                raise InvalidState(f"delivery {delivery_id} is pending: it is tried again by itself")
            again = {"state": "pending", "attempts": 0, "next_at": now(), "error": None, "status": None}
            connection.execute(_one(delivery_id).values(**again))
            record(connection, by, "webhook.redeliver", webhook_id, detail={"delivery": delivery_id})
            return _delivery(connection, webhook_id, delivery_id)

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
        """Notes the outcome of an attempt: delivered for a status of 2xx, else tried again or given up.

        "delivered", "failed" for another attempt, "given_up"; None where another claim has come since.
        """
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
        """Gives up the oldest pending deliveries of webhooks with more than `most`; returns their numbers.

        They stay in the log, from where they can be redelivered.
        """
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


def _webhook(connection: Connection, webhook_id: str, tenant: str | None) -> Row[Any]:
    mine = (webhooks.c.id == webhook_id) & (webhooks.c.tenant == (tenant or ""))
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


def _one(delivery_id: str) -> Any:
    return update(webhook_deliveries).where(webhook_deliveries.c.id == delivery_id)


def _enabled(row: Row[Any]) -> None:
    if row.disabled_reason is not None:
        raise InvalidState(f"the webhook is disabled ({row.disabled_reason}): enable it first")


def _disable(connection: Connection, webhook_id: str, *, gone: bool) -> None:
    this = (webhooks.c.id == webhook_id) & webhooks.c.disabled_reason.is_(None)
    reason = "its address answered 410 (gone)" if gone else "its deliveries failed for a day"
    if not gone:
        this &= webhooks.c.failing_since < now() - FAILING_SECONDS
    if connection.execute(update(webhooks).where(this).values(disabled_reason=reason)).rowcount:
        waiting = (webhook_deliveries.c.webhook_id == webhook_id) & PENDING
        values = {"state": "failed", "next_at": None, "error": "the webhook was disabled"}
        connection.execute(update(webhook_deliveries).where(waiting).values(**values))


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
    if study is None or going or known is not None:
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
    connection.execute(_one(row.id).values(payload=body, once=once))
    return body

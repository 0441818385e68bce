"""Limits checked before something is stored (claims: `transactions.standings`); rejected files count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from assay.service.contract.errors import InvalidState, TooLarge, TooManyRequests
from assay.service.contract.limits import Limits
from assay.service.contract.states import JobState
from assay.service.store.tables import artifacts, checkpoints, jobs
from assay.service.store.tenant_tables import reservations

QUEUE_RETRY_SECONDS = 30
RETRY_SECONDS = 10
NEAR = 64  # So near to its limit, a queue is counted one submission at a time
REMEDY = "delete some first (`assay checkpoints delete`)"


@dataclass(frozen=True)
class Quota:
    """A tenant's quota."""

    count: int  # of checkpoints
    size: int  # of all together, in bytes


def check_room(connection: Connection, tenant: str | None, quota: Quota, size: int) -> int:
    """Bytes left before a checkpoint of `size`. InvalidState: too many checkpoints; TooLarge: no room."""
    count, total = held_checkpoints(connection, tenant)
    if count >= quota.count:
        raise InvalidState(f"there are {count} checkpoints, at most {quota.count} may be kept: {REMEDY}")
    left = quota.size - total
    if size > left:
        raise TooLarge(
            f"the file has {size} bytes; the {count} checkpoints that are kept have {total} of"
            f" {quota.size}, so {max(left, 0)} are left: {REMEDY}"
        )
    return left


def size_left(connection: Connection, tenant: str | None, quota: Quota) -> int:
    """Bytes left to a tenant; negative after the quota was lowered."""
    return quota.size - held_checkpoints(connection, tenant)[1]


def held_checkpoints(connection: Connection, tenant: str | None) -> tuple[int, int]:
    """Number and bytes of the checkpoints that a tenant keeps."""
    mine = checkpoints.c.tenant == (tenant or "")
    held = select(func.count(), func.coalesce(func.sum(checkpoints.c.size), 0)).where(mine)
    count, total = connection.execute(held).one()
    return int(count), int(total)


def one_at_a_time(connection: Connection, tenant: str | None) -> None:
    """Serialises additions of a tenant's checkpoints, so that two never use the same room."""
    serialize(connection, f"checkpoints of {tenant or ''}")


def serialize(connection: Connection, what: str) -> None:
    """Lets one transaction at a time go on with something; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": what})


def check_queue(connection: Connection, tenant: str | None, limits: Limits) -> None:
    """Raises TooManyRequests for a full queue of a tenant (None: no keys), in the adding transaction."""
    most = limits.queued_jobs
    if not most:
        return
    count = queued_jobs(connection, tenant, most)
    if count + NEAR >= most:
        serialize(connection, f"queued jobs of {tenant or ''}")
        count = queued_jobs(connection, tenant, most)
    if count >= most:
        text = f"{count} jobs are queued, at most {most} may be: wait until some have started"
        raise over_limit("queued_jobs", text, most, count, QUEUE_RETRY_SECONDS, "requests")


def check_submission(connection: Connection, tenant: str | None, limits: Limits) -> None:
    """Raises TooManyRequests when a tenant may queue no more jobs or stores more than it may."""
    check_queue(connection, tenant, limits)
    if limits.stored_bytes:
        check_stored(connection, tenant, limits, 0)


def queued_jobs(connection: Connection, tenant: str | None, most: int | None = None) -> int:
    """A tenant's jobs that have not started, from an index; `most` ends the count early."""
    mine = jobs.c.tenant.is_(None) if tenant is None else jobs.c.tenant == tenant
    total = 0
    for state in (JobState.QUEUED, JobState.WAITING):
        found = select(jobs.c.id).where(mine, jobs.c.state == str(state))
        if most is not None:
            found = found.limit(most)
        counting = select(func.count()).select_from(found.subquery())
        total += int(connection.execute(counting).scalar_one())
    return total


def stored_bytes(connection: Connection, tenant: str | None) -> int:
    """Bytes of a tenant's checkpoints, and of its jobs' unexpired artifacts."""
    mine = jobs.c.tenant.is_(None) if tenant is None else jobs.c.tenant == tenant
    kept = (
        select(func.coalesce(func.sum(artifacts.c.size), 0))
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .where(mine, artifacts.c.expired_at.is_(None))
    )
    return int(connection.execute(kept).scalar_one()) + held_checkpoints(connection, tenant)[1]


def over_limit(name: str, text: str, most: int, used: int, retry_seconds: int, unit: str) -> TooManyRequests:
    """The error of a reached limit, with the headers of draft-ietf-httpapi-ratelimit-headers."""
    policy = name.replace("_", "-")
    left = max(0, most - used)
    headers = {
        "Retry-After": str(retry_seconds),
        "RateLimit-Policy": f'"{policy}";q={most};qu="{unit}"',
        "RateLimit": f'"{policy}";r={left};t={retry_seconds}',
    }
    return TooManyRequests(f"{text} (limit {name}; see `assay quota`)", headers=headers)


def check_stored(connection: Connection, tenant: str | None, limits: Limits, more: int) -> None:
    """Raises TooManyRequests when a tenant's stored bytes and `more` are over its limit."""
    stored = stored_bytes(connection, tenant)
    if limits.stored_bytes and (stored + more > limits.stored_bytes or stored >= limits.stored_bytes):
        text = (
            f"{stored} bytes of checkpoints and artifacts are stored, at most {limits.stored_bytes} may be:"
            " delete jobs or checkpoints first"
        )
        raise over_limit("stored_bytes", text, limits.stored_bytes, stored, 600, "content-bytes")


def in_flight(connection: Connection, tenant: str | None, apart: Sequence[str] = ()) -> tuple[int, int]:
    """Number and bytes of a tenant's uploads in flight, apart from some."""
    others = (reservations.c.tenant == (tenant or "")) & reservations.c.id.not_in(list(apart))
    sums = select(func.count(), func.coalesce(func.sum(reservations.c.size), 0)).where(others)
    count, size = connection.execute(sums).one()
    return int(count), int(size)


def check_in_flight(
    connection: Connection, tenant: str | None, quota: Quota, size: int, apart: Sequence[str]
) -> None:
    """Raises TooManyRequests when a checkpoint fits, but not beside the uploads in flight."""
    count, reserved = in_flight(connection, tenant, apart)
    if not count:
        return
    try:
        check_room(connection, tenant, Quota(quota.count - count, quota.size - reserved), size)
    except (InvalidState, TooLarge) as error:
        text = f"{count} uploads in flight have reserved the rest of the quota: wait for one to end"
        used = quota.size - size_left(connection, tenant, quota) + reserved
        raise over_limit(
            "checkpoint_bytes", text, quota.size, used, RETRY_SECONDS, "content-bytes"
        ) from error

"""Quota of a tenant's uploaded weights: number of files and total bytes. Rejected ones count too."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from assay.service.contract.errors import InvalidState, TooLarge
from assay.service.store.tables import checkpoints

REMEDY = "delete some first (`assay checkpoints delete`)"


@dataclass(frozen=True)
class Quota:
    """A tenant's quota.

    Attributes:
        count: of checkpoints.
        size: of all together, in bytes.
    """

    count: int
    size: int


def check_room(connection: Connection, tenant: str | None, quota: Quota, size: int) -> int:
    """Checks that one more checkpoint fits; returns the bytes left before it.

    Args:
        connection: in the transaction that will add it, or for a first look.
        tenant: whose checkpoints are counted; None where the service asks for no keys.
        quota: of the tenant.
        size: of the new file in bytes, as far as it is known.

    Raises:
        InvalidState: the number of checkpoints is at its limit.
        TooLarge: the bytes would be over the limit.
    """
    count, total = _held(connection, tenant)
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
    return quota.size - _held(connection, tenant)[1]


def _held(connection: Connection, tenant: str | None) -> tuple[int, int]:
    mine = checkpoints.c.tenant == (tenant or "")
    held = select(func.count(), func.coalesce(func.sum(checkpoints.c.size), 0)).where(mine)
    count, total = connection.execute(held).one()
    return int(count), int(total)


def one_at_a_time(connection: Connection, tenant: str | None) -> None:
    """Serialises transactions that add a tenant's checkpoints, so that two never use the same free room.

    SQLite has one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        key = f"checkpoints of {tenant or ''}"
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": key})

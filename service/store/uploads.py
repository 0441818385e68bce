"""Uploads in flight: the room of each is reserved before its first byte, so that two never use the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from assay.service.contract.errors import InvalidState
from assay.service.contract.limits import Limits
from assay.service.store.clock import now
from assay.service.store.columns import own_insert
from assay.service.store.database import Database, StorePart
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.quotas import (
    RETRY_SECONDS,
    Quota,
    check_in_flight,
    check_room,
    check_stored,
    in_flight,
    one_at_a_time,
    over_limit,
    serialize,
    size_left,
)
from assay.service.store.tables import checkpoints, promised_files
from assay.service.store.tenant_tables import reservations
from assay.service.store.transactions.standings import tenant_limits


class Uploads(StorePart):
    """The reservations."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._owner = lease_owner.worker_id(0)

    def reserve(
        self,
        upload: str,
        name: str,
        size: int,
        *,
        tenant: str | None,
        quota: Quota,
        limits: Limits,
        idle_seconds: float,
        begun: bool = False,
    ) -> int:
        """Reserves room for a file, or more room while its upload goes on.

        `size` bytes are kept free for it; without a byte for `idle_seconds` the reservation is lost; `begun`:
        an upload with a reservation asks for more, or gives a sign of life. Returns the maximum bytes of the
        file, were there no other upload. Raises InvalidState, TooLarge: what is stored leaves no room, or the
        reservation is lost; TooManyRequests: other uploads leave none, or a limit of the tenant.
        """
        owner = tenant or ""
        with self._database.writing() as connection:
            one_at_a_time(connection, tenant)
            stale = _stale(connection, reservations.c.tenant == owner, idle_seconds)
            held = (checkpoints.c.tenant == owner) & (checkpoints.c.name == name)
            known = connection.execute(select(checkpoints.c.size).where(held)).scalar()
            if known is None:
                room = check_room(connection, tenant, quota, size)
                check_in_flight(connection, tenant, quota, size, [upload, *stale])
            else:
                # The same file needs no room again; for another file `add` reports that the name is taken.
                room = max(known, size_left(connection, tenant, quota))
            more = 0 if known is not None else size
            self._check_limits(connection, tenant, limits, more, [upload, *stale])
            seen: dict[str, Any] = {"size": more, "seen_at": now()}
            if begun:
                own = reservations.c.id == upload
                if connection.execute(update(reservations).where(own).values(seen)).rowcount == 0:
                    raise InvalidState(
                        f"the upload had no byte for {idle_seconds:g} s and was given up: start again"
                    )
            else:
                values = {"id": upload, "tenant": owner, "owner": self._owner, "created_at": now(), **seen}
                connection.execute(insert(reservations).values(**values))
            return int(room)

    def release(self, upload: str, *, tenant: str | None) -> None:
        """Gives back an upload's room; unknown uploads are ignored."""
        own = (reservations.c.id == upload) & (reservations.c.tenant == (tenant or ""))
        with self._database.writing() as connection:
            connection.execute(delete(reservations).where(own))

    def sweep(self, idle_seconds: float) -> list[str]:
        """Drops reservations of dead processes here, and of uploads without a byte for so long."""
        with self._database.reading() as connection:
            if connection.execute(select(reservations.c.id).limit(1)).first() is None:
                return []
        with self._database.writing() as connection:
            stale = _stale(connection, reservations.c.id.is_not(None), idle_seconds)
            connection.execute(delete(reservations).where(reservations.c.id.in_(stale)))
            return stale

    def _check_limits(
        self, connection: Connection, tenant: str | None, defaults: Limits, size: int, apart: Sequence[str]
    ) -> None:
        limits = tenant_limits(connection, tenant, defaults)
        count, reserved = in_flight(connection, tenant, apart)
        if limits.uploads and count >= limits.uploads:
            text = f"{count} uploads are in flight, at most {limits.uploads} may be: wait for one to end"
            raise over_limit("uploads", text, limits.uploads, count, RETRY_SECONDS, "concurrent-requests")
        if limits.stored_bytes:
            check_stored(connection, tenant, limits, size + reserved)


class PromisedFiles(StorePart):
    """Files that presigned puts may still bring to a job: each process counts them before they arrive."""

    def of(self, job: str) -> dict[str, int]:
        """The bytes of each file that may still come, by name."""
        with self._database.reading() as connection:
            return _promised(connection, job)

    def add(self, job: str, name: str, size: int, seconds: float, there: Mapping[str, int], most: int) -> int:
        """Promises a file for so many seconds; the bytes of the job's files with it, and `there` are some.

        More than `most` (0: any) are not promised. The largest of several puts to a name counts.
        """
        with self._database.writing() as connection:
            serialize(connection, f"promised files of {job}")
            over = (promised_files.c.job_id == job) & (promised_files.c.until < now())
            connection.execute(delete(promised_files).where(over))
            promised = _promised(connection, job)
            size = max(size, promised.get(name, 0))
            total = sum({**promised, **there, name: size}.values())
            if most and total > most:
                return total
            row = {"job_id": job, "name": name, "size": size, "until": now() + seconds}
            insert = own_insert(connection, promised_files).values(row)
            changed = {"size": insert.excluded.size, "until": insert.excluded.until}
            connection.execute(insert.on_conflict_do_update(index_elements=["job_id", "name"], set_=changed))
            return total

    def forget(self, job: str, names: list[str]) -> None:
        """Ends promises that were kept."""
        mine = (promised_files.c.job_id == job) & promised_files.c.name.in_(names)
        with self._database.reading() as connection:
            if connection.execute(select(func.count()).where(mine)).scalar_one() == 0:
                return
        with self._database.writing() as connection:
            connection.execute(delete(promised_files).where(mine))


def _promised(connection: Connection, job: str) -> dict[str, int]:
    mine = (promised_files.c.job_id == job) & (promised_files.c.until >= now())
    statement = select(promised_files.c.name, promised_files.c.size).where(mine)
    return {row.name: row.size for row in connection.execute(statement)}


def _stale(connection: Connection, condition: Any, idle_seconds: float) -> list[str]:
    found = connection.execute(select(reservations, now().label("at")).where(condition)).all()
    return [row.id for row in found if _is_stale(row, idle_seconds)]


def _is_stale(row: Row[Any], idle_seconds: float) -> bool:
    return bool(row.at - row.seen_at > idle_seconds) or lease_owner.is_dead(row.owner)

"""Audit: who did what, in rows that are only added; each carries the hash of the row before.

`record` writes a row as the last statement of the action's transaction. A lock, held for the insert and the
commit, lets one transaction at a time append: ids have no gaps and the order of the commits.

The triggers of migration 0011 refuse every update, and every deletion except by `Audit.expire`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, text

from assay.service.contract.audit import FIRST, Action, AuditEntry, Outcome, chained
from assay.service.contract.problems import readable
from assay.service.contract.times import iso
from assay.service.store.clock import now
from assay.service.store.database import StorePart
from assay.service.store.ids import decode_cursor, encode_cursor
from assay.service.store.tenant_tables import audit

APPEND_LOCK = 0x6175646974  # "audit" in ASCII; any constant that no other lock uses
DAY = 86400.0
MAX_OBJECT = 200
MAX_EXPIRED = 10_000  # Rows that one sweep of retention removes
CHUNK = 500
ID = r"[1-9][0-9]{0,17}"


@dataclass(frozen=True)
class Actor:
    """Who acts; all None for the machine's operator."""

    tenant: str | None = None  # of the key
    key: str | None = None  # the key's id, never its text; None where the service asks for no keys
    session: str | None = None  # mark of the browser session (`session_mark`); None for a key's own calls
    address: str | None = None  # of the request; behind a proxy see ASSAY_TRUSTED_PROXIES
    request: str | None = None  # the request's id in the log


@dataclass(frozen=True)
class AuditFilter:
    """Which entries are wanted; None does not filter. Times are unix seconds, `after` is included."""

    after: float | None = None
    before: float | None = None
    tenant: str | None = None
    action: Action | None = None
    key: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filters as SQL."""
        equal = ((audit.c.tenant, self.tenant), (audit.c.action, self.action), (audit.c.key_id, self.key))
        found: list[ColumnElement[bool]] = [column == value for column, value in equal if value is not None]
        if self.after is not None:
            found.append(audit.c.at >= self.after)
        if self.before is not None:
            found.append(audit.c.at < self.before)
        return found


def session_mark(token: str) -> str:
    """A mark that finds the rows of a browser session; the token does not follow from the mark."""
    return hashlib.sha256(f"mark of {token}".encode()).hexdigest()[:12]


def record(
    connection: Connection,
    by: Actor | None,
    action: Action,
    object: str | None = None,  # noqa: A002 (the column's name)
    *,
    outcome: Outcome = "ok",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Appends a row in the action's transaction, as its last write; `by` None writes nothing.

    `object`: id or name, cut after 200 characters; `detail`: a few facts as JSON, never a secret.
    """
    if by is not None:
        _append(connection, by, action, object, outcome, detail or {})


class Audit(StorePart):
    """The audit rows."""

    def add(
        self,
        by: Actor,
        action: Action,
        object: str | None = None,  # noqa: A002 (the column's name)
        *,
        outcome: Outcome,
        detail: Mapping[str, Any],
    ) -> None:
        """Appends a row on its own, for attempts that change nothing else."""
        with self._database.writing() as connection:
            record(connection, by, action, object, outcome=outcome, detail=detail)

    def page(
        self, wanted: AuditFilter, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[AuditEntry], str | None]:
        """Lists entries, newest first, and the next page's cursor. Raises InvalidSpec: a foreign cursor."""
        statement = select(audit).where(*wanted.conditions()).order_by(audit.c.id.desc())
        if cursor is not None:
            statement = statement.where(audit.c.id < int(decode_cursor(cursor, ID)))
        with self._database.reading() as connection:
            rows = [entry(row) for row in connection.execute(statement.limit(limit + 1))]
        return rows[:limit], encode_cursor(str(rows[limit - 1].id)) if len(rows) > limit else None

    def newest(self) -> int:
        """The id of the newest entry; 0 without any."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(audit.c.id))).scalar() or 0

    def chunks(self, wanted: AuditFilter, *, until: int) -> Iterator[Sequence[AuditEntry]]:
        """All entries up to an id, oldest first, in lists of at most 500."""
        last = 0
        while True:
            statement = select(audit).where(*wanted.conditions(), audit.c.id > last, audit.c.id <= until)
            with self._database.reading() as connection:
                found = connection.execute(statement.order_by(audit.c.id).limit(CHUNK)).all()
            if not found:
                return
            yield [entry(row) for row in found]
            last = found[-1].id

    def expire(self, keep_days: int) -> int:
        """Removes at most 10,000 rows older than so many days, once the oldest is a day older than that.

        A row `audit.expire` names them, so that the chain still holds. Raises ValueError: for less than a
        day, which the triggers refuse.
        """
        if keep_days < 1:
            raise ValueError(f"keep_days is {keep_days}, allowed: at least 1")
        with self._database.reading() as connection:
            if _last_expired(connection, keep_days) is None:
                return 0
        with self._database.writing() as connection:
            _lock(connection)
            last = _last_expired(connection, keep_days)  # another process may have been faster
            if last is None:
                return 0
            until, sha256 = last
            old = audit.c.id <= until
            count = connection.execute(select(func.count()).where(old)).scalar_one()
            told = {"until": until, "sha256": sha256, "count": count, "keep_days": keep_days}
            _append(connection, Actor(), "audit.expire", str(until), "ok", told)
            connection.execute(delete(audit).where(old))
            return int(count)


def owner_of(tenant: str | None, by: Actor | None) -> dict[str, str | None]:
    """The detail that names the owner of what changes, where an administrator of another tenant acts."""
    return {"tenant": tenant} if by is not None and tenant != by.tenant else {}


def entry(row: Row[Any]) -> AuditEntry:
    """A row of `audit` as users see it."""
    values = {name: value for name, value in row._mapping.items() if name != "key_id"}
    return AuditEntry.model_construct(**values | {"at": iso(row.at), "key": row.key_id})


def _append(
    connection: Connection,
    by: Actor,
    action: Action,
    object: str | None,  # noqa: A002 (the column's name)
    outcome: Outcome,
    detail: Mapping[str, Any],
) -> None:
    _lock(connection)
    last = connection.execute(select(audit.c.id, audit.c.sha256).order_by(audit.c.id.desc()).limit(1))
    number, previous = last.one_or_none() or (0, FIRST)
    at = round(connection.execute(select(now())).scalar_one(), 3)
    fields = {
        "id": number + 1,
        "at": iso(at),
        "tenant": by.tenant,
        "key": by.key,
        "session": by.session,
        "address": by.address,
        "request": by.request,
        "action": action,
        "object": None if object is None else readable(object, MAX_OBJECT),
        "outcome": outcome,
        "detail": dict(detail),
        "previous": previous,
    }
    row = fields | {"at": at, "key_id": by.key, "sha256": chained(fields)}
    del row["key"]
    connection.execute(insert(audit).values(**row))


def _lock(connection: Connection) -> None:
    """Lets one transaction at a time append; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPEND_LOCK})


def _last_expired(connection: Connection, keep_days: int) -> tuple[int, str] | None:
    """Id and hash of the last row to remove; None while the oldest has not been due for a day."""
    first = connection.execute(select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(1)).one_or_none()
    moment = connection.execute(select(now())).scalar_one()
    if first is None or first.at > moment - (keep_days + 1) * DAY:
        return None
    span = audit.c.id < first.id + MAX_EXPIRED  # Before the first young row: a clock set back leaves no gap.
    young = select(func.min(audit.c.id)).where(span, audit.c.at > moment - keep_days * DAY).scalar_subquery()
    old = audit.c.id < func.coalesce(young, first.id + MAX_EXPIRED)
    newest = select(audit.c.id, audit.c.sha256).where(span, old).order_by(audit.c.id.desc()).limit(1)
    row = connection.execute(newest).one()
    return row.id, row.sha256

"""API keys: made, listed, revoked, recognised. Only a hash of a key is stored.

SHA-256 without salt or stretching is enough here: the secret has 160 random bits, so that neither a
dictionary nor a table of hashes helps a reader of the database.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from assay.service.contract.errors import NotFound
from assay.service.contract.keys import SCOPES, Scope
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.database import Database, StorePart
from assay.service.store.ids import ALPHABET
from assay.service.store.rows import KeyRow
from assay.service.store.tenant_tables import api_keys, sessions

logger = logging.getLogger(__name__)
ID_LETTERS = 8
SECRET_LETTERS = 32
SHAPE = re.compile(f"assay_([{ALPHABET}]{{{ID_LETTERS}}})_[{ALPHABET}]{{{SECRET_LETTERS}}}")
KEY_ID = re.compile(f"[{ALPHABET}]{{{ID_LETTERS}}}")
USED_SECONDS = 60
MAX_REMEMBERED = 1000


def letters(count: int) -> str:
    """Random letters of 5 bits each, from an alphabet without look-alikes."""
    return "".join(secrets.choice(ALPHABET) for _ in range(count))


def sha256(text: str) -> str:
    """The hash under which a key or a session's token is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def works() -> ColumnElement[bool]:
    """Condition: a key is neither revoked nor expired, on the database's clock."""
    unexpired = api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > now())
    return api_keys.c.revoked_at.is_(None) & unexpired


class Keys(StorePart):
    """The keys."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._remembered: dict[str, tuple[float, KeyRow]] = {}

    def create(
        self,
        name: str,
        scopes: Collection[Scope],
        *,
        tenant: str | None = None,
        expires_seconds: float | None = None,
        by: Actor | None = None,
    ) -> tuple[KeyRow, str]:
        """Makes a key; no `tenant`: for a new tenant, no `expires_seconds`: of unlimited lifetime."""
        key_id = letters(ID_LETTERS)
        text = f"assay_{key_id}_{letters(SECRET_LETTERS)}"
        values = {
            "id": key_id,
            "name": name,
            "prefix": f"assay_{key_id}",
            "secret_sha256": sha256(text),
            "scopes": [scope for scope in SCOPES if scope in scopes],
            "tenant": tenant or key_id,
            "created_at": now(),
            "expires_at": None if expires_seconds is None else now() + expires_seconds,
        }
        with self._database.writing() as connection:
            connection.execute(insert(api_keys).values(**values))
            row = _read(connection, key_id)
            told = {"name": row.name, "scopes": row.scopes, "tenant": row.tenant}
            record(connection, by, "key.create", key_id, detail=told)
            return row, text

    def list(self) -> Sequence[KeyRow]:
        """All keys, the revoked and expired ones too, oldest first."""
        statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        with self._database.reading() as connection:
            return [key_row(row) for row in connection.execute(statement)]

    def revoke(self, key_id: str, *, by: Actor | None = None) -> KeyRow:
        """Ends a key and its sessions for good; idempotent. Raises NotFound."""
        if KEY_ID.fullmatch(key_id) is None:
            raise _unknown(key_id)
        valid = (api_keys.c.id == key_id) & api_keys.c.revoked_at.is_(None)
        with self._database.writing() as connection:
            ended = connection.execute(update(api_keys).where(valid).values(revoked_at=now())).rowcount
            connection.execute(delete(sessions).where(sessions.c.key_id == key_id))
            row = _read(connection, key_id)
            if ended:
                record(connection, by, "key.revoke", key_id, detail={"name": row.name, "tenant": row.tenant})
        self._remembered.clear()
        return row

    def remembered(self, text: str, seconds: float) -> KeyRow | None:
        """The key authenticated here within so many seconds, even if revoked since by another process."""
        then, row = self._remembered.get(sha256(text), (float("-inf"), None))
        return row if time.monotonic() - then < seconds else None

    def authenticate(self, text: str) -> KeyRow | None:
        """The key with this text; None: unknown, revoked or expired."""
        shape = SHAPE.fullmatch(text)
        if shape is None:
            return None
        with self._database.reading() as connection:
            row = find_working(connection, shape[1])
        # In constant time, also without a match: timing must not leak where two hashes differ.
        known = row.secret_sha256 if row is not None else sha256("")
        if not hmac.compare_digest(known, sha256(text)) or row is None:
            return None
        self.used(row)
        key = key_row(row)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[known] = (time.monotonic(), key)
        return key

    def works(self, key_id: str) -> bool:
        """Whether a key is still neither revoked nor expired."""
        with self._database.reading() as connection:
            return find_working(connection, key_id) is not None

    def used(self, row: Any) -> None:
        """Records the use of a key, at most once a minute; `row` says whether it is due."""
        if not row.due:
            return
        again = (api_keys.c.id == row.id) & due()
        try:
            with self._database.writing() as connection:
                connection.execute(update(api_keys).where(again).values(last_used_at=now()))
        except DBAPIError as error:
            # Informational: no reason to refuse the call.
            logger.warning("could not note that key %s was used: %s", row.id, error.orig)


def find_working(connection: Connection, key_id: str) -> Row[Any] | None:
    """A valid key, with `due`: whether its use should be recorded again."""
    statement = select(api_keys, due().label("due")).where(api_keys.c.id == key_id, works())
    return connection.execute(statement).one_or_none()


def key_row(row: Row[Any]) -> KeyRow:
    """A row of `api_keys`, without the hash."""
    return KeyRow(**{name: row._mapping[name] for name in KeyRow.__dataclass_fields__})


def due() -> ColumnElement[bool]:
    """Condition: a key's use should be recorded again."""
    return api_keys.c.last_used_at.is_(None) | (api_keys.c.last_used_at < now() - USED_SECONDS)


def _read(connection: Connection, key_id: str) -> KeyRow:
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
    if row is None:
        raise _unknown(key_id)
    return key_row(row)


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"there is no key {key_id[:40]!r}")

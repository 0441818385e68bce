"""Browser sessions: a cookie's token stands for a key until the session or the key ends."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import replace

from sqlalchemy import delete, insert, select

from assay.service.store.audit import Actor, record, session_mark
from assay.service.store.clock import now
from assay.service.store.database import Database, StorePart
from assay.service.store.keys import Keys, due, find_working, key_row, sha256, works
from assay.service.store.rows import BrowserSessionRow
from assay.service.store.tenant_tables import api_keys, sessions

SESSION_SECONDS = 12 * 3600
TOKEN_BYTES = 32
MAX_TOKEN_LENGTH = 100


class BrowserSessions(StorePart):
    """The sessions."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._keys = Keys(database)

    def open(self, text: str, *, by: Actor | None = None) -> tuple[BrowserSessionRow, str] | None:
        """Begins a session with a key's text, forgets expired sessions; `by` None is not audited.

        Returns the session and its token (only the token's hash is stored); None for an invalid key.
        """
        key = self._keys.authenticate(text)
        if key is None:
            return None
        token, csrf = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_urlsafe(TOKEN_BYTES)
        with self._database.writing() as connection:
            if find_working(connection, key.id) is None:
                return None
            connection.execute(delete(sessions).where(sessions.c.expires_at <= now()))
            row = {
                "token_sha256": sha256(token),
                "key_id": key.id,
                "csrf": csrf,
                "created_at": now(),
                "expires_at": now() + SESSION_SECONDS,
            }
            made = insert(sessions).values(**row).returning(sessions.c.expires_at)
            expires_at = connection.execute(made).scalar_one()
            if by is not None:
                by = replace(by, tenant=key.tenant, key=key.id, session=session_mark(token))
            record(connection, by, "session.open")
        return BrowserSessionRow(key=key, csrf=csrf, expires_at=expires_at), token

    def find(self, token: str) -> BrowserSessionRow | None:
        """The session with this token, while it and its key are valid."""
        if not token or len(token) > MAX_TOKEN_LENGTH:
            return None
        wanted = sha256(token)
        of_session = (sessions.c.token_sha256, sessions.c.csrf, sessions.c.expires_at.label("ends_at"))
        statement = (
            select(api_keys, due().label("due"), *of_session)
            .join(sessions, sessions.c.key_id == api_keys.c.id)
            .where(sessions.c.token_sha256 == wanted, sessions.c.expires_at > now(), works())
        )
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None or not hmac.compare_digest(row.token_sha256, wanted):
            return None
        self._keys.used(row)
        return BrowserSessionRow(key=key_row(row), csrf=row.csrf, expires_at=row.ends_at)

    def close(self, token: str, *, by: Actor | None = None) -> None:
        """Ends a session; unknown sessions are ignored."""
        with self._database.writing() as connection:
            ended = connection.execute(delete(sessions).where(sessions.c.token_sha256 == sha256(token)))
            if ended.rowcount:
                record(connection, by, "session.close")

"""Sessions of browsers: only hashes of their tokens are stored, and what has ended opens nothing."""

from __future__ import annotations

import re

from sqlalchemy import select

from assay.service.store.store import Store
from assay.service.store.tenant_tables import api_keys, sessions
from tests.support.stored_rows import change, everything


def test_a_session_stands_for_its_key(store: Store) -> None:
    key, text = store.keys.create("n", ["submit"], tenant="team")
    opened = store.browser_sessions.open(text)
    assert opened is not None
    login, token = opened
    found = store.browser_sessions.find(token)
    assert found is not None
    assert (found.key.id, found.key.tenant, found.csrf) == (key.id, "team", login.csrf)
    assert found.expires_at == login.expires_at
    assert token not in everything(store)
    assert re.fullmatch(r"[\w-]{43}", token)
    for wrong in ("", "x", token[:-1], token + "x", "x" * 10**6):
        assert store.browser_sessions.find(wrong) is None
    store.browser_sessions.close(token)
    store.browser_sessions.close(token)
    assert store.browser_sessions.find(token) is None


def test_a_wrong_key_opens_no_session(store: Store) -> None:
    _, text = store.keys.create("n", ["read"], expires_seconds=-1)
    assert store.browser_sessions.open(text) is None
    assert store.browser_sessions.open("assay_") is None


def test_sessions_end_with_their_key_and_by_themselves(store: Store) -> None:
    revoked, first_text = store.keys.create("n", ["read"])
    _, second_text = store.keys.create("n", ["read"])
    opened, other = store.browser_sessions.open(first_text), store.browser_sessions.open(second_text)
    assert opened is not None
    assert other is not None
    store.keys.revoke(revoked.id)
    assert store.browser_sessions.find(opened[1]) is None
    assert store.browser_sessions.find(other[1]) is not None
    change(store, sessions, expires_at=1.0)
    assert store.browser_sessions.find(other[1]) is None
    third = store.browser_sessions.open(second_text)
    assert third is not None
    with store._database.reading() as connection:
        assert len(connection.execute(select(sessions)).all()) == 1, "expired sessions are forgotten"
    change(store, api_keys, expires_at=1.0)
    assert store.browser_sessions.find(third[1]) is None

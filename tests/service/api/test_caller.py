"""The caller of a request: its view of the store, its scopes, and how the audit names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.service.api.caller import CALLER, MAX_ADDRESS, Caller, actor_in, administrator, caller_in
from assay.service.contract.errors import Forbidden
from assay.service.store.audit import session_mark
from assay.service.store.rows import BrowserSessionRow, KeyRow
from assay.service.store.tenants import View
from assay.service.telemetry import REQUEST_ID

KEY = KeyRow(
    id="k1", name="n", prefix="assay_k1", scopes=["read"], tenant="team", created_at=0.0, expires_at=None,
    revoked_at=None, last_used_at=None,
)  # fmt: skip


def with_scopes(*scopes: Any) -> Caller:
    return Caller(replace(KEY, scopes=[*scopes]))


def test_a_view_is_of_the_keys_tenant_and_of_everything_for_administrators() -> None:
    assert with_scopes("read").view == View("team", everything=False)
    assert with_scopes("read", "submit").view == View("team", everything=False)
    assert with_scopes("admin").view == View("team", everything=True)
    assert Caller().view == View(None, everything=True), "where the service asks for no keys"


@pytest.mark.parametrize(
    ("has", "needed", "message"),
    [
        (["read"], "submit", "the key lacks the scope 'submit' or 'admin'; it has read"),
        (["read", "submit"], "admin", "the key lacks the scope 'admin'; it has read, submit"),
    ],
)
def test_a_missing_scope_is_named_with_the_scopes_that_include_it(
    has: Any, needed: Any, message: str
) -> None:
    with pytest.raises(Forbidden) as told:
        with_scopes(*has).needs(needed)
    assert told.value.message == message


def test_wider_scopes_and_services_without_keys_are_enough() -> None:
    for scope in ("read", "submit", "admin"):
        with_scopes("admin").needs(scope)
        Caller().needs(scope)
    with_scopes("submit").needs("read")
    administrator(with_scopes("admin"))
    with pytest.raises(Forbidden):
        administrator(with_scopes("submit"))
    with pytest.raises(Forbidden):
        Caller(replace(KEY, scopes=[])).needs("read")


class Standing:
    """Keys and sessions of a store, of which some still work."""

    def __init__(self, *valid: str) -> None:
        self.valid = valid
        self.keys = self.browser_sessions = self

    def works(self, key_id: str) -> bool:
        return key_id in self.valid

    def find(self, token: str) -> str | None:
        return token if token in self.valid else None


def test_long_answers_end_with_the_key_or_the_session() -> None:
    store: Any = Standing("k1", "token")
    session = BrowserSessionRow(key=KEY, csrf="c", expires_at=1.0)
    assert Caller().still_allowed(store)
    assert Caller(KEY).still_allowed(store)
    assert Caller(KEY, session, "token").still_allowed(store)
    assert not Caller(KEY, session, "ended").still_allowed(store), "though its key works"
    assert not Caller(replace(KEY, id="k2")).still_allowed(store)


def test_the_audit_has_who_acts_without_the_sessions_token() -> None:
    session = BrowserSessionRow(key=KEY, csrf="c", expires_at=1.0)
    found = actor_in({"client": ("10.0.0.1", 5), REQUEST_ID: "r1"}, Caller(KEY, session, "secret token"))
    assert (found.tenant, found.key, found.address, found.request) == ("team", "k1", "10.0.0.1", "r1")
    assert found.session == session_mark("secret token")
    assert "secret" not in repr(found)
    free = actor_in({"client": None}, Caller())
    assert (free.tenant, free.key, free.session, free.address, free.request) == (None,) * 5


def test_an_address_that_a_proxy_made_up_is_short() -> None:
    found = actor_in({"client": ("10.0.0.1, " * 10_000, 5)}, Caller())
    assert found.address is not None
    assert found.address.startswith("10.0.0.1, ")
    assert len(found.address) <= MAX_ADDRESS + len("...")
    longest = "fe80:0000:0000:0000:0000:0000:0000:0001%enp0s31f6"
    assert actor_in({"client": (longest, 5)}, Caller()).address == longest


@pytest.mark.parametrize("scope", [{}, {CALLER: None}, {CALLER: KEY}])
def test_a_request_that_no_guard_has_checked_is_a_defect(scope: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="this request has no caller"):
        caller_in(scope)
    caller = Caller(KEY)
    assert caller_in({CALLER: caller}) is caller

"""Failed logins: thirty in a minute from one address, in fixed memory, and keys that work always pass."""

from __future__ import annotations

import sys
from typing import Any

import httpx
import pytest

from assay.service.api import refusals
from assay.service.api.refusals import COUNTERS, MinuteCounts, Refusals, origin_of
from assay.service.contract.errors import TooManyRequests
from assay.service.settings import Settings
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.live import Live
from assay.service.store.store import Store
from tests.support.servers import PrivateRedis

SESSION = "/api/v1/session"
WRONG = {"key": "assay_" + "0" * 8 + "_" + "1" * 32}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def time() -> list[float]:
    return [1000.0]


@pytest.fixture
def counting(app_store: Store, time: list[float]) -> Refusals:
    return Refusals(lambda: app_store, Live(""), lambda: time[-1])


def outcomes(store: Store) -> list[str]:
    return [entry.outcome for entry in store.audit.page(AuditFilter(), limit=1000)[0]][::-1]


def fail(counting: Refusals, address: str, times: int = 1) -> list[bool]:
    """Whether each failed login was over the limit."""
    found = []
    for _ in range(times):
        try:
            counting.login(Actor(address=address), "session.open", "x")
            found.append(False)
        except TooManyRequests:
            found.append(True)
    return found


def test_the_thirty_first_login_is_429_and_says_when_to_try_again(
    api: httpx.Client, app_store: Store
) -> None:
    answers = [api.post(SESSION, json=WRONG) for _ in range(33)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429] * 3
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert answers[-1].json()["error"]["type"] == "too_many_requests"
    assert outcomes(app_store) == ["refused"] * 30 + ["limited"], "further ones leave no rows"


def test_keys_that_work_pass_and_reset_nothing(api: httpx.Client, app_store: Store) -> None:
    text = app_store.keys.create("n", ["read"])[1]
    good = {"Authorization": f"Bearer {text}"}
    for _ in range(40):
        api.get("/api/v1/jobs", headers={"Authorization": "Bearer x"})
    assert api.get("/api/v1/jobs", headers=good).status_code == 200
    assert api.post(SESSION, json={"key": text}).status_code == 201
    api.cookies.clear()
    assert api.get("/api/v1/jobs", headers={"Authorization": "Bearer x"}).status_code == 429
    assert api.post(SESSION, json=WRONG).status_code == 429
    assert api.get("/api/v1/jobs").status_code == 401, "no key is no attempt"


def test_the_form_says_it_too(api: httpx.Client) -> None:
    answers = [api.post(SESSION, content=b"key=x&next=/docs", headers=FORM) for _ in range(31)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429]
    assert "WWW-Authenticate" in answers[0].headers
    assert "WWW-Authenticate" not in answers[-1].headers
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert "more than 30 failed logins" in answers[-1].text


def test_an_expired_session_is_no_failed_login(api: httpx.Client) -> None:
    for _ in range(40):
        assert api.get("/api/v1/jobs", headers={"Cookie": "assay_session=x"}).status_code == 401


def test_a_minute_later_it_begins_anew(counting: Refusals, time: list[float]) -> None:
    assert fail(counting, "192.0.2.1", 32) == [False] * 30 + [True] * 2
    time.append(1059.9)
    assert fail(counting, "192.0.2.1") == [True]
    time.append(1060.0)
    assert fail(counting, "192.0.2.1", 31) == [False] * 30 + [True]


def test_addresses_are_counted_apart_and_networks_of_ipv6_together(counting: Refusals) -> None:
    fail(counting, "192.0.2.1", 30)
    assert fail(counting, "192.0.2.2") == [False]
    assert fail(counting, "192.0.2.1") == [True]
    for number in range(30):
        fail(counting, f"2001:db8:1:2::{number:x}")
    assert fail(counting, "2001:db8:1:2:ffff::1") == [True]
    assert fail(counting, "2001:db8:1:3::1") == [False]


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", "unknown"),
        (None, "unknown"),
        ("x" * 50, "unknown"),
    ],
)
def test_origins(address: str | None, origin: str) -> None:
    assert origin_of(address) == origin


def test_memory_is_fixed(app_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = MinuteCounts()
    size = sys.getsizeof(counters._ends) + sys.getsizeof(counters._counts)
    for number in range(COUNTERS):
        counters.count(number)
    assert sys.getsizeof(counters._ends) + sys.getsizeof(counters._counts) == size < 2_000_000


def test_many_addresses_fill_no_table(
    counting: Refusals, app_store: Store, monkeypatch: pytest.MonkeyPatch, time: list[float]
) -> None:
    monkeypatch.setattr(refusals, "MAX_ROWS", 5)
    for number in range(20):
        fail(counting, f"192.0.2.{number}")
    assert len(outcomes(app_store)) == 5
    time.append(2000.0)
    fail(counting, "198.51.100.1")
    newest = app_store.audit.page(AuditFilter())[0][0]
    assert newest.detail == {"left_out": 15}


def test_a_key_that_asks_for_too_much_again_and_again(counting: Refusals, app_store: Store) -> None:
    for _ in range(40):
        counting.access(Actor(key="k" * 8, address="192.0.2.1"), "DELETE", "/api/v1/jobs/x", "no")
    assert outcomes(app_store) == ["refused"] * 30 + ["limited"]
    assert fail(counting, "192.0.2.1") == [False], "it knows its key: no failed login"


def test_processes_count_together_through_redis(app_store: Store) -> None:
    with PrivateRedis() as redis:
        lives = [Live(redis.url), Live(redis.url)]
        first, second = (Refusals(lambda: app_store, live) for live in lives)
        assert fail(first, "192.0.2.1", 20) == [False] * 20
        assert fail(second, "192.0.2.1", 11) == [False] * 10 + [True]
        assert fail(first, "192.0.2.1") == [True]
        redis.kill()
        assert fail(first, "192.0.2.1", 9) == [False] * 9, "each its own count, while Redis is away"
        assert fail(first, "192.0.2.1", 2) == [True] * 2
        for live in lives:
            live.close()
    assert outcomes(app_store).count("limited") >= 1


def test_a_database_that_is_away_changes_no_answer(time: list[float]) -> None:
    from sqlalchemy.exc import OperationalError

    def away() -> Any:
        raise OperationalError("", {}, Exception("away"))

    assert fail(Refusals(away, Live(""), lambda: time[-1]), "192.0.2.1", 31) == [False] * 30 + [True]

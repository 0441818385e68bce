"""The routes of keys, and of weights and limits of tenants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.store import Store

JOBS, QUOTA, TENANTS = (f"/api/v1/{name}" for name in ("jobs", "quota", "tenants"))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True, "max_queued_jobs": 3})


@pytest.fixture
def key(app_store: Store) -> Callable[..., dict[str, str]]:
    def key(tenant: str, scope: Any = "submit") -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create(scope, [scope], tenant=tenant)[1]}"}

    return key


@pytest.fixture
def admin(app_store: Store) -> dict[str, str]:
    return {"Authorization": f"Bearer {app_store.keys.create('root', ['admin'])[1]}"}


def test_a_key_is_made_used_listed_and_revoked(api: httpx.Client, admin: dict[str, str]) -> None:
    body = {"name": "ci", "scopes": ["submit"], "tenant": "team", "expires_days": 30}
    made = api.post("/api/v1/keys", json=body, headers=admin)
    assert made.status_code == 201
    key = made.json()
    assert key["key"].startswith(f"{key['prefix']}_")
    assert (key["name"], key["scopes"], key["tenant"]) == ("ci", ["submit"], "team")
    days = datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])
    assert round(days.total_seconds() / 86400, 3) == 30
    own = {"Authorization": f"Bearer {key['key']}"}
    assert api.get("/api/v1/jobs", headers=own).status_code == 200
    listed = api.get("/api/v1/keys", headers=admin)
    assert key["key"] not in listed.text
    assert [item["name"] for item in listed.json()["items"]] == ["root", "ci"]
    assert listed.json()["items"][1]["last_used_at"] is not None
    for _ in range(2):
        assert api.delete(f"/api/v1/keys/{key['id']}", headers=admin).status_code == 204
    assert api.get("/api/v1/jobs", headers=own).status_code == 401
    assert api.get("/api/v1/keys", headers=admin).json()["items"][1]["revoked_at"] is not None


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": "admin"}, "scopes"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "../x"}, "tenant"),
        ({"tenant": "team\n"}, "tenant"),
        ({"expires_days": 0}, "expires_days"),
        ({"expires_days": 10**9}, "expires_days"),
        ({"expires_days": 1.5}, "expires_days"),
        ({"expires_days": True}, "expires_days"),
        ({"id": "00000000"}, "id"),
    ],
)
def test_wrong_fields_are_named(
    api: httpx.Client, admin: dict[str, str], app_store: Store, change: dict[str, Any], loc: str
) -> None:
    answer = api.post("/api/v1/keys", json={"name": "n", "scopes": ["read"]} | change, headers=admin)
    assert answer.status_code == 422, answer.text
    assert {item["loc"][0] for item in answer.json()["error"]["details"]} == {loc}
    assert len(app_store.keys.list()) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"name": NaN}', b'{"name":"a","name":"b"}'])
def test_odd_bodies_are_refused(api: httpx.Client, admin: dict[str, str], body: bytes) -> None:
    headers = {**admin, "Content-Type": "application/json"}
    assert api.post("/api/v1/keys", content=body, headers=headers).status_code in (400, 422)


@pytest.mark.parametrize("key_id", ["00000000", "x", "%00", "%2e%2e", "' OR 1=1 --"])
def test_unknown_keys_are_404(api: httpx.Client, admin: dict[str, str], key_id: str) -> None:
    assert api.delete(f"/api/v1/keys/{key_id}", headers=admin).status_code == 404


def test_a_service_without_keys_makes_none(settings: Settings, app_store: Store, serve: Any) -> None:
    """Who reaches it today without a key must not keep one for the day on which it asks for them."""
    with serve(settings.model_copy(update={"require_keys": False}), app_store) as api:
        assert api.get("/api/v1/jobs").status_code == 200
        body = {"name": "n", "scopes": ["admin"]}
        for method, path in (
            ("GET", "/keys"),
            ("POST", "/keys"),
            ("DELETE", "/keys/00000000"),
            ("GET", "/session"),
            ("POST", "/session"),
            ("DELETE", "/session"),
        ):
            answer = api.request(method, f"/api/v1{path}", json=body)
            assert (answer.status_code, answer.json()["error"]["type"]) == (409, "invalid_state")
    assert app_store.keys.list() == []


def test_tenants_are_not_set_without_keys(settings: Settings, app_store: Store, serve: Any) -> None:
    with serve(settings.model_copy(update={"require_keys": False}), app_store) as api:
        answer = api.put(f"{TENANTS}/a", json={})
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "invalid_state")


def test_operators_set_weights_and_limits(api: httpx.Client, key: Any, train_body: Any) -> None:
    admin, alice = key("ops", "admin"), key("alice")
    answer = api.put(f"{TENANTS}/alice", json={"weight": 3.0, "queued_jobs": 1, "uploads": 0}, headers=admin)
    assert answer.status_code == 200
    assert (answer.json()["weight"], answer.json()["limits"]["queued_jobs"]) == (3.0, 1)
    assert answer.json()["limits"]["uploads"] == 0
    assert answer.json()["own"]["running_shards"] is None
    assert api.get(f"{TENANTS}/alice", headers=admin).json() == answer.json()
    assert [one["name"] for one in api.get(TENANTS, headers=admin).json()["items"]] == ["alice", "ops"]
    codes = [api.post(JOBS, json=train_body(), headers=alice).status_code for _ in range(2)]
    assert codes == [201, 429]
    assert api.put(f"{TENANTS}/alice", json={}, headers=admin).json()["limits"]["queued_jobs"] == 3
    assert api.get(QUOTA, headers=alice).json()["weight"] == 1.0


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": -1.0}, "weight"),
        ({"weight": 1e9}, "weight"),
        ({"weight": "3"}, "weight"),
        ({"queued_jobs": -1}, "queued_jobs"),
        ({"queued_jobs": 1.5}, "queued_jobs"),
        ({"running_shards": 2**60}, "running_shards"),
        ({"running_shard": 1}, "running_shard"),
    ],
)
def test_wrong_settings_of_tenants_are_named(
    api: httpx.Client, key: Any, body: dict[str, Any], loc: str
) -> None:
    answer = api.put(f"{TENANTS}/alice", json=body, headers=key("ops", "admin"))
    assert answer.status_code == 422
    assert {item["loc"][0] for item in answer.json()["error"]["details"]} == {loc}


def test_only_administrators_see_tenants_and_their_queues(
    api: httpx.Client, key: Any, train_body: Any
) -> None:
    api.post(JOBS, json=train_body(), headers=key("alice"))
    for method, path in (("GET", ""), ("GET", "/alice"), ("PUT", "/alice"), ("GET", "/x/y")):
        assert api.request(method, TENANTS + path, headers=key("bob")).status_code == 403
    assert "assay_tenant_" not in api.get("/metrics", headers=key("bob")).text
    text = api.get("/metrics", headers=key("ops", "admin")).text
    assert 'assay_tenant_queued_jobs{tenant="alice"} 1.0' in text
    assert 'assay_tenant_queue_oldest_seconds{tenant="alice"}' in text

"""The routes of keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.store import Store


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


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

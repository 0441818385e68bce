"""The route of the audit, and what calls leave in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from assay.service.client import AssayClient
from assay.service.contract.audit import AuditEntry, chain_of
from assay.service.settings import Settings
from assay.service.store import audit as audit_module
from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.tensors import tensor_file

Make = Callable[..., dict[str, Any]]
URL = "/api/v1/audit"
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def admin(app_store: Store) -> dict[str, str]:
    return {"Authorization": f"Bearer {app_store.keys.create('root', ['admin'], tenant='ops')[1]}"}


@pytest.fixture
def alice(app_store: Store) -> dict[str, str]:
    return {"Authorization": f"Bearer {app_store.keys.create('a', ['submit'], tenant='alice')[1]}"}


def lines(api: httpx.Client, admin: dict[str, str], **filters: str) -> list[AuditEntry]:
    answer = api.get(URL, headers=admin | LINES, params=filters)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [AuditEntry.model_validate_json(line) for line in answer.text.splitlines()]


def test_calls_leave_who_from_where_and_in_which_request(
    api: httpx.Client, app_store: Store, admin: dict[str, str], alice: dict[str, str], train_body: Make
) -> None:
    posted = api.post("/api/v1/jobs", json=train_body(), headers=alice | {"X-Request-ID": "mine-1"})
    job = posted.json()["id"]
    api.post("/api/v1/jobs", json=train_body(), params={"dry_run": "true"}, headers=alice)
    api.post(f"/api/v1/jobs/{job}/cancel", headers=admin)
    api.post(f"/api/v1/jobs/{job}/cancel", headers=admin)  # 409: not done, so not told
    made = api.post("/api/v1/keys", json={"name": "ci", "scopes": ["read"]}, headers=admin).json()
    api.delete(f"/api/v1/keys/{made['id']}", headers=admin)
    api.delete(f"/api/v1/jobs/{job}", headers=alice)
    found = lines(api, admin)
    assert [entry.action for entry in found] == [
        "job.submit", "job.cancel", "key.create", "key.revoke", "job.delete"
    ]  # fmt: skip
    assert [entry.tenant for entry in found] == ["alice", "ops", "ops", "ops", "alice"]
    assert found[0].request == "mine-1"
    assert found[0].object == found[1].object == job
    assert found[0].key == alice["Authorization"][13:21]
    assert {entry.address for entry in found} == {"127.0.0.1"}
    assert all(entry.request for entry in found)
    assert chain_of(found).breaks == []
    assert made["key"] not in json.dumps([entry.model_dump() for entry in found])


def test_an_upload_and_its_deletion(api: httpx.Client, admin: dict[str, str], alice: dict[str, str]) -> None:
    content = tensor_file()
    headers = alice | {"Content-Type": "application/octet-stream"}
    params = {"name": "mine", "model": "tiny_vit"}
    assert api.post("/api/v1/checkpoints", params=params, content=content, headers=headers).status_code == 202
    assert api.delete("/api/v1/checkpoints/mine", headers=alice).status_code == 204
    found = lines(api, admin)
    assert [(entry.action, entry.object) for entry in found] == [
        ("checkpoint.upload", "mine"),
        ("checkpoint.delete", "mine"),
    ]
    assert found[0].detail["size"] == len(content)


def test_logins_and_logouts_bear_the_mark_of_their_session(
    api: httpx.Client, admin: dict[str, str], alice: dict[str, str], train_body: Make
) -> None:
    session = api.post("/api/v1/session", json={"key": alice["Authorization"][7:]}).json()
    csrf = {"X-CSRF-Token": session["csrf_token"]}
    assert api.post("/api/v1/jobs", json=train_body(), headers=csrf).status_code == 201
    assert api.post("/api/v1/jobs", json=train_body()).status_code == 403
    assert api.delete("/api/v1/session", headers=csrf).status_code == 204
    found = lines(api, admin)
    assert [entry.action for entry in found] == ["session.open", "job.submit", "access", "session.close"]
    assert len({entry.session for entry in found}) == 1
    assert found[0].session
    assert {entry.key for entry in found} == {session["key_id"]}
    assert "csrf_token" in found[2].detail["reason"]


def test_what_was_refused(api: httpx.Client, admin: dict[str, str], alice: dict[str, str]) -> None:
    api.get("/api/v1/keys", headers=alice)
    unknown = "assay_" + "0" * 8 + "_" + "1" * 32
    api.get("/api/v1/jobs", headers={"Authorization": f"Bearer {unknown}"})
    api.get("/api/v1/jobs", headers={"Authorization": "Bearer hunter2"})
    api.post("/api/v1/session", json={"key": unknown})
    api.get("/api/v1/jobs")  # no key, no attempt
    found = lines(api, admin)
    assert [(entry.action, entry.object, entry.outcome) for entry in found] == [
        ("access", "/api/v1/keys", "refused"),
        ("key.use", None, "refused"),
        ("key.use", None, "refused"),
        ("session.open", None, "refused"),
    ]
    assert found[0].detail["method"] == "GET"
    assert "'admin'" in found[0].detail["reason"]
    assert [entry.detail for entry in found[1:]] == [{"claimed": "0" * 8}, {}, {"claimed": "0" * 8}]
    assert {entry.key for entry in found[1:]} == {None}, "what is claimed is not proven"
    text = json.dumps([entry.model_dump() for entry in found])
    assert "1" * 32 not in text
    assert "hunter2" not in text


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_only_administrators_read_it(api: httpx.Client, app_store: Store, scope: Any) -> None:
    header = {"Authorization": f"Bearer {app_store.keys.create('n', [scope])[1]}"}
    for headers in (header, header | LINES):
        answer = api.get(URL, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "forbidden")
        assert "'admin'" in answer.json()["error"]["message"]
    assert api.get(URL).status_code == 401


def test_pages_filters_and_lines_agree(
    api: httpx.Client, app_store: Store, admin: dict[str, str], alice: dict[str, str], train_body: Make
) -> None:
    for _ in range(3):
        api.post("/api/v1/jobs", json=train_body(), headers=alice)
        api.post("/api/v1/keys", json={"name": "n", "scopes": ["read"]}, headers=admin)

    def paged(**filters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = api.get(URL, headers=admin, params=filters | {"limit": 2}).json()
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            filters = filters | {"cursor": page["next_cursor"]}

    everything = paged()
    assert [item["id"] for item in everything] == [6, 5, 4, 3, 2, 1]
    for filters in (
        {},
        {"tenant": "alice"},
        {"action": "key.create"},
        {"key": alice["Authorization"][13:21]},
        {"after": everything[2]["at"]},
        {"before": everything[2]["at"].replace("Z", "+00:00")},
    ):
        assert [entry.model_dump(mode="json") for entry in lines(api, admin, **filters)] == paged(**filters)[
            ::-1
        ]
    assert len(paged(tenant="alice")) == 3
    assert paged(tenant="nobody") == []


@pytest.mark.parametrize(
    ("params", "loc"),
    [
        ({"after": "yesterday"}, "after"),
        ({"after": "2026-01-01T00:00:00"}, "after"),
        ({"action": "job.submitt"}, "action"),
        ({"tenant": "a b"}, "tenant"),
        ({"key": "assay_x"}, "key"),
        ({"cursor": "MA"}, "cursor"),
        ({"limit": "0"}, "limit"),
        ({"since": "1"}, "since"),
    ],
)
def test_wrong_filters_are_named(
    api: httpx.Client, admin: dict[str, str], params: dict[str, str], loc: str
) -> None:
    answer = api.get(URL, headers=admin, params=params)
    assert answer.status_code == 422, answer.text
    assert [item["loc"] for item in answer.json()["error"]["details"]] == [["query", loc]]


@pytest.mark.parametrize("name", ["limit", "cursor"])
def test_lines_have_no_pages(api: httpx.Client, admin: dict[str, str], name: str) -> None:
    answer = api.get(URL, headers=admin | LINES, params={name: "5"})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", name]


def test_an_export_ends_with_its_key(
    api: httpx.Client, app_store: Store, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must break off, and not look whole."""
    monkeypatch.setattr(audit_module, "CHUNK", 2)
    for _ in range(5):
        api.post("/api/v1/keys", json={"name": "n", "scopes": ["read"]}, headers=admin)
    works, asked = app_store.keys.works, []

    def until_the_second(key_id: str) -> bool:
        asked.append(key_id)
        if len(asked) == 2:
            app_store.keys.revoke(key_id)
        return works(key_id)

    monkeypatch.setattr(app_store.keys, "works", until_the_second)
    with pytest.raises(Exception, match="revoked during the export"):
        api.get(URL, headers=admin | LINES)
    assert len(asked) == 2


def test_a_service_without_keys_audits_too(
    settings: Settings, app_store: Store, serve: Any, train_body: Make
) -> None:
    with serve(settings.model_copy(update={"require_keys": False}), app_store) as api:
        api.post("/api/v1/jobs", json=train_body())
        (entry,) = lines(api, {})
    assert (entry.action, entry.tenant, entry.key, entry.address) == ("job.submit", None, None, "127.0.0.1")


def test_both_databases_answer_alike(
    settings: Settings, serve: Callable[..., Any], database_url: str, train_body: Make
) -> None:
    with open_store(database_url, migrate=False) as store, serve(settings, store) as api:
        header = {"Authorization": f"Bearer {store.keys.create('n', ['admin'], tenant='ops')[1]}"}
        api.post("/api/v1/jobs", json=train_body(), headers=header)
        api.get("/api/v1/jobs", headers={"Authorization": "Bearer x"})
        assert [entry.action for entry in lines(api, header)] == ["job.submit", "key.use"]
        assert chain_of(lines(api, header)).breaks == []
        assert [item["id"] for item in api.get(URL, headers=header).json()["items"]] == [2, 1]


def test_a_refusal_that_cannot_be_audited_stays_a_refusal(
    api: httpx.Client, app_store: Store, alice: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("INSERT", {}, Exception("away"))

    monkeypatch.setattr(app_store.audit, "add", away)
    assert api.get("/api/v1/keys", headers=alice).status_code == 403
    assert api.get("/api/v1/jobs", headers={"Authorization": "Bearer x"}).status_code == 401


def test_the_client_reads_it(transport: Any, app_store: Store, admin: dict[str, str]) -> None:
    key = admin["Authorization"][7:]
    with AssayClient("http://127.0.0.1:8000", key, transport=transport) as client:
        made = client.create_key("ci", ["read"], tenant="team", expires_days=2)
        assert made.tenant == "team"
        assert [one.name for one in client.api_keys()] == ["root", "ci"]
        client.revoke_key(made.id)
        assert [entry.action for entry in client.audit()] == ["key.create", "key.revoke"]
        assert [entry.action for entry in client.newest_audit(1)] == ["key.revoke"]
        assert list(client.audit(tenant="nobody")) == []
        assert chain_of(client.audit()).breaks == []

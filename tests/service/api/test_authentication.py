"""Deny by default: a walk over every route without a key, with a foreign one, and with too small a one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import OperationalError

from assay.service.api.direct_routes import DirectRoutes
from assay.service.app import create_app
from assay.service.contract.keys import Scope
from assay.service.settings import Settings
from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)

Make = Callable[..., dict[str, Any]]
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PURGE")
SIGNING_KEYS = "/.well-known/assay-keys"
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/api/v1/session"), ("GET", SIGNING_KEYS)}
UNKNOWN = (
    "/", "/x", "/api", "/api/v1", "/api/v1/jobs/", "/api/v2/jobs", "/metrics", "/redoc", "/docs/", "//docs",
    "/docs/nope.js", "/docs/%2e%2e/core.py", "/healthz/", "//healthz", "/healthz/..%2fapi/v1/jobs",
    "/HEALTHZ", "/healthz%00", "/readyz%2f", "/healthz;x", "/%68ealthz/x", "/api/v1/session/", "/static/x",
    "/.well-known/", "/.well-known/assay-keys/", "/.well-known/x",
)  # fmt: skip


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def key(app_store: Store) -> Callable[..., dict[str, str]]:
    """Makes a key and gives the header that sends it."""

    def key(scope: Scope, tenant: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create(scope, [scope], tenant=tenant)[1]}"}

    return key


def leaves(routes: Sequence[Any]) -> Iterator[Any]:
    """The routes themselves; newer FastAPIs keep those of a router together in one entry."""
    for route in routes:
        if isinstance(route, DirectRoutes):
            continue  # they are in their routers too, and a call finds them here first
        inside = getattr(route, "original_router", None)
        if inside is not None:
            yield from leaves(inside.routes)
            continue
        assert type(route).__name__ in ("APIRoute", "StrictRoute", "WorkerRoute", "Route"), (
            "a mount? say here what is below it"
        )
        yield route


def routes(app: FastAPI, **values: str) -> Iterator[tuple[str, str]]:
    """Every route with every method that it has, also those that are not in the OpenAPI document."""
    known = {"job_id": "0" * 26, "name": "x", "kind": "attack", "key_id": "0" * 8, "tenant": "t"}
    known |= {"study_id": "0" * 26, "evaluation": "0", "number": "0", "digest": "0" * 16, "format": "svg"}
    known |= {"webhook_id": "0" * 26, "delivery_id": "0" * 26} | values
    found = 0
    for route in leaves(app.routes):
        for method in route.methods:
            found += 1
            yield method, route.path.format(**known)
    assert found > 25


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 401, (answer.request.method, answer.request.url)
    assert answer.headers["www-authenticate"] == 'Bearer realm="assay"'
    if answer.request.method != "HEAD":
        assert answer.json()["error"]["type"] == "unauthorized"


def test_no_route_answers_without_a_key(api: httpx.Client, transport: Any) -> None:
    walked = set(routes(transport.app))
    paths = {path for _, path in walked}
    assert {"/docs", "/docs/x", "/openapi.json", "/api/v1/jobs", "/api/v1/keys"} < paths
    for method, path in walked | {(method, path) for method in METHODS for path in {*paths, *UNKNOWN}}:
        if (method.replace("HEAD", "GET"), path) not in OPEN:
            refused(api.request(method, path))


def test_the_open_routes_are_open(api: httpx.Client) -> None:
    assert api.get("/healthz").status_code == 200
    assert api.get("/readyz").status_code == 200
    assert api.get(SIGNING_KEYS).status_code == 200
    assert api.post("/api/v1/session").status_code == 415


def test_a_refused_body_is_not_read(api: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        yield b"x" * 100_000

    refused(api.post("/api/v1/jobs", content=body()))


def test_keys_that_do_not_work_are_refused_in_the_same_words(api: httpx.Client, app_store: Store) -> None:
    revoked, revoked_text = app_store.keys.create("n", ["admin"])
    app_store.keys.revoke(revoked.id)
    good = app_store.keys.create("n", ["admin"])[1]
    expired = app_store.keys.create("n", ["admin"], expires_seconds=-1)[1]
    unknown = good[:6] + "00000000" + good[14:]
    sent = [
        *(f"Bearer {text}" for text in (revoked_text, expired, unknown, good[:-1], good + "x", good.upper())),
        *("", "Bearer", "Bearer ", good, f"Basic {good}", f"Bearer {good} {good}", f"Bearer {good}, x"),
        *(f"Bearer\t{good}", f"Bearer{good}", f"Bearer {good};", f'Bearer "{good}"', f"Digest {good}"),
    ]
    answers = [api.get("/api/v1/jobs", headers={"Authorization": text}) for text in sent]
    for answer in answers:
        refused(answer)
    assert len({answer.text for answer in answers}) == 1
    assert api.get("/api/v1/jobs", headers={"Authorization": f"bEARER  {good}"}).status_code == 200


def test_of_two_authorization_headers_none_counts(api: httpx.Client, app_store: Store) -> None:
    good = f"Bearer {app_store.keys.create('n', ['admin'])[1]}"
    for pair in ((good, good), (good, "Bearer x"), ("Bearer x", good)):
        refused(api.get("/api/v1/jobs", headers=[("Authorization", value) for value in pair]))


def test_headers_of_proxies_open_nothing(api: httpx.Client) -> None:
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "X-User"):
        for value in ("127.0.0.1", "for=127.0.0.1", "/healthz", "admin"):
            refused(api.get("/api/v1/jobs", headers={name: value}))
    refused(api.post("/api/v1/jobs", headers={"X-HTTP-Method-Override": "GET"}))
    refused(api.get("/api/v1/jobs", params={"key": "x", "access_token": "y"}))


def test_a_read_key_changes_nothing(api: httpx.Client, transport: Any, key: Any) -> None:
    header = key("read")
    for method, path in routes(transport.app):
        if method not in ("GET", "HEAD") and path != "/api/v1/session":
            answer = api.request(method, path, headers=header)
            assert answer.status_code == 403, (method, path)
            administrative = any(part in path for part in ("/keys", "/tenants", "/workers"))
            wanted = "'admin'" if administrative else "'submit' or 'admin'"
            wanted = "'worker'" if path.startswith("/api/v1/worker/") else wanted
            assert wanted in answer.json()["error"]["message"]
            assert "it has read" in answer.json()["error"]["message"]


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_only_admin_keys_see_keys(api: httpx.Client, key: Any, scope: Scope) -> None:
    header = key(scope)
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", "/00000000"), ("GET", "/x/y"), ("PUT", "")):
        assert api.request(method, f"/api/v1/keys{path}", headers=header).status_code == 403
    assert api.get("/api/v1/keys", headers=key("admin")).status_code == 200


def test_each_scope_does_its_work(api: httpx.Client, key: Any, train_body: Make) -> None:
    for scope in ("submit", "admin"):
        header = key(scope)
        job = api.post("/api/v1/jobs", json=train_body(), headers=header).json()
        assert api.get(f"/api/v1/jobs/{job['id']}", headers=header).status_code == 200
        assert api.post(f"/api/v1/jobs/{job['id']}/cancel", headers=header).status_code == 202
        assert api.delete(f"/api/v1/jobs/{job['id']}", headers=header).status_code == 204
    header = key("read")
    for path in ("/api/v1/jobs", "/api/v1/catalog", "/docs", "/openapi.json", "/docs/swagger-ui.css"):
        assert api.get(path, headers=header).status_code == 200
    assert api.get("/nope", headers=header).status_code == 404
    assert api.head("/api/v1/jobs", headers=header).status_code == 200
    assert api.options("/api/v1/jobs", headers=header).status_code == 204


def test_a_foreign_job_is_not_found_on_any_route(
    api: httpx.Client, transport: Any, key: Any, train_body: Make, worker: Any
) -> None:
    ours, theirs = key("submit"), key("submit")
    job_id = api.post("/api/v1/jobs", json=train_body(), headers=ours).json()["id"]
    worker.train(job_id)
    before = api.get(f"/api/v1/jobs/{job_id}", headers=ours).json()
    walked = [pair for pair in routes(transport.app, job_id=job_id) if job_id in pair[1]]
    assert len(walked) >= 8
    for method, path in walked:
        foreign = api.request(method, path, headers=theirs)
        missing = api.request(method, path.replace(job_id, "0" * 26), headers=theirs)
        assert foreign.status_code == missing.status_code == 404, (method, path)
        assert foreign.text.replace(job_id, "0" * 26) == missing.text
        # Every request has an id of its own.
        for answer in (foreign, missing):
            del answer.headers["x-request-id"]
        assert dict(foreign.headers) == dict(missing.headers)
    assert api.get(f"/api/v1/jobs/{job_id}", headers=ours).json() == before
    assert api.get(f"/api/v1/jobs/{job_id}", headers=key("admin")).json() == before
    assert api.get("/api/v1/jobs", headers=theirs).json() == {"items": [], "next_cursor": None}


def test_foreign_jobs_do_not_leak_through_other_calls(
    api: httpx.Client, key: Any, train_body: Make, evaluate_body: Make
) -> None:
    ours, theirs = key("submit"), key("submit")
    body = train_body()
    posted = api.post("/api/v1/jobs", json=body, headers={**ours, "Idempotency-Key": "k"})
    job_id, nobody = posted.json()["id"], "0" * 26

    def both(call: Callable[[str], httpx.Response]) -> tuple[httpx.Response, httpx.Response]:
        foreign, missing = call(job_id), call(nobody)
        assert foreign.text.replace(job_id, nobody) == missing.text
        return foreign, missing

    mine = api.post("/api/v1/jobs", json=body, headers=theirs).json()["id"]
    both(lambda other: api.get("/api/v1/compare", params={"jobs": f"{mine},{other}"}, headers=theirs))
    both(lambda other: api.get("/api/v1/compare", params={"jobs": f"{other},{mine}"}, headers=theirs))

    def weights(other: str, **params: str) -> httpx.Response:
        model = {"name": "tiny_vit", "weights": {"job": other}}
        return api.post("/api/v1/jobs", json=evaluate_body(model=model), params=params, headers=theirs)

    def attack(other: str, **params: str) -> httpx.Response:
        evaluations = [{"name": "transfer", "params": {"job": other}}]
        spec = evaluate_body(evaluations=evaluations)
        return api.post("/api/v1/jobs", json=spec, params=params, headers=theirs)

    for need in (weights, attack):
        assert both(need)[0].status_code == 422
        assert both(lambda other, need=need: need(other, dry_run="true"))[0].status_code == 422  # type: ignore[misc]
    assert attack(mine).status_code == weights(mine).status_code == 201
    # Another's idempotency key tells nothing, neither that it was used nor with which body.
    again = api.post("/api/v1/jobs", json=body, headers={**theirs, "Idempotency-Key": "k"})
    assert again.status_code == 201
    assert again.json()["id"] != job_id
    other = api.post(
        "/api/v1/jobs", json=train_body(name="x"), headers={**key("submit"), "Idempotency-Key": "k"}
    )
    assert other.status_code == 201


def test_keys_of_one_tenant_see_the_same_jobs(api: httpx.Client, key: Any, train_body: Make) -> None:
    old, new = key("submit", "team"), key("read", "team")
    job_id = api.post("/api/v1/jobs", json=train_body(), headers=old).json()["id"]
    assert api.get(f"/api/v1/jobs/{job_id}", headers=new).status_code == 200
    assert [job["id"] for job in api.get("/api/v1/jobs", headers=new).json()["items"]] == [job_id]


def test_revoking_a_key_works_at_once(api: httpx.Client, app_store: Store) -> None:
    row, text = app_store.keys.create("n", ["read"])
    header = {"Authorization": f"Bearer {text}"}
    assert api.get("/api/v1/jobs", headers=header).status_code == 200
    app_store.keys.revoke(row.id)
    refused(api.get("/api/v1/jobs", headers=header))


def test_a_key_that_another_process_revokes_is_refused_within_two_seconds(
    api: httpx.Client, app_store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [1000.0]
    monkeypatch.setattr("assay.service.store.keys.time", SimpleNamespace(monotonic=lambda: times[-1]))
    row, text = app_store.keys.create("n", ["read"])
    header = {"Authorization": f"Bearer {text}"}
    assert api.get("/api/v1/jobs", headers=header).status_code == 200
    with open_store(settings.database, migrate=False) as other:
        other.keys.revoke(row.id)
    times.append(1002.0)
    refused(api.get("/api/v1/jobs", headers=header))


def test_answers_stay_out_of_shared_caches(api: httpx.Client, key: Any) -> None:
    header = key("admin")
    assert api.get("/api/v1/jobs", headers=header).headers["cache-control"] == "private, no-cache"
    body = {"name": "n", "scopes": ["read"]}
    assert api.post("/api/v1/keys", json=body, headers=header).headers["cache-control"] == "no-store"


def test_the_host_guard_stays_in_front(api: httpx.Client, key: Any) -> None:
    answer = api.get("/api/v1/jobs", headers={**key("admin"), "Host": "evil.example"})
    assert answer.status_code == 403


def test_a_database_that_is_away_is_503_and_lets_no_caller_in(
    api: httpx.Client, app_store: Store, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = key("admin")

    def away(text: str) -> None:
        raise OperationalError("SELECT", {}, Exception("away"))

    monkeypatch.setattr(app_store.keys, "authenticate", away)
    answer = api.get("/api/v1/jobs", headers=header)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
    refused(api.get("/api/v1/jobs"))


@pytest.mark.parametrize("kind", ["websocket", "something"])
def test_other_protocols_are_closed(transport: Any, kind: str) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": kind, "path": "/healthz", "headers": [(b"host", b"localhost")]}
    transport.do(transport.app(scope, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_both_databases_answer_alike(
    settings: Settings, serve: Callable[..., Any], database_url: str, train_body: Make
) -> None:
    with open_store(database_url, migrate=False) as store, serve(settings, store) as api:
        made, text = store.keys.create("n", ["submit"])
        ours = {"Authorization": f"Bearer {text}"}
        theirs = {"Authorization": f"Bearer {store.keys.create('n', ['submit'])[1]}"}
        refused(api.get("/api/v1/jobs"))
        job_id = api.post("/api/v1/jobs", json=train_body(), headers=ours).json()["id"]
        assert api.get(f"/api/v1/jobs/{job_id}", headers=ours).status_code == 200
        assert api.get(f"/api/v1/jobs/{job_id}", headers=theirs).status_code == 404
        store.keys.revoke(made.id)
        refused(api.get(f"/api/v1/jobs/{job_id}", headers=ours))


def test_a_route_without_caller_fails_closed(settings: Settings, app_store: Store) -> None:
    """Were the guard forgotten, or a route of jobs opened, the store would not be handed out."""
    from assay.service.api.caller import caller_in

    app = create_app(settings, store=app_store)
    assert any(layer.kwargs.get("required") is True for layer in app.user_middleware)
    with pytest.raises(RuntimeError, match="no caller"):
        caller_in({"type": "http"})


def test_the_document_says_what_needs_a_key(api: httpx.Client, key: Any) -> None:
    document = api.get("/openapi.json", headers=key("read")).json()
    assert document["security"] == [{"key": []}]
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    free = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation.get("security") == []
    }
    assert free == OPEN


def test_who_watches_is_told_that_the_database_is_away_and_no_other_caller_gets_in(
    api: httpx.Client, key: Any, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert on `assay_database_up` could not fire if the guard needed the database first."""

    def away(*_: object, **__: object) -> None:
        raise OperationalError("", {}, Exception("connection refused"))

    watcher, late = key("read"), key("read")
    assert api.get("/metrics", headers=watcher).status_code == 200
    monkeypatch.setattr("assay.service.api.authentication.REMEMBERED_SECONDS", 0.0)
    monkeypatch.setattr(app_store.keys, "authenticate", away)
    monkeypatch.setattr(app_store, "overview", away)
    monkeypatch.setattr("assay.service.api.metrics.FRESH_SECONDS", 0.0, raising=False)
    assert api.get("/metrics", headers=watcher).status_code == 200
    assert api.get("/metrics", headers=late).status_code == 503
    assert api.get("/api/v1/jobs", headers=watcher).status_code == 503

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from assay.service import app, features
from assay.service.api.authentication import CHECKPOINTS_PATH, GATEWAY_PATH
from assay.service.api.caller import CALLER, Caller
from assay.service.contract.errors import TooManyRequests
from assay.service.middleware import BODIES_AT_ONCE, BodyCap, ErrorBoundary, HostGuard, host_name
from assay.service.settings import Settings
from assay.service.store.rows import KeyRow
from assay.service.store.store import Store


def chunks(count: int, size: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"x" * size


def test_a_body_over_the_cap_is_413(api: httpx.Client) -> None:
    answer = api.post("/api/v1/jobs", content=b" " * 20_001, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "too_large"
    assert "20000 bytes" in answer.json()["error"]["message"]


def test_a_body_without_length_is_cut_at_the_cap(api: httpx.Client) -> None:
    answer = api.post("/api/v1/jobs", content=chunks(30, 1000), headers={"content-type": "application/json"})
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413


def test_a_body_at_the_cap_is_read(api: httpx.Client) -> None:
    answer = api.post("/api/v1/jobs", content=b" " * 20_000, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_a_feature_declares_the_limits_of_its_bodies(
    serve: Callable[..., Any], settings: Settings, app_store: Store
) -> None:
    with serve(
        settings.model_copy(update={"max_body_bytes": 100, "max_checkpoint_bytes": 1000}), app_store
    ) as api:
        declared = {
            path: limit
            for module in features.modules("routes")
            if hasattr(module, "body_limits")
            for path, limit in module.body_limits(settings).items()
        }
        assert set(declared) >= {CHECKPOINTS_PATH, f"{GATEWAY_PATH}/plan", f"{GATEWAY_PATH}/upload"}
        for path in declared:
            assert api.post(path, content=b"x" * 500).status_code != 413, path
        assert api.post(f"{GATEWAY_PATH}/claim", content=b"x" * 500).status_code == 413
    core = Path(app.__file__).read_text()
    assert [name for name in features.FEATURES if name.upper() in core] == []


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1"]
)
def test_foreign_hosts_are_refused(api: httpx.Client, host: str) -> None:
    answer = api.get("/api/v1/jobs", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "forbidden"
    assert "ASSAY_ALLOWED_HOSTS" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_loopback_hosts_are_served(api: httpx.Client, host: str) -> None:
    assert api.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000"]
)
def test_posts_from_other_origins_are_refused(api: httpx.Client, origin: str) -> None:
    answer = api.post("/api/v1/jobs/01m7yq0tygpbr98qrkbw31n8h6/cancel", headers={"origin": origin})
    assert answer.status_code == 403


def test_posts_from_the_own_origin_pass(api: httpx.Client) -> None:
    headers = {"origin": "http://127.0.0.1:8000"}
    assert api.post("/api/v1/jobs/01m7yq0tygpbr98qrkbw31n8h6/cancel", headers=headers).status_code == 404


def test_no_answer_opens_the_service_to_other_origins(api: httpx.Client) -> None:
    answer = api.options("/api/v1/jobs", headers={"origin": "http://127.0.0.1:8000"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:80", "a"), ("[::1]:80", "::1"), ("a/b", None), ("a@b", None), ("[::1", None), ("", None)],
)
def test_host_name(header: str, name: str | None) -> None:
    assert host_name(header) == name


async def _broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError("secret detail")


async def _broken_midway(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ZeroDivisionError("secret detail")


async def _call(app: ErrorBoundary) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get("/x")


def test_an_unexpected_error_is_500_with_an_id_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = asyncio.run(_call(ErrorBoundary(_broken)))
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert error["type"] == "internal"
    assert "secret" not in error["message"]
    assert error["message"].rpartition(" ")[2] in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_an_error_after_the_start_of_the_answer_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(_call(ErrorBoundary(_broken_midway)))


def test_a_client_that_goes_away_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def gone(scope: Scope, receive: Receive, send: Send) -> None:
        raise ClientDisconnect

    scope = {"type": "http", "method": "POST", "path": "/x"}
    with caplog.at_level(logging.INFO):
        asyncio.run(ErrorBoundary(gone)(scope, None, None))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_bodies_of_a_tenant_in_memory_are_limited() -> None:
    held = asyncio.Event()

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await held.wait()

    def body(size: int) -> Receive:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        return receive

    async def send(message: Message) -> None:
        raise AssertionError(message)

    async def crowd() -> None:
        layer = BodyCap(read, 10, {("POST", "/files"): 1000})
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        calls = [asyncio.create_task(layer(scope, body(10), send)) for _ in range(BODIES_AT_ONCE)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await layer(scope, body(1), send)
        other = scope | {CALLER: Caller(KeyRow("id", "n", "p", ["submit"], "other", 0.0, None, None, None))}
        calls.append(asyncio.create_task(layer(other, body(10), send)))
        calls.append(asyncio.create_task(layer(scope | {"path": "/files"}, body(1000), send)))
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*calls)
        # What is over does not count.
        await asyncio.gather(*(layer(scope, body(10), send) for _ in range(BODIES_AT_ONCE)))

    asyncio.run(crowd())


@pytest.mark.parametrize(
    ("path", "client", "host", "code"),
    [
        ("/healthz", "127.0.0.1", "localhost:8000", 200),
        ("/readyz", "::1", "[::1]:8000", 200),
        ("/readyz", "127.0.0.1", "evil.example", 403),
        ("/readyz", "10.0.0.5", "localhost", 403),
        ("/metrics", "127.0.0.1", "localhost", 403),
    ],
)
def test_this_machine_may_ask_for_health_by_its_own_name(
    settings: Settings, app_store: Store, path: str, client: str, host: str, code: int
) -> None:
    changes = {"allowed_hosts": ["assay.example"], "host": "0.0.0.0", "require_keys": True}
    inner = app.create_app(settings.model_copy(update=changes), store=app_store)
    transport = httpx.ASGITransport(inner, client=(client, 5))

    async def asked() -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as api:
            return (await api.get(path, headers={"Host": host})).status_code

    assert asyncio.run(asked()) == code


def test_other_protocols_pass_through() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    for layer in (ErrorBoundary(app), HostGuard(app, []), BodyCap(app, 1)):
        asyncio.run(layer({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"] * 3

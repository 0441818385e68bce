"""Large bodies whose senders are slow, on the application itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from assay.service.gateway.calls import BODIES_AT_ONCE, BODIES_OF_POOL
from assay.service.store.store import Store
from tests.service.conftest import AppTransport
from tests.service.gateway.test_routes import claimed, finishing, key
from tests.support.jobs import planned

Receive = Callable[[], Awaitable[dict[str, Any]]]


async def answered(
    transport: AppTransport, name: str, header: dict[str, str], receive: Receive
) -> tuple[int, Any]:
    """Status and JSON of a call whose body the test hands out."""
    sent: list[dict[str, Any]] = []
    headers = {"host": "127.0.0.1", "content-type": "application/json", **header}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": f"/api/v1/worker/{name}",
        "raw_path": f"/api/v1/worker/{name}".encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(one.lower().encode(), text.encode()) for one, text in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }

    async def send(message: Any) -> None:
        sent.append(message)

    await transport.app(scope, receive, send)  # type: ignore[arg-type]
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


def whole(body: Any) -> dict[str, Any]:
    return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}


def test_slow_bodies_keep_no_outcome_from_being_taken(
    http: httpx.Client, transport: AppTransport, store: Store
) -> None:
    planned(store, 1)
    mine, others = key(store), key(store, tenant="others")
    held = claimed(http, mine)

    async def work() -> None:
        sending, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def slow() -> dict[str, Any]:
            begun.release()
            await sending.wait()
            return whole({})

        waiting = [
            asyncio.create_task(answered(transport, "finish", others, slow)) for _ in range(BODIES_OF_POOL)
        ]
        for _ in waiting:
            await begun.acquire()
        assert len(waiting) > BODIES_AT_ONCE

        async def quick() -> dict[str, Any]:
            return whole(finishing(held))

        status, told = await answered(transport, "finish", others, quick)
        assert (status, told["error"]["type"]) == (429, "too_many_requests")
        status, told = await answered(transport, "finish", mine, quick)
        assert status == 200, told
        assert told["finished"] is not None
        sending.set()
        assert {status for status, _ in await asyncio.gather(*waiting)} == {422}
        status, _ = await answered(transport, "finish", others, quick)
        assert status == 409, "the bodies are counted no longer"

    transport.do(work())

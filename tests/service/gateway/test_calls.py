"""Slow senders, clients that leave and workers that stop, on the application itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from assay.service.gateway import transactions
from assay.service.gateway.calls import BODIES_AT_ONCE, BODIES_OF_POOL
from assay.service.gateway.transactions import version_of
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.store import Store
from tests.service.conftest import AppTransport
from tests.service.gateway.test_routes import ASKED, claimed, finishing, key
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


def test_a_client_that_left_gets_no_shard(transport: AppTransport, store: Store) -> None:
    job_id, header = planned(store, 1), key(store)

    async def gone() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    messages = [whole(ASKED)]
    status, _ = transport.do(answered(transport, "claim", header, gone))
    assert status == 200
    assert store.shards.running() == []
    (shard,) = (one for one in store.shards.of(job_id) if one.kind == "evaluate")
    assert (shard.state, shard.fence, shard.failures, shard.losses) == ("queued", 1, 0, 0)


@pytest.mark.parametrize("end", ["leaves", "gone", "expire", "claim"])
def test_a_wait_ends_with_its_client_and_its_worker(transport: AppTransport, store: Store, end: str) -> None:
    header = key(store)

    async def work() -> None:
        closed, waits = asyncio.Event(), asyncio.Event()
        messages = [whole({**ASKED, "seen": version_of([]), "wait_seconds": 50.0})]

        async def waiting() -> dict[str, Any]:
            if messages:
                return messages.pop()
            waits.set()
            await closed.wait()
            return {"type": "http.disconnect"}

        async def at_once() -> dict[str, Any]:
            return whole(ASKED if end == "claim" else {"worker": ASKED["worker"]})

        wait = asyncio.create_task(answered(transport, "claim", header, waiting))
        await waits.wait()
        if end == "leaves":
            closed.set()
        else:
            assert (await answered(transport, end, header, at_once))[0] == 200
        status, told = await asyncio.wait_for(wait, 20)
        assert (status, told["claim"]) == (200, None)

    transport.do(work())


def test_only_open_lanes_come_to_the_database(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    claim = store.shards.claim

    def note(*names: Any, **options: Any) -> Any:
        given.append(options["lanes"])
        return claim(*names, **options)

    monkeypatch.setattr(store.shards, "claim", note)
    opened = Lane("cpu", "", "ab" * 8)
    monkeypatch.setattr(transactions, "open_lanes", lambda _: [OpenLane(opened, {"gpu": True})])
    named = [Lane("cpu", "", f"{number:016x}") for number in range(998)] + [opened, opened]
    body = {**ASKED, "lanes": [lane._asdict() for lane in named]}
    assert http.post("/api/v1/worker/claim", json=body, headers=key(store)).status_code == 200
    assert given == [(opened,)]


@pytest.mark.costly
def test_a_worker_with_too_little_time_is_not_woken_again_at_once(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(store, 1)
    given: list[Any] = []
    claim = store.shards.claim

    def note(*names: Any, **options: Any) -> Any:
        given.append(options["seconds"])
        return claim(*names, **options)

    monkeypatch.setattr(store.shards, "claim", note)
    header = key(store)
    body = {**ASKED, "seen": version_of([]), "seconds": 1e-6, "wait_seconds": 1.5}
    for asked in (2, 3):  # At once and woken; then at once
        answer = http.post("/api/v1/worker/claim", json=body, headers=header)
        assert answer.json()["claim"] is None
        assert len(given) == asked

"""A question for a shard: what holds when it is answered, not when it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from assay.service.dashboard.frame import made_once
from assay.service.gateway.calls import Shared, version_of
from assay.service.store.store import Store
from tests.service.conftest import AppTransport
from tests.service.gateway.test_calls import answered, whole
from tests.service.gateway.test_routes import ASKED, key
from tests.support.jobs import add, evaluate_spec, planned

WAITS = {**ASKED, "seen": version_of([]), "wait_seconds": 50.0}


@pytest.mark.parametrize("now", ["in service", "cordoned", "withdrawn"])
def test_a_worker_that_is_woken_stands_as_it_does_then(
    transport: AppTransport, store: Store, now: str
) -> None:
    header = key(store)
    store.workers.beat("pool:w", "host", ["cpu"], 1, {}, 1, "pool:host:0")

    async def work() -> None:
        messages, waits = [whole(WAITS)], asyncio.Event()

        async def waiting() -> dict[str, Any]:
            if not messages:
                waits.set()
                await asyncio.Event().wait()
            return messages.pop()

        wait = asyncio.create_task(answered(transport, "claim", header, waiting))
        await waits.wait()
        if now == "cordoned":
            store.cordons.set("pool:host:0", drain=False, by_whom="me")
        elif now == "withdrawn":
            store.identities.rule(str(ASKED["identity"]), "withdrawn", "me")
        add(store, evaluate_spec())
        room = made_once(transport.app, Shared).room  # type: ignore[arg-type]
        for waiters in room._waiting.values():
            for waiter in waiters:
                waiter.woken.set()
        _, told = await asyncio.wait_for(wait, 20)
        assert (told["claim"] is not None) is (now == "in service")
        assert (told["standing"]["cordon"] is not None) is (now == "cordoned")
        assert told["standing"]["admitted"] is (now != "withdrawn")

    transport.do(work())


def test_a_claim_asks_the_database_in_few_statements(http: httpx.Client, store: Store) -> None:
    planned(store, 3)
    header = key(store)
    beat = {"worker": ASKED["worker"], "host": "host", "device_classes": ["cpu"], "pid": 1, "gauges": {}}
    body = {**ASKED, "beat": {**beat, "devices": 1, "name": "host:0", "identity": ASKED["identity"]}}
    assert http.post("/api/v1/worker/claim", json=body, headers=header).json()["claim"] is not None
    counted: list[str] = []
    event.listen(store._database.engine, "before_cursor_execute", lambda *given: counted.append(given[2]))
    assert http.post("/api/v1/worker/claim", json=body, headers=header).json()["claim"] is not None
    assert len(counted) <= 12, counted

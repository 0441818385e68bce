"""A question for a shard: what holds when it is answered, not when it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import event, update

from assay.service.dashboard.frame import made_once
from assay.service.gateway import calls, shard_requests
from assay.service.gateway.calls import Shared
from assay.service.gateway.transactions import version_of
from assay.service.store.clock import now
from assay.service.store.store import Store
from assay.service.store.tables import workers
from tests.service.conftest import AppTransport
from tests.service.gateway.test_calls import answered, whole
from tests.service.gateway.test_routes import ASKED, key
from tests.support.jobs import add, evaluate_spec, planned
from tests.support.workers import wait_for

WAITS = {**ASKED, "seen": version_of([]), "wait_seconds": 50.0}


@pytest.mark.parametrize("change", ["in service", "cordoned", "withdrawn"])
def test_a_worker_that_is_woken_stands_as_it_does_then(
    transport: AppTransport, store: Store, change: str
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
        if change == "cordoned":
            store.cordons.set("pool:host:0", drain=False, by_whom="me")
        elif change == "withdrawn":
            store.identities.rule(str(ASKED["identity"]), "withdrawn", "me")
        add(store, evaluate_spec())
        room = made_once(transport.app, Shared).room  # type: ignore[arg-type]
        for waiters in room._waiting.values():
            for waiter in waiters:
                waiter.woken.set()
        _, told = await asyncio.wait_for(wait, 20)
        assert (told["claim"] is not None) is (change == "in service")
        assert (told["standing"]["cordon"] is not None) is (change == "cordoned")
        assert told["standing"]["admitted"] is (change != "withdrawn")

    transport.do(work())


def test_a_worker_that_asks_as_before_asks_the_database_nothing(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (calls, shard_requests):  # However slow the machine is
        monkeypatch.setattr(module, "FRESH_SECONDS", 3600.0)
    arrived, arrive = list[Any](), shard_requests._arrive

    def note(*given: Any) -> Any:
        arrived.append(given)
        return arrive(*given)

    monkeypatch.setattr(shard_requests, "_arrive", note)
    header = key(store)
    worker, name = f"pool:{ASKED['worker']}", f"pool:{ASKED['name']}"

    def ask(gauges: Any = {}, **changes: Any) -> Any:  # noqa: B006 (never changed)
        about = {"worker": ASKED["worker"], "host": "host", "device_classes": ["cpu"], "pid": 1}
        beat = {**about, "gauges": gauges, "devices": 1, "name": ASKED["name"], "identity": ASKED["identity"]}
        body = {**WAITS, "wait_seconds": 0.8, "beat": beat, **changes}
        return http.post("/api/v1/worker/claim", json=body, headers=header).json()

    ask()
    wait_for(lambda: ask() and len(arrived) < 2)
    before = len(arrived)
    with store._database.writing() as connection:
        connection.execute(update(workers).values(seen_at=now() - 100))
    wait_for(lambda: ask()["claim"] is None and store.workers.online("cpu") == 1)
    assert len(arrived) == before, "its sign of life is written by a look of the waiting room"
    ask({"staged": {"birds": "b" * 64}})
    assert len(arrived) == before + 1, "it says something new"
    store.cordons.set(name, drain=False, by_whom="me")
    wait_for(lambda: ask()["standing"]["cordon"] is not None)
    store.cordons.lift(name)
    store.workers.gone(worker)
    planned(store, 1)
    wait_for(lambda: ask()["claim"] is not None)
    assert store.workers.online("cpu") == 1


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

"""What pages do before their first request, and how many watchers wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from assay.service.dashboard import frame, live
from assay.service.dashboard.live import LiveStates
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View


@pytest.fixture
def store(app_store: Store) -> TenantStore:
    return TenantStore(app_store, View(None, everything=True))


def test_a_hundred_watchers_take_one_thread_and_one_reading(
    store: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, most, readings = 0, 0, 0

    def slow(store: TenantStore, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        nonlocal working, most, readings
        del store
        if not job_ids:
            return {}
        working, readings = working + 1, readings + 1
        most = max(most, working)
        time.sleep(0.05)
        working -= 1
        return {job_id: {"id": job_id} for job_id in job_ids}

    async def watched() -> list[list[dict[str, Any]]]:
        since = time.monotonic()
        return await asyncio.gather(*(states.follow(store, ["a", "b"], since) for _ in range(100)))

    monkeypatch.setattr(live, "_states", slow)
    states = LiveStates()

    async def twice() -> None:
        assert await watched() == [[{"id": "a"}, {"id": "b"}]] * 100
        assert (most, readings) == (1, 1)
        await watched()
        assert readings == 2, "a watcher must not hear of a time before it came"

    asyncio.run(twice())


def test_templates_are_compiled_before_the_first_page(api: httpx.Client) -> None:
    environment = frame._environment()
    assert environment.cache is not None
    known = {key[1] for key in environment.cache}
    assert known >= set(environment.list_templates())

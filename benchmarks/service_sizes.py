"""Lists and status at 1,000, 10,000 and 100,000 jobs on PostgreSQL, and the database's query plans.

Latency is that of one client with sequential HTTP requests, median and 95th percentile. The plans are those
of the store's actual statements, with the largest number of jobs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import event

from assay.service.api.views import job_view
from assay.service.store.ids import encode_cursor
from assay.service.store.store import Store, open_store
from assay.service.store.tenants import TenantStore, View
from benchmarks.service_rows import RARE_MODEL, add_jobs
from benchmarks.service_running import percentile, postgresql, service, table

SIZES = (1_000, 10_000, 100_000)
FILTERS: dict[str, dict[str, str]] = {
    "all": {},
    "state=succeeded": {"state": "succeeded"},
    "state=queued": {"state": "queued"},
    "state=failed": {"state": "failed"},
    "kind=train": {"kind": "train"},
    "model=vit": {"model": "vit"},
    "tag=nightly": {"tag": "nightly"},
    "tag=sweep-3": {"tag": "sweep-3"},
    "state=failed, kind=train": {"state": "failed", "kind": "train"},
    "state=canceled, model=rare": {"state": "canceled", "model": RARE_MODEL},
    "state=failed, tag=release": {"state": "failed", "tag": "release"},
}
JOBS_PATH = "/api/v1/jobs"
Statements = list[tuple[str, Any]]


def main(repeats: int) -> str:
    """Measures all sizes, one after another in the same database."""
    calls = 20 * repeats
    columns: dict[str, list[str]] = {}
    with postgresql() as url, open_store(url) as store, service(url) as running:
        ids: list[str] = []
        for size in SIZES:
            ids += add_jobs(store, size - len(ids), len(ids))
            with httpx.Client(base_url=running.url, headers=running.headers, timeout=120) as client:
                for name, latencies in _measured(client, ids, calls).items():
                    cell = f"{percentile(latencies, 50):.1f} / {percentile(latencies, 95):.1f}"
                    columns.setdefault(name, []).append(cell)
        plans = explained(store, ids)
    rows = [
        ["call", *(f"{size:,} jobs" for size in SIZES)],
        *([name, *cells] for name, cells in columns.items()),
    ]
    return f"{table(rows)}ms, median / 95th percentile of {calls} calls\n\n{plans}"


def _measured(client: httpx.Client, ids: list[str], calls: int) -> dict[str, list[float]]:
    draw = random.Random(0)
    queued = [job["id"] for job in client.get(JOBS_PATH, params={"state": "queued"}).json()["items"]]
    found = {
        "status": _times(client, calls, lambda: (f"{JOBS_PATH}/{draw.choice(ids)}", {})),
        "status, queued": _times(client, calls, lambda: (f"{JOBS_PATH}/{draw.choice(queued)}", {})),
        "list, deep page": _times(
            client, calls, lambda: (JOBS_PATH, {"cursor": encode_cursor(draw.choice(ids))})
        ),
    }
    for name, chosen in FILTERS.items():
        found[f"list, {name}"] = _times(client, calls, lambda chosen=chosen: (JOBS_PATH, chosen))  # type: ignore[misc]
    return found


def _times(
    client: httpx.Client, calls: int, request: Callable[[], tuple[str, dict[str, str]]]
) -> list[float]:
    times = []
    for number in range(calls + 3):
        path, params = request()
        begin = time.perf_counter()
        answer = client.get(path, params=params)
        took = (time.perf_counter() - begin) * 1e3
        answer.raise_for_status()
        if number >= 3:
            times.append(took)
    return times


def explained(store: Store, ids: list[str]) -> str:
    """EXPLAIN (ANALYZE, BUFFERS) of every statement behind a job's status and the lists."""
    queued = store.jobs.page(state="queued")[0][-1]
    everything = TenantStore(store, View(None, everything=True))
    middle = encode_cursor(ids[len(ids) // 2])
    wanted: dict[str, Callable[[], object]] = {
        "status": lambda: store.jobs.get(ids[7]),
        "status, queued: what surrounds it": lambda: job_view(everything, queued),
        "list, deep page": lambda: store.jobs.page(cursor=middle),
        "positions of a page of queued jobs": lambda: store.jobs.queue_positions(
            store.jobs.page(state="queued")[0]
        ),
        "claim": lambda: store.shards.claim("benchmark", ["cpu"], lease_seconds=60),
        "ready to finish": store.jobs.ready_to_finish,
        "timed out": store.jobs.time_out,
        "expired": store.shards.expire,
    }
    for name, chosen in FILTERS.items():
        wanted[f"list, {name}"] = lambda chosen=chosen: store.jobs.page(**chosen)  # type: ignore[misc]
    parts = []
    for name, call in wanted.items():
        with _statements(store) as statements:
            call()
        parts += [
            f"-- {name}\n{_plan(store, sql, values)}" for sql, values in statements if "SELECT" in sql[:8]
        ]
    return "\n\n".join(parts) + "\n"


@contextmanager
def _statements(store: Store) -> Iterator[Statements]:
    found: Statements = []

    def note(connection: Any, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
        found.append((sql, values))

    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def _plan(store: Store, sql: str, values: Any) -> str:
    with store._database.reading() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {sql}", values)
        return "\n".join(row[0] for row in rows)

"""Usage of 10,000 jobs: calls of `/api/v1/usage`; each job has three entries of the ledger and two tags."""

from __future__ import annotations

import time

import httpx
from sqlalchemy import insert, select

from assay.service.store.clock import now
from assay.service.store.store import Store, open_store
from assay.service.store.tenant_tables import usage
from benchmarks.service_rows import add_jobs
from benchmarks.service_running import percentile, postgresql, service, table

JOBS, CALLS, DAYS = 10_000, 20, 28
QUERIES = ("by=job", "by=tenant", "by=tag", "by=study", "by=job&format=csv")


def main(repeats: int) -> str:
    """Measures every kind of line, on PostgreSQL, by an administrator."""
    with postgresql() as url, open_store(url) as store:
        add_entries(store, add_jobs(store, JOBS))
        with service(url) as running, httpx.Client(base_url=running.url, headers=running.headers) as client:
            times = {query: calls(client, query, CALLS * repeats) for query in QUERIES}
    rows = [["query", "first", "median", "largest"]]
    for query, found in times.items():
        rows.append([query, *(f"{cell:.0f}" for cell in (found[0], percentile(found, 50), max(found)))])
    return f"{table(rows)}ms of {CALLS * repeats} calls; {JOBS} jobs, {3 * JOBS} entries of {DAYS} days\n"


def calls(client: httpx.Client, query: str, count: int) -> list[float]:
    """Milliseconds of calls in succession."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        client.get(f"/api/v1/usage?{query}", timeout=60).raise_for_status()
        found.append(1000 * (time.perf_counter() - begun))
    return found


def add_entries(store: Store, ids: list[str]) -> None:
    """Writes entries of two days on a GPU and of one on a CPU for each job, of ten tenants."""
    with store._database.writing() as connection:
        today = int(connection.execute(select(now())).scalar_one() // 86400)
        entries = [
            {
                "job_id": job_id,
                "pool": pool,
                "day": today - (number + later) % DAYS,
                "tenant": f"tenant{number % 10}",
                "kind": "evaluate",
                "study_id": None,
                "milliseconds": 1000 * (number % 977 + 20),
                "starts": 4000,
                "lost": number % 7 * 1000,
                "repeated": 0,
            }
            for number, job_id in enumerate(ids)
            for pool, later in (("cuda", 0), ("cuda", 1), ("cpu", 0))
        ]
        for start in range(0, len(entries), 5000):
            connection.execute(insert(usage), entries[start : start + 5000])

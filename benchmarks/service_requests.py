"""Latency at 100 requests a second: one in ten submits a job, the others read one.

Open loop: each request has a scheduled time, independent of earlier ones, and its latency counts from that
time. A stalling service thus pays for every request that had to wait.
"""

from __future__ import annotations

import http.client
import json
import queue
import random
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from assay.service.store.store import open_store
from benchmarks.service_rows import add_jobs
from benchmarks.service_running import Running, percentile, postgresql, service, table

RATE, SECONDS, THREADS, JOBS, WARM_UP = 100, 60, 16, 10_000, 300
SUBMISSION_P99, STATUS_P99 = 50.0, 20.0
SPEC: dict[str, Any] = {
    "kind": "evaluate", "name": "benchmark", "tags": ["load"],
    "model": {"name": "symvit", "params": {}}, "data": {"name": "digits"},
    "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}}],
}  # fmt: skip


class Load:
    """Sends requests on schedule from several threads, each with one connection."""

    def __init__(self, running: Running, job_ids: list[str]) -> None:
        self._address = urlsplit(running.url).netloc
        self._headers = running.headers
        self._job_ids = job_ids
        self._todo: queue.SimpleQueue[tuple[float, str | None] | None] = queue.SimpleQueue()
        self.latencies: dict[str, list[float]] = {"submission": [], "status": []}
        self.refused: list[int] = []

    def run(self, requests: int) -> float:
        """Sends the given number of requests, and returns the answers per second."""
        draw = random.Random(0)
        start = time.perf_counter() + 0.2
        for number in range(requests):
            job_id = None if number % 10 == 0 else draw.choice(self._job_ids)
            self._todo.put((start + number / RATE, job_id))
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in threads:
            self._todo.put(None)
            thread.start()
        for thread in threads:
            thread.join()
        return requests / (time.perf_counter() - start)

    def _work(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        body, kind = json.dumps(SPEC).encode(), {"Content-Type": "application/json", **self._headers}
        while (item := self._todo.get()) is not None:
            moment, job_id = item
            time.sleep(max(0.0, moment - time.perf_counter()))
            if job_id is None:
                connection.request("POST", "/api/v1/jobs", body, kind)
            else:
                connection.request("GET", f"/api/v1/jobs/{job_id}", headers=self._headers)
            answer = connection.getresponse()
            answer.read()
            took = (time.perf_counter() - moment) * 1e3
            if answer.status not in (200, 201):
                self.refused.append(answer.status)
            self.latencies["submission" if job_id is None else "status"].append(took)
        connection.close()


def main(repeats: int) -> str:
    """Measures on PostgreSQL with 10,000 jobs in it, and returns the table."""
    rows = [["run", "requests/s", "submission p50", "p99", "status p50", "p99", "refused", "service CPU"]]
    with postgresql() as url:
        with open_store(url) as store:
            job_ids = add_jobs(store, JOBS)
        with service(url) as running:
            Load(running, job_ids).run(WARM_UP)
            for number in range(repeats):
                load, before = Load(running, job_ids), running.cpu_seconds()
                rate = load.run(RATE * SECONDS)
                used = (running.cpu_seconds() - before) / (RATE * SECONDS) * 1e3
                cells = [
                    f"{percentile(load.latencies[name], p):.1f}" for name in load.latencies for p in (50, 99)
                ]
                refused = str(len(load.refused))
                rows.append([str(number + 1), f"{rate:.0f}", *cells, refused, f"{used:.1f}"])
    goals = f"goals: submission p99 < {SUBMISSION_P99:g}, status p99 < {STATUS_P99:g}"
    note = f"ms from the moment at which a request was due; {SECONDS} s a run, {JOBS:,} jobs; CPU per request"
    return f"{table(rows)}{note}; {goals}\n"

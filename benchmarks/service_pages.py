"""Pages of the dashboard with 10,000 jobs in the database and 100 watchers of live states.

Time is that of one client with sequential requests, so an upper bound of the server's time. Bytes are those
sent: compressed, with style, scripts and icon at the first page, and without them afterwards. A comparison is
left out: its time is that of its tests, and its page waits three seconds for them at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from assay.service.store.store import Store, open_store
from benchmarks.service_rows import add_jobs, state_of
from benchmarks.service_running import Running, percentile, postgresql, service, table

JOBS, WATCHERS, MEASURED = 10_000, 100, 60
RADII = ("1/255", "2/255", "4/255", "8/255")
CALLS = 10
HTML = {"Accept": "text/html", "Accept-Encoding": "gzip"}


def main(repeats: int) -> str:
    """Measures every page, on PostgreSQL."""
    with postgresql() as url, open_store(url) as store:
        ids = add_jobs(store, JOBS)
        ended = [job_id for n, job_id in enumerate(ids) if state_of(n) == "succeeded" and n % 5][-MEASURED:]
        for job_id in ended:
            add_results(store, job_id)
        watched = [job_id for n, job_id in enumerate(ids) if state_of(n) in ("running", "queued")][-20:]
        with service(url, MAX_STREAMS_PER_TENANT="200") as running:
            alone = measured(running, ended, repeats)
            with watchers(running, watched):
                beside = measured(running, ended, repeats)
    rows = [["page", "first", "median", "largest", "beside watchers", "largest", "kB first", "kB later"]]
    for path, (times, first, later) in alone.items():
        others = beside[path][0]
        cells = (times[0], percentile(times[1:], 50), max(times[1:]), percentile(others, 50), max(others))
        rows.append([path, *(f"{cell:.0f}" for cell in cells), f"{first / 1e3:.1f}", f"{later / 1e3:.1f}"])
    return (
        f"{table(rows)}ms of {CALLS * repeats} calls; {JOBS} jobs, {MEASURED} of them with results,"
        f" {WATCHERS} watchers\n"
    )


def measured(running: Running, ended: Sequence[str], repeats: int) -> dict[str, tuple[list[float], int, int]]:
    """Milliseconds of each call, bytes of the first page and of later ones, by page."""
    pages = {
        "/": "/",
        "/jobs": "/jobs",
        "/jobs?search=": "/jobs?search=no+such+name",
        "/jobs/{id}": f"/jobs/{ended[-1]}",
        "/compare (picker)": "/compare",
        "/leaderboard": "/leaderboard",
        "/studies": "/studies",
        "/submit": "/submit",
        "/submit?from=": f"/submit?from={ended[-1]}",
        "/catalog": "/catalog",
        "/catalog/attack/pgd": "/catalog/attack/pgd",
        "/workers": "/workers",
    }
    found = {}
    with httpx.Client(base_url=running.url, headers={**running.headers, **HTML}, timeout=120) as client:
        for name, path in pages.items():
            times = []
            for _ in range(CALLS * repeats):
                begun = time.perf_counter()
                answer = client.get(path)
                times.append(1e3 * (time.perf_counter() - begun))
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
            page = answer.num_bytes_downloaded
            files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', answer.text))
            sent = sum(client.get(file).num_bytes_downloaded for file in files)
            found[name] = (times, page + sent, page)
    return found


@contextlib.contextmanager
def watchers(running: Running, jobs: Sequence[str]) -> Iterator[None]:
    """Clients that follow the live states of the jobs, on an event loop of their own."""
    loop, opened = asyncio.new_event_loop(), threading.Barrier(2)
    path = f"{running.url}/live?jobs={','.join(jobs)}"

    async def watch(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> None:
        async with client.stream("GET", path) as answer:
            assert answer.status_code == 200, answer.status_code
            begun.release()
            async for _ in answer.aiter_lines():
                pass

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=WATCHERS + 1)
        begun = asyncio.Semaphore(0)
        async with httpx.AsyncClient(headers=running.headers, timeout=None, limits=limits) as client:  # noqa: S113
            streams = [asyncio.create_task(watch(client, begun)) for _ in range(WATCHERS)]
            for _ in streams:
                await begun.acquire()
            await asyncio.to_thread(opened.wait)
            await asyncio.gather(*streams, return_exceptions=True)

    task: list[asyncio.Task[None]] = []

    def run() -> None:
        asyncio.set_event_loop(loop)
        task.append(loop.create_task(all_of_them()))
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task[0])

    thread = threading.Thread(target=run)
    thread.start()
    opened.wait(timeout=120)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(30)


def add_results(store: Store, job_id: str) -> None:
    """Results of twelve evaluations, as of a finished job."""
    items = [("clean", {}), *((name, {"epsilon": radius}) for name in ("fgsm", "pgd") for radius in RADII)]
    items += [("uniform_noise", {"epsilon": radius}) for radius in RADII[:3]]
    for index, (name, params) in enumerate(items):
        store.results.save(job_id, index, _result(name, params, 0.9 - 0.06 * index))


def _result(name: str, params: dict[str, Any], value: float) -> dict[str, Any]:
    metric = {
        "value": value, "n": 300, "ci_low": value - 0.03, "ci_high": value + 0.03, "ci_method": "wilson",
        "higher_is_better": True, "unit": "proportion",
    }  # fmt: skip
    return {
        "name": name, "params": params, "data": {"name": "digits", "params": {}}, "protocol": "pixel",
        "backend": "native", "metrics": {"top1": metric, "attack_success_rate": metric}, "seconds": 12.0,
        "forward_passes": 6000, "backward_passes": 6000,
        "warnings": [{"code": "subset", "message": "300 of 355 examples", "evidence": {}}],
    }  # fmt: skip

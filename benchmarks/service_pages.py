"""Pages of the dashboard with 10,000 jobs, 1,000 workers and 100 watchers of live states.

Time is that of one client with sequential requests, so an upper bound of the server's time; CPU is the
service's, over all threads, in steps of 10 ms, and hardly depends on other load. Bytes are those sent:
compressed, with style, scripts and icon at the first page, and without them afterwards. The first call of a
comparison includes its tests; the outcomes of single examples, for paired tests, are left out.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import itertools
import json
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
from PIL import Image
from sqlalchemy import delete, insert, update

from assay.service.contract.fleet.worker_records import Gauges
from assay.service.contract.records import OutcomeExtra
from assay.service.store.columns import pack
from assay.service.store.ids import new_id
from assay.service.store.store import Store, open_store
from assay.service.store.tables import jobs, outcomes, results, shards
from benchmarks.service_rows import PLAN, PROVENANCE, add_jobs, state_of
from benchmarks.service_running import Running, percentile, postgresql, service, table
from benchmarks.service_usage import add_entries

JOBS, WATCHERS, MEASURED, LARGE, WORKERS = 10_000, 100, 60, 500, 1000
ARMS, SEEDS = 20, 25  # of the large study
EXAMPLES, SHARD = 50_000, 500  # of an evaluation whose examples are shown, and of a shard of it
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
        large = next(job_id for n, job_id in enumerate(ids) if state_of(n) == "succeeded" and n % 5)
        add_results(store, large, LARGE)
        add_entries(store, ids)
        with (
            tempfile.TemporaryDirectory(prefix="assay-benchmark-") as folder,
            service(url, MAX_STREAMS_PER_TENANT="200", STATE=folder) as running,
        ):
            add_gallery(store, ended[-1], Path(folder) / "artifacts")
            add_outcomes(store, ended[-3])
            others = {
                f"/jobs/{{id}}, {LARGE} evaluations": f"/jobs/{large}",
                "/jobs/{id}/gallery/1": f"/jobs/{ended[-1]}/gallery/1",
                f"/jobs/{{id}}/examples/1, {len(RADII)} x {EXAMPLES}": f"/jobs/{ended[-3]}/examples/1",
                "/compare?jobs=, two jobs": f"/compare?jobs={ended[-1]},{ended[-2]}",
                "/studies/{id}": f"/studies/{add_study(store, running)}",
                f"/studies/{{id}}, {ARMS} x {SEEDS}": f"/studies/{add_study(store, running, ARMS, SEEDS)}",
                "/api/v1/report?jobs=, one job": f"/api/v1/report?jobs={ended[-1]}&format=html",
                f"/api/v1/report?jobs=, {LARGE} evaluations": f"/api/v1/report?jobs={large}&format=html",
            }
            alone = measured(store, running, ended, repeats, others)
            with watchers(running, watched):
                beside = measured(store, running, ended, repeats, others)
    names = ("page", "first", "median", "largest", "CPU first", "CPU mean", "beside watchers", "largest")
    rows = [[*names, "kB first", "kB later"]]
    for path, (times, cpu, first, later) in alone.items():
        busy = beside[path][0]
        cells = (times[0], percentile(times[1:], 50), max(times[1:]), *cpu, percentile(busy, 50), max(busy))
        rows.append([path, *(f"{cell:.0f}" for cell in cells), f"{first / 1e3:.1f}", f"{later / 1e3:.1f}"])
    return (
        f"{table(rows)}ms of {CALLS * repeats} calls; {JOBS} jobs, {MEASURED} of them with results,"
        f" {WATCHERS} watchers\n"
    )


def measured(
    store: Store, running: Running, ended: Sequence[str], repeats: int, others: Mapping[str, str]
) -> dict[str, tuple[list[float], tuple[float, float], int, int]]:
    """Milliseconds of each call, CPU of the first and a later one, bytes of the first and a later one."""
    pages = {
        f"/workers, {WORKERS}": "/workers",  # The first: a heartbeat counts for a minute.
        "/": "/",
        "/jobs": "/jobs",
        "/jobs?search=": "/jobs?search=no+such+name",
        "/jobs?sort=": "/jobs?sort=-worst",
        "/jobs?metrics=": "/jobs?metrics=clean%3A+top1&metrics=fgsm+epsilon%3D1%2F255%3A+top1",
        "/jobs?group=": "/jobs?group=tag&sort=-worst",
        "/jobs/{id}": f"/jobs/{ended[-1]}",
        "/compare (picker)": "/compare",
        "/leaderboard": "/leaderboard",
        "/studies": "/studies",
        "/submit": "/submit",
        "/submit?from=": f"/submit?from={ended[-1]}",
        "/catalog": "/catalog",
        "/catalog/attack/pgd": "/catalog/attack/pgd",
        "/warnings": "/warnings",
        "/usage": "/usage",
        "/usage?by=tag": "/usage?by=tag",
        **others,
    }
    found = {}
    add_workers(store)
    with httpx.Client(base_url=running.url, headers={**running.headers, **HTML}, timeout=120) as client:
        for name, path in pages.items():
            times: list[float] = []
            cpu = [1e3 * running.cpu_seconds()]
            for _ in range(CALLS * repeats):
                begun = time.perf_counter()
                answer = client.get(path)
                times.append(1e3 * (time.perf_counter() - begun))
                cpu.append(1e3 * running.cpu_seconds())
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
            page = answer.num_bytes_downloaded
            files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', answer.text))
            sent = sum(client.get(file).num_bytes_downloaded for file in files)
            later = (cpu[-1] - cpu[1]) / (len(cpu) - 2)
            found[name] = (times, (cpu[1] - cpu[0], later), page + sent, page)
    return found


@contextlib.contextmanager
def watchers(running: Running, watched: Sequence[str]) -> Iterator[None]:
    """Clients that follow the live states of the jobs, on an event loop of their own."""
    loop, opened = asyncio.new_event_loop(), threading.Barrier(2)
    path = f"{running.url}/live?jobs={','.join(watched)}"

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


def add_results(store: Store, job_id: str, count: int = 12) -> None:
    """Results of evaluations, as of a finished job."""
    items: list[tuple[str, dict[str, Any]]] = [("clean", {})]
    items += [(name, {"epsilon": radius}) for name in ("fgsm", "pgd") for radius in RADII]
    items += [("uniform_noise", {"epsilon": radius}) for radius in RADII[:3]]
    items += [("pgd", {"epsilon": f"{n}/1000", "steps": 10}) for n in range(1, count + 1 - len(items))]
    for index, (name, params) in enumerate(items[:count]):
        store.results.save(job_id, index, _result(name, params, max(0.0, 0.9 - 0.06 * index)))


def add_gallery(store: Store, job_id: str, folder: Path) -> None:
    """A gallery of eight images."""
    picture = io.BytesIO()
    Image.effect_noise((32, 32), 60).save(picture, "PNG")
    shot = base64.b64encode(picture.getvalue()).decode()
    answer = {"prediction": 1, "confidence": 0.9}
    item = {
        "kind": "image", "succeeded": True, "label": 1, "before": answer,
        "after": {**answer, "prediction": 2},
        "width": 32, "height": 32, "factor": 63.75, "linf": 0.0078, "l2": 0.1,
        "clean": shot, "changed": shot, "difference": shot,
    }  # fmt: skip
    gallery = {
        "kind": "image", "evaluation": "fgsm", "params": {"epsilon": RADII[0]}, "protocol": "pixel",
        "classes": [], "items": [{**item, "id": f"x{n}", "rank": n} for n in range(8)],
    }  # fmt: skip
    content = json.dumps(gallery).encode()
    path = folder / job_id / "gallery-001-fgsm.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    store.artifacts.add(job_id, path.name, str(path), len(content), digest, "application/json")


def add_outcomes(store: Store, job_id: str) -> None:
    """Outcomes of FGSM's examples at all radii; the first view of their page reads the outcomes of each."""
    draw, rows, made = random.Random(0), [], []
    for evaluation, number in itertools.product(range(1, len(RADII) + 1), range(EXAMPLES // SHARD)):
        start = number * SHARD
        places = range(start, start + SHARD)
        columns: dict[str, list[Any]] = {
            "id": [
                f"val/n{place // 50:08d}/ILSVRC2012_val_{place:08d}.JPEG"
                for place in range(start, start + SHARD)
            ],
            "label": [place // 50 for place in places],
            "prediction": [draw.randrange(1000) for _ in range(SHARD)],
            "clean_correct": [draw.random() < 0.8 for _ in range(SHARD)],
            "correct": [draw.random() < 0.5 / evaluation for _ in range(SHARD)],
            **{name: [draw.random() for _ in range(SHARD)] for name in ("margin", "loss", "linf", "l2")},
            **{name: [20] * SHARD for name in ("forward", "backward", "queries")},
        }
        shard = {
            "id": new_id(time.time()), "job_id": job_id, "kind": "evaluate", "evaluation": evaluation,
            "number": number, "start": start, "stop": start + SHARD, "device": "cpu", "precedence": 0,
            "state": "done", "fence": 1, "failures": 0, "losses": 0, "done": SHARD, "cost": 1.0,
        }  # fmt: skip
        rows.append(shard)
        made.append({
            "shard_id": shard["id"], "job_id": job_id, "fence": 1, "n": SHARD,
            "payload": pack(columns, cast("OutcomeExtra", {})), "seconds": 1.0, "forward_passes": SHARD,
            "backward_passes": SHARD, "created_at": time.time(),
        })  # fmt: skip
    with store._database.writing() as connection:
        connection.execute(delete(shards).where(shards.c.job_id == job_id))
        connection.execute(insert(shards), rows)
        connection.execute(insert(outcomes), made)


def add_workers(store: Store) -> None:
    """Workers with a heartbeat, a GPU each."""
    memory = {"gpu": {"used": 20 * 2**30, "total": 80 * 2**30}}
    for number in range(WORKERS):
        store.workers.beat(
            f"w{number}",
            f"node{number // 8}",
            ["cuda", "cpu"],
            number,
            cast("Gauges", memory),
            name=f"node{number // 8}/{number % 8}",
        )


def add_study(store: Store, running: Running, arms: int = 2, seeds: int = 5) -> str:
    """A finished study of twelve evaluations."""
    evaluations: list[dict[str, Any]] = [{"name": "clean", "params": {}}]
    evaluations += [{"name": "pgd", "params": {"epsilon": f"{n}/255"}} for n in range(1, 12)]
    models = ("symvit", "vit")
    body = {
        "kind": "study", "name": "a study", "data": {"name": "digits"}, "seeds": seeds, "baseline": "arm 0",
        "arms": [{"name": f"arm {n}", "model": {"name": models[n % 2]}} for n in range(arms)],
        "recipe": {"name": "small_vit", "params": {"epochs": 2}}, "evaluations": evaluations,
    }  # fmt: skip
    answer = httpx.post(f"{running.url}/api/v1/studies", json=body, headers=running.headers, timeout=300)
    assert answer.status_code == 201, answer.text[:1000]
    study = answer.json()
    runs = [run for arm in study["runs"] for run in arm["runs"]]
    ended = [run["train"] for run in runs] + [run["evaluate"] for run in runs]
    done = {"state": "succeeded", "provenance": PROVENANCE, "started_at": time.time(), "plan": PLAN}
    with store._database.writing() as connection:
        statement = update(jobs).where(jobs.c.id.in_(ended)).values(**done, finished_at=time.time())
        connection.execute(statement)
    rows = [
        {
            "job_id": run["evaluate"], "evaluation": index, "created_at": time.time(),
            "result": _result(
                part["name"], part["params"], 0.9 - 0.06 * index + 0.003 * (number * 7 % 5)
            ),
        }
        for number, run in enumerate(runs)
        for index, part in enumerate(evaluations)
    ]  # fmt: skip
    with store._database.writing() as connection:
        connection.execute(insert(results), rows)
    return str(study["id"])


def _result(name: str, params: dict[str, Any], value: float) -> dict[str, Any]:
    metric = {
        "value": value, "n": 300, "ci_low": value - 0.03, "ci_high": value + 0.03, "ci_method": "wilson",
        "higher_is_better": True, "unit": "proportion",
    }  # fmt: skip
    return {
        "name": name, "params": params, "data": {"name": "digits", "params": {}}, "protocol": "pixel",
        "backend": "native", "metrics": {"top1": metric, "attack_success_rate": metric}, "seconds": 12.0,
        "forward_passes": 6000, "backward_passes": 6000, "arithmetic": None, "breakdown": [], "reference": [],
        "warnings": [{"code": "subset", "message": "300 of 355 examples", "evidence": {}}],
    }  # fmt: skip

"""Simulated workers at one service process: CPU and statements of a call, times of claims, idle cost.

    python -m benchmarks.gateway --workers 1 10 100 1000
    python -m benchmarks.gateway --workers 1000 --database postgresql+psycopg://user@host/empty_database
    python -m benchmarks.gateway --workers 100 --saturate

Each worker has shards of two minutes, and calls as a node does: claim, report, renew with progress, finish,
count.
Workers are spread over the length of a shard; fewer than a hundred have shorter shards, so that as many calls
come as from a hundred. With `--saturate` all workers call at once, as fast as they are answered: that gives
calls a second, and no time that a fleet would see. Then all wait for a shard. The service asks for keys; its
CPU is read in /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import event

from assay.service.app import create_app
from assay.service.client.transport import authorization
from assay.service.settings import Settings
from assay.service.store.store import Store, open_store
from assay.workers.identity import code, identity
from tests.support.jobs import planned
from tests.support.servers import free_port

SHARD_SECONDS, RENEW_SECONDS = 120.0, 20.0
LIKE_WORKERS = 100  # Fewer workers call as often as so many
SATURATING = 400  # Shards
WAIT_SECONDS = 45.0
KEPT_SECONDS = 3.0  # A node opens another connection after such a pause
TICKS = os.sysconf("SC_CLK_TCK")
ME = {"identity": identity()["digest"], "device_classes": ["cpu"]}
PROVENANCE = {"code": {**code(), "commit": None}, "packages": {}, "device": {"type": "cpu"}}
NO_LANES = "e3b0c44298fc1c14"  # Their version
PATH = "/api/v1/worker"
HEAD = "| workers | CPU of a call, ms | claim p50, ms | p99, ms | calls/s | asked again | idle, % of a core |"


class Connection:
    """HTTP of one worker at a time, with little of the machine: the service is measured beside it."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key, self._used_at = port, authorization(key)["Authorization"], 0.0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, call: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of an answer. Raises OSError, IncompleteReadError: the connection was cut."""
        if time.monotonic() - self._used_at > KEPT_SECONDS:
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        raw = json.dumps(body).encode()
        lines = (
            f"POST {PATH}/{call} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: {self._key}",
        )
        more = ("Content-Type: application/json", f"Content-Length: {len(raw)}", "", "")
        writer.write("\r\n".join((*lines, *more)).encode() + raw)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            answer = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        self._used_at = time.monotonic()
        return int(head[9:12]), json.loads(answer)

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


class Fleet:
    """Workers of one key, and the times of their claims in seconds."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._free: list[Connection] = []
        self.claims: list[float] = []
        self.calls = self.again = 0
        self.ends = asyncio.Event()  # Shards are finished at once, and no other is claimed

    async def ask(self, call: str, **body: Any) -> Any:
        """A call and its answer; asked again as a node does, where the service has no room or cuts it off."""
        while True:
            connection = self._free.pop() if self._free else Connection(self._port, self._key)
            try:
                status, answer = await connection.post(call, body)
            except (OSError, asyncio.IncompleteReadError):
                self.again += 1
                continue
            finally:
                self._free.append(connection)
            self.calls += 1
            if status == 200:
                return answer
            if status != 429:
                raise RuntimeError(f"{call}: {status}, {answer}")
            self.again += 1
            await asyncio.sleep(2.0)

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._free:
            connection.close()

    def beat(self, number: int) -> dict[str, Any]:
        """A worker's sign of life."""
        facts = {"worker": f"w{number}", "host": "host", "pid": 1, "gauges": {"code": code()}, "devices": 1}
        return {**ME, **facts, "name": f"host:{number}"}

    async def claim(self, number: int, wait_seconds: float) -> Any:
        """A claim, or None."""
        asked = {"worker": f"w{number}", "lease_seconds": 90.0, "without": [], "warm_job": None}
        more = {"warm_shards": 0, "devices": 1, "lanes": [], "seen": NO_LANES, "wait_seconds": wait_seconds}
        told = {**ME, "name": f"host:{number}", "beat": self.beat(number)}
        return (await self.ask("claim", **told, **asked, **more))["claim"]

    async def rest(self, until: float) -> None:
        """Sleeps until a time, or until the fleet ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ends.wait(), max(0.0, until - time.monotonic()))

    async def run(self, number: int, held: Any, seconds: float, speed: float) -> None:
        """Runs a claimed shard: its first report, its renewals with progress, its outcome, its counts."""
        token, begun, size = {"token": held["token"]}, time.monotonic(), held["stop"] - held["start"]
        said: dict[str, Any] = {"done": 0, "total": None, "message": "clean", "speed": {}}
        await self.ask("progress", **token, **said)
        for at in steps(RENEW_SECONDS / speed, seconds):
            await self.rest(begun + at)
            if self.ends.is_set():
                break
            told = {"progress": {**said, "done": int(size * at / seconds)}, "beat": self.beat(number)}
            await self.ask("renew", **token, lease_seconds=90.0, **told)
        await self.rest(begun + seconds)
        row = {"n": size, "seconds": 1.0, "forward_passes": size, "backward_passes": 0}
        columns = {"id": [f"{held['number']}-{i}" for i in range(size)], "loss": [0.1] * size}
        extra = {"attack": False, "evidence": {}, "provenance": PROVENANCE}
        await self.ask("finish", **token, **row, columns=columns, extra=extra)
        counted = {"name": "assay_examples_total", "labels": {"device": "cpu"}, "amount": size}
        await self.ask("counters", counters=[counted])

    async def work(self, number: int, first: float, speed: float, wait_seconds: float = 0.0) -> None:
        """Claims and runs shards until the fleet ends or none is left; the first has another length."""
        seconds = first
        await self.rest(time.monotonic() + wait_seconds)
        while not self.ends.is_set():
            begun = time.perf_counter()
            held = await self.claim(number, 0.0)
            if held is None:
                return
            self.claims.append(time.perf_counter() - begun)
            await self.run(number, held, seconds, speed)
            seconds = SHARD_SECONDS / speed

    async def idle(self, number: int, workers: int, until: float) -> None:
        """Waits for shards until a time; workers ask at equal distances."""
        await asyncio.sleep(WAIT_SECONDS * number / workers)
        while time.monotonic() < until:
            await self.claim(number, min(WAIT_SECONDS, max(1.0, until - time.monotonic())))


def steps(each: float, seconds: float) -> list[float]:
    """The times of calls that come at equal distances, before the end."""
    return [
        each * (number + 1)
        for number in range(int(seconds / each) if each else 0)
        if each * (number + 1) < seconds
    ]


def cpu(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of the values is, in ms."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def measure(fleet: Fleet, workers: int, pid: int, seconds: float, *, saturate: bool) -> str:
    """A row of the table, but for the idle fleet."""
    speed = max(1.0, LIKE_WORKERS / workers)
    if saturate:
        before, begun = cpu(pid), time.monotonic()
        await asyncio.gather(*(fleet.work(n, 0.0, float("inf")) for n in range(workers)))
    else:
        length = SHARD_SECONDS / speed
        # In the first length of a shard the workers come, one after another.
        works = [
            asyncio.create_task(fleet.work(n, length, speed, length * n / workers)) for n in range(workers)
        ]
        await asyncio.sleep(length)
        fleet.claims, fleet.calls, fleet.again = [], 0, 0
        before, begun = cpu(pid), time.monotonic()
        await asyncio.sleep(seconds)
    spent, calls, took = cpu(pid) - before, fleet.calls, time.monotonic() - begun
    claims, again = [*fleet.claims], fleet.again
    if not saturate:
        fleet.ends.set()
        await asyncio.gather(*works)
    times = f"{quantile(claims, 0.5):.0f} | {quantile(claims, 0.99):.0f}"
    busy = f"{1000 * spent / max(calls, 1):.2f} | {times} | {calls / took:.0f} | {again}"
    return f"| {workers:,} | {busy} |"


async def idle_share(fleet: Fleet, workers: int, pid: int) -> float:
    """Percent of a core that waiting workers cost, once each has asked."""
    until = time.monotonic() + 1.6 * WAIT_SECONDS
    waits = asyncio.gather(*(fleet.idle(n, workers, until) for n in range(workers)))
    await asyncio.sleep(WAIT_SECONDS)
    before = cpu(pid)
    await asyncio.sleep(WAIT_SECONDS / 2)
    found = 100 * (cpu(pid) - before) / (WAIT_SECONDS / 2)
    await waits
    return found


def no_work(store: Store) -> None:
    """Cancels what is left, so that workers wait."""
    for job in store.jobs.page()[0]:
        if job.state in ("queued", "starting", "running"):
            store.jobs.cancel(job.id)


async def statements(store: Store, state: Path, key: str) -> str:
    """Statements of the database by call, with their BEGIN and COMMIT."""
    counts, calls, now = Counter[str](), Counter[str](), ""
    fleet = Fleet(0, key)
    transport = httpx.ASGITransport(create_app(Settings(state=state, require_keys=True), store))
    http = httpx.AsyncClient(
        base_url=f"http://127.0.0.1{PATH}", headers=authorization(key), transport=transport
    )

    def count(*_: Any) -> None:
        counts[now] += 1

    async def ask(call: str, **body: Any) -> Any:
        nonlocal now
        now, calls[call] = call, calls[call] + 1
        return (await http.post(f"/{call}", json=body)).raise_for_status().json()

    engine = store._database.engine
    for name in ("begin", "before_cursor_execute", "commit"):
        event.listen(engine, name, count)
    fleet.ask = ask  # type: ignore[method-assign]
    try:
        for turn in range(6):
            if turn == 1:  # The first turn asks for the key, and begins the job
                counts.clear()
                calls.clear()
            held = await fleet.claim(0, 0.0)
            await fleet.run(0, held, 0.02, SHARD_SECONDS / 0.02)
    finally:
        for name in ("begin", "before_cursor_execute", "commit"):
            event.remove(engine, name, count)
        await http.aclose()
    return ", ".join(f"{call} {counts[call] / calls[call]:.1f}" for call in calls)


def run(workers: int, database: str, seconds: float, *, saturate: bool) -> str:
    """Starts a service, and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        port, state = free_port(), Path(folder)
        url = database or f"sqlite:///{state / 'assay.sqlite'}"
        with open_store(url) as store:
            key = store.keys.create("fleet", ["worker"], tenant="fleet")[1]
            no_work(store)
            shards = (
                SATURATING if saturate else int(max(workers, LIKE_WORKERS) * (2 + seconds / SHARD_SECONDS))
            )
            planned(store, shards + 20)
            told = asyncio.run(statements(store, state, key))
            own = {"STATE": folder, "PORT": str(port), "WORKERS": "0", "REQUIRE_KEYS": "yes"}
            own |= {"LOG_LEVEL": "WARNING", "DATABASE_URL": database}
            own |= {"MAX_CONNECTIONS": "4000", "MAX_CONNECTIONS_PER_ADDRESS": "4000"}
            kept = {name: text for name, text in os.environ.items() if not name.startswith("ASSAY_")}
            environment = kept | {f"ASSAY_{name}": text for name, text in own.items() if text}
            command = [sys.executable, "-m", "assay.workers.embedded"]
            service = subprocess.Popen(command, env=environment)  # noqa: S603 (our own program)
            try:
                address = f"http://127.0.0.1:{port}"
                for _ in range(600):
                    try:
                        httpx.get(f"{address}/healthz", trust_env=False)
                        break
                    except httpx.TransportError:
                        time.sleep(0.1)

                async def measured() -> str:
                    fleet = Fleet(port, key)
                    try:
                        row = await measure(fleet, workers, service.pid, seconds, saturate=saturate)
                        no_work(store)
                        return f"{row} {await idle_share(fleet, workers, service.pid):.1f} |"
                    finally:
                        fleet.close()

                return f"{asyncio.run(measured())}\n(statements: {told}; load {os.getloadavg()[0]:.0f})"
            finally:
                no_work(store)
                service.terminate()
                service.wait(60)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--database", default="", help="URL of an empty PostgreSQL database; empty: SQLite")
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring")
    parser.add_argument("--saturate", action="store_true", help="all workers call as fast as they can")
    given = parser.parse_args()
    print(HEAD)  # noqa: T201
    for workers in given.workers:
        print(run(workers, given.database, given.seconds, saturate=given.saturate), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""A fleet of simulated workers at one service process: CPU of a call, times of claims, cost of an idle fleet.

    python -m benchmarks.gateway --workers 1 10 100

Each worker claims, renews and finishes shards of ten examples until none is left; then all wait for a shard.
The service has SQLite and asks for keys. Its CPU is read in /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from assay.service.client.transport import authorization
from assay.service.store.store import open_store
from assay.workers.identity import code, identity
from tests.support.jobs import planned
from tests.support.servers import free_port

SHARDS = 400
WAIT_SECONDS = 45.0
TICKS = os.sysconf("SC_CLK_TCK")
ME = {"identity": identity()["digest"], "device_classes": ["cpu"]}
PROVENANCE = {"code": {**code(), "commit": None}, "packages": {}, "device": {"type": "cpu"}}


class Fleet:
    """Workers of one key, and the times of their calls in seconds."""

    def __init__(self, url: str, key: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=3)
        self.http = httpx.AsyncClient(
            base_url=f"{url}/api/v1/worker", headers=authorization(key), timeout=120, limits=limits
        )
        self.claims: list[float] = []
        self.calls = 0

    async def ask(self, call: str, **body: Any) -> Any:
        """A call and its answer."""
        answer = await self.http.post(f"/{call}", json=body)
        answer.raise_for_status()
        self.calls += 1
        return answer.json()

    async def claim(self, number: int, wait_seconds: float) -> Any:
        """A claim, or None."""
        name = f"host:{number}"
        beat = {"worker": f"w{number}", "host": "host", "pid": 1, "gauges": {"code": code()}, "devices": 1}
        asked = {"worker": f"w{number}", "lease_seconds": 90.0, "without": [], "warm_job": None}
        more = {"warm_shards": 0, "devices": 1, "lanes": [], "seen": EMPTY, "wait_seconds": wait_seconds}
        told = {**ME, "name": name, "beat": {**ME, **beat, "name": name}}
        return (await self.ask("claim", **told, **asked, **more))["claim"]

    async def work(self, number: int) -> None:
        """Claims and finishes until there is no shard."""
        while True:
            begun = time.perf_counter()
            held = await self.claim(number, 0.0)
            if held is None:
                return
            self.claims.append(time.perf_counter() - begun)
            await self.ask("renew", token=held["token"], lease_seconds=90.0)
            count = held["stop"] - held["start"]
            row = {"n": count, "seconds": 1.0, "forward_passes": count, "backward_passes": 0}
            columns = {"id": [f"{held['number']}-{i}" for i in range(count)], "loss": [0.1] * count}
            extra = {"attack": False, "evidence": {}, "provenance": PROVENANCE}
            await self.ask("finish", token=held["token"], **row, columns=columns, extra=extra)

    async def idle(self, number: int, workers: int, until: float) -> None:
        """Waits for shards until a time; workers ask at equal distances."""
        await asyncio.sleep(WAIT_SECONDS * number / workers)
        while time.monotonic() < until:
            await self.claim(number, min(WAIT_SECONDS, max(1.0, until - time.monotonic())))


EMPTY = "e3b0c44298fc1c14"  # The version of no lanes


def cpu(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of the values is, in ms."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def measure(fleet: Fleet, workers: int, pid: int) -> str:
    """A row of the table."""
    before, begun = cpu(pid), time.monotonic()
    await asyncio.gather(*(fleet.work(number) for number in range(workers)))
    each, seconds = (cpu(pid) - before) / fleet.calls, time.monotonic() - begun
    busy = f"{1000 * each:.2f} | {quantile(fleet.claims, 0.5):.0f} | {quantile(fleet.claims, 0.99):.0f}"
    rate = f"{fleet.calls / seconds:.0f}"
    warm = asyncio.gather(
        *(fleet.idle(n, workers, begun + seconds + 2 * WAIT_SECONDS) for n in range(workers))
    )
    await asyncio.sleep(WAIT_SECONDS)
    before = cpu(pid)
    await asyncio.sleep(WAIT_SECONDS / 2)
    share = 100 * (cpu(pid) - before) / (WAIT_SECONDS / 2)
    await warm
    return f"| {workers:,} | {busy} | {rate} | {share:.1f} |"


def run(workers: int) -> str:
    """Starts a service, and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        port, state = free_port(), Path(folder)
        with open_store(f"sqlite:///{state / 'assay.sqlite'}") as store:
            key = store.keys.create("fleet", ["worker"], tenant="fleet")[1]
            planned(store, SHARDS)
        own = {
            "STATE": folder,
            "PORT": str(port),
            "WORKERS": "0",
            "REQUIRE_KEYS": "yes",
            "LOG_LEVEL": "WARNING",
        }
        own |= {"MAX_CONNECTIONS": "4000", "MAX_CONNECTIONS_PER_ADDRESS": "4000"}
        kept = {name: text for name, text in os.environ.items() if not name.startswith("ASSAY_")}
        environment = kept | {f"ASSAY_{name}": text for name, text in own.items()}
        command = [sys.executable, "-m", "assay.workers.embedded"]
        service = subprocess.Popen(command, env=environment)  # noqa: S603 (our own program)
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    httpx.get(f"{url}/healthz", trust_env=False)
                    break
                except httpx.TransportError:
                    time.sleep(0.1)

            async def measured() -> str:
                fleet = Fleet(url, key)
                try:
                    return await measure(fleet, workers, service.pid)
                finally:
                    await fleet.http.aclose()

            return asyncio.run(measured())
        finally:
            service.terminate()
            service.wait(60)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    print("| workers | CPU of a call, ms | claim p50, ms | p99, ms | calls/s | idle, % of a core |")  # noqa: T201
    for workers in parser.parse_args().workers:
        print(run(workers), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""A large fleet on PostgreSQL: 1,000 workers that are simulated, a queue of 2,000,000 shards.

Every simulated worker holds a shard; one after another it finishes it, as a supervisor does, and claims
the next. Then come polls, renewals, heartbeats, sweeps of a reaper and scrapes of a monitor, each by itself.
Two numbers for each: milliseconds a call of one client, and milliseconds of processor time that the database
server spends on it. The rows are written directly, not through the store. Evaluations are not run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import insert, text

from assay.service.contract.records import Columns
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.ids import new_id
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store, open_store
from assay.service.store.tables import jobs
from benchmarks.service_rows import PLAN, job_of, spec_of
from benchmarks.service_running import postgresql, table

JOBS, SHARDS, WORKERS, TENANTS = 1_000, 2_000, 1_000, 10
# Requirements that a worker meets; no shard waits with them, so that each costs a claim its look alone.
MET = [Lane("cpu", "", f"requirements {number}") for number in range(12)]
EXAMPLES = 64
CALLS = 300
SCRAPES = 5
FILL = text("""
    INSERT INTO shards (id, job_id, kind, evaluation, number, start, stop, device, precedence, state, fence,
        failures, losses, done, total, cost, tenant)
    SELECT :job || '-0-' || n, :job, 'evaluate', 0, n, n * 64, (n + 1) * 64, 'cpu', -5, 'queued', 0,
        0, 0, 0, 64, 60.0, :tenant FROM generate_series(0, :shards - 1) AS n
""")


def main(repeats: int) -> str:
    """Fills a database, and measures each kind of call."""
    with postgresql() as url, open_store(url) as store:
        _fill(store)
        held = [_claim(store, f"worker-{number}") for number in range(WORKERS)]
        names = [claim.worker for claim in held]
        server = _Server(url)
        draw = random.Random(0)
        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "finish and claim": (CALLS * repeats, lambda: _turn(store, held, draw.randrange(WORKERS))),
            "claim": (CALLS * repeats, lambda: _claim_and_give_back(store)),
            f"claim, {len(MET)} more lanes": (CALLS * repeats, lambda: _claim_among_lanes(store)),
            "idle poll": (CALLS * repeats, lambda: _poll(store)),
            "renew": (CALLS * repeats, lambda: store.shards.renew(draw.choice(held), 900)),
            "heartbeat": (
                CALLS * repeats,
                lambda: store.workers.beat(draw.choice(names), "host", ["cpu"], 1),
            ),
            "expire": (SCRAPES * repeats, store.shards.expire),
            "ready to finish": (SCRAPES * repeats, store.jobs.ready_to_finish),
            "metrics": (SCRAPES * repeats, store.overview),
        }
        rows = [["call", "ms", "server ms", "calls a second of one server core"]]
        for name, (count, call) in calls.items():
            call()
            begin, used = time.perf_counter(), server.cpu_seconds()
            for _ in range(count):
                call()
            spent = (server.cpu_seconds() - used) / count
            took = (time.perf_counter() - begin) / count
            most = f"{1 / spent:,.0f}" if spent else "-"
            rows.append([name, f"{took * 1e3:.2f}", f"{spent * 1e3:.2f}", most])
    return (
        f"{table(rows)}{WORKERS:,} running and {JOBS * SHARDS:,} shards of {JOBS:,} jobs, {TENANTS} tenants\n"
    )


class _Server:
    """Processor time of a PostgreSQL server and its processes, those that have ended too."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            found = connection.execute(
                "SELECT setting FROM pg_settings WHERE name = 'data_directory'"
            ).fetchone()
            assert found is not None
            self._pid = int(Path(found[0], "postmaster.pid").read_text().split()[0])

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        ticks = sum(self._ticks(process, 11, 13) for process in self._children())
        return (ticks + self._ticks(self._pid, 11, 15)) / os.sysconf("SC_CLK_TCK")

    def _ticks(self, process: int, first: int, last: int) -> int:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, and its parent has its time
            return 0
        return sum(map(int, fields[first:last]))

    def _children(self) -> list[int]:
        return [int(one) for one in Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()]


def _fill(store: Store) -> None:
    spec, at = spec_of(), time.time() - 86400
    ids = [new_id(at + number) for number in range(JOBS)]
    rows = [job_of(job_id, at + number, spec) for number, job_id in enumerate(ids)]
    for number, row in enumerate(rows):
        row |= {"tenant": _tenant(number), "state": "running", "plan": PLAN}
    with store._database.writing() as connection:
        connection.execute(insert(jobs), rows)
        for number, job_id in enumerate(ids):
            connection.execute(FILL, {"job": job_id, "tenant": _tenant(number), "shards": SHARDS})
    with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _tenant(number: int) -> str:
    return f"tenant-{number % TENANTS}"


def _claim(store: Store, worker: str) -> Claim:
    found = store.shards.claim(worker, ["cpu"], lease_seconds=900, lanes=())
    assert found is not None
    return found


def _poll(store: Store) -> None:
    """What a worker without work does: it reads the lanes too."""
    lanes = [one.lane for one in store.lanes.all()]
    assert store.shards.claim("idle", ["cuda"], lease_seconds=900, lanes=lanes) is None


def _claim_and_give_back(store: Store) -> None:
    store.shards.release(_claim(store, "other"))


def _claim_among_lanes(store: Store) -> None:
    """Claims as a worker that meets requirements which other shards wait with."""
    store.lanes.all()
    found = store.shards.claim("other", ["cpu"], lease_seconds=900, lanes=MET)
    assert found is not None
    store.shards.release(found)


def _turn(store: Store, held: list[Claim], worker: int) -> None:
    """A worker finishes its shard and claims the next one."""
    extra: Any = {}
    columns: Columns = {
        "id": [f"{position:05d}" for position in range(EXAMPLES)],
        "correct": [True] * EXAMPLES,
    }
    claim = held[worker]
    row = OutcomeRow(claim.evaluation, claim.number, EXAMPLES, columns, 1.0, 1, 1, extra)
    assert store.shards.finish(claim, row) is not None
    held[worker] = _claim(store, claim.worker)

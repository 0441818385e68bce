"""Workers of a simulated machine: real claims on a real store, with time that passes without waiting.

A shard's seconds pass by setting back when the running ones were claimed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import shards
from assay.service.store.transactions.submit import add_job
from tests.support.jobs import evaluate_spec, outcome, plan, train_spec


@dataclass(frozen=True)
class Run:
    """One shard that ran."""

    tenant: str
    job: str
    kind: str
    begin: float
    end: float


class Simulation:
    """Some workers on one store.

    Args:
        store: with the jobs.
        workers: how many.
        seconds: how long a claimed shard takes.
        cut: the plan of a job, by its tenant.
        classes: the workers' device classes.
        limits: defaults of all tenants.
    """

    def __init__(
        self,
        store: Store,
        workers: int,
        seconds: Callable[[str, Claim], float],
        *,
        cut: Callable[[str], dict[str, Any]] = lambda tenant: plan(1),
        classes: tuple[str, ...] = ("cpu",),
        limits: Limits = UNLIMITED,
    ) -> None:
        self.store = store
        self.now = 0.0
        self.runs: list[Run] = []
        self._seconds = seconds
        self._cut = cut
        self._classes = classes
        self._limits = limits
        self._idle = list(range(workers))
        self._busy: list[tuple[float, int, float, str, Claim]] = []
        self._warm: dict[int, tuple[str, int]] = {}

    def claim_all(self) -> None:
        """Lets every idle worker claim."""
        for worker in list(self._idle):
            job, streak = self._warm.get(worker, (None, 0))
            found = self.store.shards.claim(
                f"worker-{worker}",
                self._classes,
                lease_seconds=1e6,
                warm_job=job,
                warm_shards=streak,
                limits=self._limits,
            )
            if found is None:
                break
            self._warm[worker] = (found.job_id, streak + 1 if found.job_id == job else 1)
            self._idle.remove(worker)
            tenant = self.store.jobs.get(found.job_id).tenant or ""
            end = self.now + self._seconds(tenant, found)
            heapq.heappush(self._busy, (end, worker, self.now, tenant, found))

    def step(self) -> bool:
        """Claims, and goes on to the end of the next shard; False when nothing runs."""
        self.claim_all()
        if not self._busy:
            return False
        end, worker, begin, tenant, held = heapq.heappop(self._busy)
        self.wait(end - self.now)
        if held.kind == "plan":
            assert self.store.shards.finish_plan(held, self._cut(tenant))
        else:
            assert self.store.shards.finish(held, outcome(held)) is not None
        self.runs.append(Run(tenant, held.job_id, held.kind, begin, end))
        self._idle.append(worker)
        return True

    def wait(self, seconds: float) -> None:
        """Lets time pass; the lease of what runs is long enough."""
        running = update(shards).where(shards.c.state == "running")
        with self.store._database.writing() as connection:
            connection.execute(running.values(claimed_at=shards.c.claimed_at - seconds))
        self.now += seconds

    def run(self, until: float) -> None:
        """Goes on until a moment, or until nothing is left."""
        while self.now < until and self.step():
            pass

    def got(self, begin: float, end: float) -> dict[str, float]:
        """Seconds of each tenant between two moments, shards that still run included."""
        runs = [(one.tenant, one.begin, one.end) for one in self.runs]
        runs += [(tenant, start, stop) for stop, _, start, tenant, _ in self._busy]
        found: dict[str, float] = defaultdict(float)
        for tenant, start, stop in runs:
            found[tenant] += max(0.0, min(stop, end) - max(start, begin))
        return found


def submit_many(
    store: Store, tenant: str | None, count: int, kind: str = "train", **changes: Any
) -> list[str]:
    """Adds many jobs of a tenant, in one transaction."""
    spec: Any = (train_spec if kind == "train" else evaluate_spec)(**changes)
    with store._database.writing() as connection:
        return [add_job(connection, spec, "sha", None, tenant) for _ in range(count)]

"""Counters and gauges of a supervisor between two heartbeats.

Counters go to the database as sums to be added, unwritten sums the next time.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Literal, Protocol

from assay.service.contract.fleet.worker_records import Gauges, GpuMemory
from assay.service.store.fleet.workers import SHARD_BOUNDS, CounterKey
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.submission.requirements import MIN_MEMORY

SHARD_SECONDS = "assay_shard_seconds"
ERROR_TYPE = re.compile(r"[a-z][a-z_]{0,39}")
# Most and fewest reports (two a second) behind a proposal of workers for a GPU.
REPORTS, LEAST_REPORTS = 1200, 120
BUSY_GOAL, MOST_WORKERS = 0.9, 16


class Sums(Protocol):
    """Where counters are kept."""

    def add(self, amounts: Mapping[CounterKey, float], /) -> None:
        """Adds to them."""
        ...


class WorkerCounters:
    """Sums since they were last written, and the present gauges; thread-safe."""

    def __init__(self, workers_per_gpu: int = 1) -> None:
        self._workers_per_gpu = workers_per_gpu  # 0: none is proposed
        self._on_gpu: deque[tuple[float, int]] = deque(maxlen=REPORTS)
        self._lock = threading.Lock()
        self._sums: defaultdict[CounterKey, float] = defaultdict(float)
        self._gauges: Gauges = {}

    @property
    def gauges(self) -> Gauges:
        """The latest measurements."""
        with self._lock:
            return self._gauges.copy()

    def gauge(self, name: Literal["gpu"], value: GpuMemory | None) -> None:
        """Sets a gauge; None removes it."""
        with self._lock:
            self._gauges.pop(name, None)
            if value is not None:
                self._gauges[name] = value
                if "busy" in value:
                    self._on_gpu.append((value["busy"], value["reserved"]))
                    said = proposal(self._on_gpu, value["total"], self._workers_per_gpu)
                    self._gauges["proposal"] = said

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        with self._lock:
            self._sums[name, tuple(sorted(labels.items()))] += amount

    def shard(self, claim: Claim, seconds: float) -> None:
        """Counts the time that a worker had a shard, with any outcome."""
        device, kind = device_of(claim), claim.kind
        bound = next((str(bound) for bound in SHARD_BOUNDS if seconds <= bound), "+Inf")
        self.count(f"{SHARD_SECONDS}_sum", seconds, device=device, kind=kind)
        # Not cumulative: the exporter adds the buckets up.
        self.count(f"{SHARD_SECONDS}_bucket", le=bound, device=device, kind=kind)

    def outcome(self, claim: Claim, row: OutcomeRow) -> None:
        """Counts a shard's measurements, once recorded."""
        device = device_of(claim)
        if claim.kind == "evaluate":
            self.count("assay_examples_total", row.n, device=device)
        self.count("assay_forward_passes_total", row.forward_passes, device=device)
        self.count("assay_backward_passes_total", row.backward_passes, device=device)

    def failure(self, claim: Claim, error_type: str) -> None:
        """Counts a shard that failed."""
        error = error_type if ERROR_TYPE.fullmatch(error_type) else "other"
        self.count("assay_shard_failures_total", kind=claim.kind, error=error)

    def write(self, counters: Sums) -> None:
        """Adds the sums to the database's. Raises OperationalError: it is away; sums are kept."""
        with self._lock:
            sums, self._sums = self._sums, defaultdict(float)
        try:
            counters.add(sums)
        except BaseException:
            with self._lock:
                for key, value in sums.items():
                    self._sums[key] += value
            raise


def proposal(reports: Collection[tuple[float, int]], part: int, workers: int) -> str:
    """How many workers would keep a GPU busy; present workers have equal parts of its memory, in bytes.

    Reports: busy shares of the GPU, and this worker's bytes. Empty: the number is right, or the memory too
    small.
    """
    if len(reports) < LEAST_REPORTS:
        return ""
    busy, held = fmean(share for share, _ in reports), max(held for _, held in reports)
    by_time, by_memory = BUSY_GOAL / max(busy, 0.01), part / max(held, MIN_MEMORY)
    count = min(int(workers * by_time), int(workers * by_memory), MOST_WORKERS)
    if count <= workers:
        return ""
    return (
        f"its GPU was busy {busy:.0%} of the time in {len(reports):,} reports of evaluators, and this worker"
        f" held at most {held:,} bytes: ASSAY_WORKERS_PER_GPU={count} may use it better than {workers}"
    )


def device_of(claim: Claim) -> str:
    """A shard's device class: by its job's plan, else its spec."""
    return claim.spec["execution"]["device"] if claim.plan is None else claim.plan["device"]

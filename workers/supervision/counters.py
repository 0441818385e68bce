"""Counters and gauges of a supervisor between two heartbeats.

Counters go to the database as sums to be added; sums that could not be written are added the next time. A
killed worker loses at most ten seconds of counts: these are for monitoring, results are elsewhere.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from typing import Literal

from assay.service.contract.worker_records import Gauges, GpuMemory
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.workers import SHARD_BOUNDS, CounterKey, Counters

SHARD_SECONDS = "assay_shard_seconds"
ERROR_TYPE = re.compile(r"[a-z][a-z_]{0,39}")


class WorkerCounters:
    """Sums since they were last written, and the present gauges; thread-safe."""

    def __init__(self) -> None:
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

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        with self._lock:
            self._sums[name, tuple(sorted(labels.items()))] += amount

    def shard(self, claim: Claim, seconds: float) -> None:
        """Counts the time that a worker had a shard, with any outcome."""
        device, kind = device_of(claim), claim.kind
        bound = next((str(bound) for bound in SHARD_BOUNDS if seconds <= bound), "+Inf")
        self.count(f"{SHARD_SECONDS}_sum", seconds, device=device, kind=kind)
        # Not cumulative here: the exporter of the histogram adds the buckets up.
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

    def write(self, counters: Counters) -> None:
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


def device_of(claim: Claim) -> str:
    """The device class of a shard: by its job's plan, else by its spec."""
    return claim.spec["execution"]["device"] if claim.plan is None else claim.plan["device"]

"""What supervision asks of the service's books, and their absence; `DirectLedger` and `GatewayLedger` answer.

Every call is one transaction. Errors are the contract's; one of `LEDGER_AWAY` means that the books cannot be
reached, and that the outcome of the call is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet.worker_records import Gauges, Requirements
from assay.service.contract.records import PlanWithShards, TrainingSpeed
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.files.file_store import StoreAway
from assay.service.store.fleet.cordons import Cordon
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.rows import Claim, Finished, OutcomeRow


class GatewayAway(Exception):
    """The gateway does not answer, or not as a gateway."""


class KeyRefused(GatewayAway):
    """The gateway refuses the worker's key, which may be exchanged while the worker runs."""


DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, NoFreeConnection)
LEDGER_AWAY = (*DATABASE_UNAVAILABLE, GatewayAway, StoreAway)


def absence(error: Exception) -> str:
    """What is away, by an error of `LEDGER_AWAY`, in words."""
    if isinstance(error, KeyRefused):
        return f"the gateway refuses the key (ASSAY_WORKER_KEY, ASSAY_WORKER_KEY_FILE): {error}"
    if isinstance(error, GatewayAway):
        return f"the gateway is away: {error}"
    return f"the {'store of files' if isinstance(error, StoreAway) else 'database'} is away: {error}"


@dataclass(frozen=True)
class Heartbeat:
    """A worker's sign of life, as `store.fleet.workers.Workers.beat` keeps it."""

    worker: str
    host: str
    device_classes: tuple[str, ...]
    pid: int
    gauges: Gauges
    devices: int
    name: str
    identity: str


@dataclass(frozen=True)
class Asked:
    """A worker's question for a shard, as `store.shards.Shards.claim` takes it."""

    worker: str
    device_classes: tuple[str, ...]
    lease_seconds: float
    identity: str
    without: tuple[str, ...]
    warm_job: str | None
    warm_shards: int
    devices: int
    lanes: tuple[Lane, ...]
    seconds: float | None = None
    unknown_seconds: float = 0.0


class WorkLedger(Protocol):
    """The books of jobs, shards and workers, as far as a supervisor may read and write them."""

    # Whether a call is a round trip over a network, and a claim waits there for a shard.
    remote: bool

    def beat(self, beat: Heartbeat) -> None:
        """Records a sign of life."""
        ...

    def gone(self, worker: str) -> None:
        """Strikes a stopped worker off."""
        ...

    def cordon(self, name: str) -> Cordon | None:
        """The cordon of the worker with this name; None in service."""
        ...

    def admits(self, digest: str) -> bool:
        """Whether workers of an identity may take work."""
        ...

    def lanes(self) -> Sequence[OpenLane]:
        """The lanes with unfinished shards."""
        ...

    def published(self) -> str:
        """The version of the store of data; empty without a store."""
        ...

    def unmet(self, device: str, requirements: str) -> bool:
        """Whether every online worker of a device class lacks it."""
        ...

    def online(self, device: str, *, devices: int, besides: str) -> int:
        """Number of other workers that serve a device class with so many devices."""
        ...

    def being_planned(self, device_classes: Sequence[str]) -> bool:
        """Whether shards of a job that is being planned could come."""
        ...

    def add(self, amounts: Mapping[CounterKey, float]) -> None:
        """Adds to the service's counters."""
        ...

    def expire_own(self, worker: str) -> None:
        """Takes back what a claim without an answer may have given to the asking worker."""
        ...

    def claim(self, asked: Asked, *, changing: bool = False) -> Claim | None:
        """The best shard; None without a claimable shard. `changing`: other lanes may be met soon."""
        ...

    def renew(self, claim: Claim, lease_seconds: float) -> Literal["run", "cancel", "lost"]:
        """Extends the lease, and says how to go on."""
        ...

    def progress(
        self, claim: Claim, done: int, total: int | None, message: str | None, speed: TrainingSpeed
    ) -> None:
        """Reports examples or steps done."""
        ...

    def checkpoint(self, claim: Claim, step: int) -> None:
        """Records a saved training step."""
        ...

    def limit(self, claim: Claim, seconds: float) -> None:
        """Gives the job a deadline in so many seconds."""
        ...

    def finish(self, claim: Claim, outcome: OutcomeRow) -> Finished | None:
        """Records an outcome; None where the fence refuses it."""
        ...

    def adrift(self, claim: Claim) -> bool:
        """Whether a claim has run out, and `finish` still accepts its outcome."""
        ...

    def finish_plan(
        self, claim: Claim, plan: PlanWithShards, requirements: Sequence[Requirements], repeat: float
    ) -> bool:
        """Writes the planned shards, a share `repeat` of them to be computed again."""
        ...

    def checked(self, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
        """Ends the check of an upload."""
        ...

    def canceled(self, claim: Claim) -> None:
        """Records that the shard was stopped as told."""
        ...

    def release(self, claim: Claim, message: str = "") -> None:
        """Queues the shard again, uncounted."""
        ...

    def device_fault(self, claim: Claim, message: str) -> None:
        """Queues the shard again, its fault counted against the worker's device."""
        ...

    def fail(
        self, claim: Claim, error_type: str, message: str, *, retry: bool, fingerprint: str | None
    ) -> JobState:
        """Counts a failure, and returns the job's state. Raises NotFound: the job was deleted."""
        ...

    def log(self, claim: Claim, message: str) -> None:
        """Shows the job's user a message."""
        ...

    def is_stopped(self, job_id: str) -> bool:
        """Whether a job that the worker has served is canceled, out of time or deleted."""
        ...

    def spec_of(self, claim: Claim, job_id: str) -> Spec:
        """The spec of a job that the claim's job depends on. Raises NotFound."""
        ...

    def needed_checkpoints(self, claim: Claim) -> Mapping[str, CheckpointRow]:
        """The uploaded checkpoints that the claim's job loads, by name."""
        ...

    def artifact_names(self, claim: Claim) -> set[str]:
        """Names of the listed files of the claim's job."""
        ...

    def complete(self, claim: Claim, finished: Finished) -> None:
        """Merges what a finished shard has completed, where that is the worker's part."""
        ...

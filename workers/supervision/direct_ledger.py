"""The ledger of a worker that reaches the database itself, and so merges what its shards complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from assay.service.contract.errors import NotFound
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import PlanWithShards, TrainingSpeed
from assay.service.contract.states import STOPPED, JobState
from assay.service.contract.stored_specs import Spec
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.fleet.cordons import Cordon
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.claim_files import SharedFiles, StoredFiles
from assay.workers.supervision.completion import merge_and_finish
from assay.workers.supervision.ledger import Asked, Heartbeat


class DirectLedger:
    """A `WorkLedger` over the store."""

    remote = False

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self._store, self._settings = store, settings
        self.files: StoredFiles | SharedFiles = (
            StoredFiles(store, settings) if settings.files else SharedFiles(settings)
        )

    def beat(self, beat: Heartbeat) -> None:
        """As `WorkLedger`."""
        self._store.workers.beat(*vars(beat).values())

    def gone(self, worker: str) -> None:
        """As `WorkLedger`."""
        self._store.workers.gone(worker)

    def cordon(self, name: str) -> Cordon | None:
        """As `WorkLedger`."""
        return self._store.cordons.of(name)

    def admits(self, digest: str) -> bool:
        """As `WorkLedger`."""
        return self._store.identities.admits(digest)

    def lanes(self) -> Sequence[OpenLane]:
        """As `WorkLedger`."""
        return self._store.lanes.all()

    def published(self) -> str:
        """As `WorkLedger`."""
        return self._settings.published_version

    def unmet(self, device: str, requirements: str) -> bool:
        """As `WorkLedger`."""
        return self._store.lanes.unmet(device, requirements)

    def online(self, device: str, *, devices: int, besides: str) -> int:
        """As `WorkLedger`."""
        return self._store.workers.online(device, devices=devices, besides=besides)

    def being_planned(self, device_classes: Sequence[str]) -> bool:
        """As `WorkLedger`."""
        return self._store.shards.being_planned(device_classes)

    def add(self, amounts: Mapping[CounterKey, float]) -> None:
        """As `WorkLedger`."""
        self._store.counters.add(amounts)

    def expire_own(self, worker: str) -> None:
        """As `WorkLedger`."""
        self._store.shards.expire(dead_owners=[worker], leases=False)

    def claim(self, asked: Asked, *, changing: bool = False) -> Claim | None:
        """As `WorkLedger`."""
        return self._store.shards.claim(**vars(asked), limits=self._settings.limits)

    def renew(self, claim: Claim, lease_seconds: float) -> Literal["run", "cancel", "lost"]:
        """As `WorkLedger`."""
        return self._store.shards.renew(claim, lease_seconds)

    def progress(
        self, claim: Claim, done: int, total: int | None, message: str | None, speed: TrainingSpeed
    ) -> None:
        """As `WorkLedger`."""
        self._store.shards.progress(claim, done, total, message, speed)

    def checkpoint(self, claim: Claim, step: int) -> None:
        """As `WorkLedger`."""
        self._store.shards.checkpoint(claim, step)

    def limit(self, claim: Claim, seconds: float) -> None:
        """As `WorkLedger`."""
        self._store.shards.limit(claim, seconds)

    def finish(self, claim: Claim, outcome: OutcomeRow) -> Finished | None:
        """As `WorkLedger`, after its files. Raises StoreAway."""
        self.files.send(claim, outcome.extra)
        finished = self._store.shards.finish(claim, outcome)
        self.files.forget(claim, outcome.extra)
        return finished

    def adrift(self, claim: Claim) -> bool:
        """As `WorkLedger`."""
        return self._store.shards.adrift(claim.shard_id, claim.fence)

    def finish_plan(
        self, claim: Claim, plan: PlanWithShards, requirements: Sequence[Requirements], repeat: float
    ) -> bool:
        """As `WorkLedger`."""
        return self._store.shards.finish_plan(claim, plan, requirements, repeat=repeat)

    def checked(self, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
        """As `WorkLedger`."""
        return self._store.checkpoints.checked(claim, verdict, error)

    def canceled(self, claim: Claim) -> None:
        """As `WorkLedger`."""
        self._store.shards.canceled(claim)

    def release(self, claim: Claim, message: str = "") -> None:
        """As `WorkLedger`."""
        self._store.shards.release(claim, message)

    def device_fault(self, claim: Claim, message: str) -> None:
        """As `WorkLedger`."""
        self._store.shards.device_fault(claim, message)

    def fail(
        self, claim: Claim, error_type: str, message: str, *, retry: bool, fingerprint: str | None
    ) -> JobState:
        """As `WorkLedger`."""
        fail = self._store.shards.fail
        return fail(claim, error_type, message, retry=retry, fingerprint=fingerprint).state

    def log(self, claim: Claim, message: str) -> None:
        """As `WorkLedger`."""
        self._store.jobs.log(claim.job_id, message)

    def is_stopped(self, job_id: str) -> bool:
        """As `WorkLedger`."""
        try:
            return self._store.jobs.get(job_id).state in STOPPED
        except NotFound:
            return True

    def spec_of(self, claim: Claim, job_id: str) -> Spec:
        """As `WorkLedger`."""
        return self._store.jobs.get(job_id).spec

    def needed_checkpoints(self, claim: Claim) -> Mapping[str, CheckpointRow]:
        """As `WorkLedger`."""
        return self._store.checkpoints.needed_by(claim.job_id)

    def artifact_names(self, claim: Claim) -> set[str]:
        """As `WorkLedger`."""
        return {row.name for row in self._store.artifacts.of(claim.job_id)}

    def complete(self, claim: Claim, finished: Finished) -> None:
        """As `WorkLedger`."""
        merge_and_finish(self._store, self._settings, claim, finished)

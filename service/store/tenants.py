"""The store as one caller of the service sees it.

Routes get this, never the store itself. It has only methods filtered by tenant: no route can forget the
filter. Another tenant's job is answered as an unknown job. A job's tenant never changes and ids are never
reused, so checking before acting leaves no race.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar, Unpack

from assay.service import features
from assay.service.contract.errors import NotFound
from assay.service.contract.events import EventType
from assay.service.contract.limits import UNLIMITED, Limits, QuotaStatus
from assay.service.contract.records import Columns, ResultJson
from assay.service.contract.stored_specs import EvaluationItem, ModelReference, Spec
from assay.service.contract.verbs import Verb
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.audit import Actor
from assay.service.store.checkpoints import NewCheckpoint
from assay.service.store.columns import SeenCells
from assay.service.store.fleet.quotas import Quota
from assay.service.store.fleet.workers import Workers
from assay.service.store.job_lists import JobListing, JobPage
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import ArtifactRow, EventRow, JobRow, OutcomeRow, ProgressSnapshot, SourceRow
from assay.service.store.store import Store
from assay.service.store.transactions.dependencies import missing_dependency
from assay.service.submission.dependencies import Dependency, dependencies_of

CachedValue = TypeVar("CachedValue")
FeatureStore = TypeVar("FeatureStore", bound="TenantPart")


@dataclass(frozen=True)
class View:
    """What a caller sees."""

    tenant: str | None  # owner of new jobs; None where the service asks for no keys
    everything: bool  # it sees the jobs of all tenants, and jobs without tenant

    @property
    def filter(self) -> str | None:
        """The tenant to read; None for all. Raises ValueError: an empty view, which would read all."""
        if self.everything:
            return None
        if not self.tenant:
            raise ValueError("a caller who does not see everything needs a tenant")
        return self.tenant


class TenantStore:
    """The part of the store that routes may use, limited to what the caller sees."""

    def __init__(self, store: Store, view: View, limits: Limits = UNLIMITED, by: Actor | None = None) -> None:
        self.jobs = TenantJobs(store, view, limits, by)
        self.results = TenantResults(store, view, limits, by)
        self.features = TenantFeatures(store, view, limits, by)
        self.events = TenantEvents(store, view, limits, by)
        self.artifacts = TenantArtifacts(store, view, limits, by)
        self.checkpoints = TenantCheckpoints(store, view, limits, by)
        self.quota = TenantQuota(store, view, limits, by)
        self.workers: Workers = store.workers  # Counts of workers belong to no tenant


class TenantPart:
    """Base of the parts, and of the stores of features: the caller's view, and the default limits."""

    def __init__(self, store: Store, view: View, limits: Limits = UNLIMITED, by: Actor | None = None) -> None:
        self._store = store
        self._database = store.part(lambda database: database)
        self._limits = limits
        self._by = by
        self._tenant = view.tenant
        self._owner = view.tenant or ""  # as rows have it
        self._filter = view.filter

    def _check(self, job_id: str) -> None:
        """Raises NotFound for a job that the caller does not see."""
        if self._filter is not None and not self._store.jobs.belongs(job_id, self._filter):
            raise unknown_job(job_id)

    def _check_sources(self, required: Sequence[Dependency]) -> None:
        """Raises InvalidSpec for weights of an unseen job; checkpoints are found by name in the tenant."""
        trained = {dependency.job for dependency in required if dependency.checkpoint is None}
        unseen = {job_id for job_id in trained if not self._sees(job_id)}
        if unseen:
            raise missing_dependency(
                [(dependency, "there is no such job") for dependency in required if dependency.job in unseen]
            )

    def _sees(self, job_id: str) -> bool:
        try:
            self._check(job_id)
        except NotFound:
            return False
        return True


class TenantJobs(TenantPart):
    """The caller's jobs, with the methods of `Jobs`."""

    def add(self, spec: Spec, *, body_sha256: str, idempotency_key: str | None = None) -> tuple[JobRow, bool]:
        """Adds the caller's job; weights may come from jobs that the caller sees."""
        self._check_sources(dependencies_of(spec))
        return self._store.jobs.add(
            spec,
            body_sha256=body_sha256,
            idempotency_key=idempotency_key,
            tenant=self._tenant,
            limits=self._limits,
            by=self._by,
        )

    def known(self, idempotency_key: str, body_sha256: str) -> JobRow | None:
        """The tenant's earlier job with this key."""
        return self._store.jobs.known(idempotency_key, body_sha256, tenant=self._tenant)

    def get(self, job_id: str) -> JobRow:
        """Reads a job; checks of checkpoints are hidden."""
        row = self._store.jobs.get(job_id, tenant=self._filter)
        if row.kind == "check":
            raise unknown_job(job_id)
        return row

    def source(self, job_id: str) -> SourceRow:
        """Reads a job as a source of weights."""
        source = self._store.jobs.source(job_id, tenant=self._filter)
        if source.kind == "check":
            raise unknown_job(job_id)
        return source

    def page(self, **asked: Unpack[JobListing]) -> tuple[list[JobRow], str | None]:
        """The jobs and the cursor of `listed`."""
        return self.listed(**asked)[:2]

    def listed(self, **asked: Unpack[JobListing]) -> JobPage:
        """Lists jobs, newest first or by a value, and in groups."""
        asked["tenant"] = self._filter
        return self._store.jobs.listed(**asked)

    def counts(self) -> dict[str, int]:
        """Number of jobs by state."""
        return self._store.job_counts(self._filter)

    def act(self, verb: Verb, job_id: str) -> JobRow | None:
        """Does what a verb says; the job afterwards, None if it is deleted."""
        self._check(job_id)
        limits = {"limits": self._limits} if verb.limited else {}
        row: JobRow | None = getattr(self._store.jobs, verb.name)(job_id, by=self._by, **limits)
        return row

    def tag(self, job_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> JobRow:
        """Takes tags from a job, then gives it others."""
        self._check(job_id)
        return self._store.jobs.tag(job_id, add, remove, by=self._by)

    def progress_snapshot(self, job_id: str) -> ProgressSnapshot | None:
        """A job's last written progress; None for a deleted job."""
        self._check(job_id)
        return self._store.shards.progress_snapshot(job_id)

    def queue_positions(self, rows: Sequence[JobRow]) -> dict[str, int]:
        """Places in the queues of their tenants."""
        return self._store.jobs.queue_positions(rows)


class TenantResults(TenantPart):
    """Results of the caller's jobs."""

    def of(self, job_id: str) -> dict[int, ResultJson]:
        """The merged results of a job by evaluation."""
        self._check(job_id)
        return self._store.results.of(job_id)

    def of_jobs(
        self, job_ids: Collection[str], read: Callable[[ResultJson], CachedValue]
    ) -> dict[str, dict[int, CachedValue]]:
        """As `ResultRows.of_jobs`, of the caller's jobs."""
        return self._store.results.of_jobs(job_ids, read, self._filter)

    def design(self, job_id: str) -> dict[str, str] | None:
        """As `ResultRows.design`."""
        self._check(job_id)
        return self._store.results.design(job_id)

    def chosen(self, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], ResultJson]:
        """The merged results of the caller's jobs by job and evaluation."""
        return self._store.results.chosen(wanted, self._filter)

    def cached(self, job_id: str, key: Hashable, make: Callable[[], tuple[int, CachedValue]]) -> CachedValue:
        """As `ResultRows.cached`."""
        self._check(job_id)
        return self._store.results.cached(job_id, key, make)

    def outcomes(self, job_id: str, evaluation: int | None) -> list[OutcomeRow]:
        """The outcomes of an evaluation, or of all (None)."""
        self._check(job_id)
        return self._store.results.outcomes(job_id, evaluation)

    def outcomes_of_jobs(self, job_ids: Collection[str], evaluation: int) -> dict[str, list[OutcomeRow]]:
        """The outcomes of an evaluation of the caller's jobs, by job."""
        return self._store.results.outcomes_of_jobs(job_ids, evaluation, self._filter)

    def columns(
        self,
        job_id: str,
        evaluation: int,
        names: Collection[str] | None = None,
        seen: Sequence[SeenCells] = (),
    ) -> list[Columns]:
        """As `ResultRows.columns`."""
        self._check(job_id)
        return self._store.results.columns(job_id, evaluation, names, seen)

    def example(self, job_id: str, place: int, first: int = 0) -> dict[int, Columns]:
        """As `ResultRows.example`."""
        self._check(job_id)
        return self._store.results.example(job_id, place, first)

    def seconds_per_pass(self, model: ModelReference, device: str) -> tuple[float, int] | None:
        """Seconds per example of a forward pass, and passes measured, from the caller's finished jobs."""
        return self._store.results.seconds_per_pass(model, device, self._filter)

    def measured_work(self, model: ModelReference, device: str) -> list[tuple[EvaluationItem, float, int]]:
        """As `ResultRows.measured_work`, of the caller's jobs."""
        return self._store.results.measured_work(model, device, self._filter)


class TenantEvents(TenantPart):
    """Events of the caller's jobs."""

    def newest(self, job_id: str) -> EventRow:
        """The last event of a job."""
        self._check(job_id)
        return self._store.events.newest(job_id)

    def of(
        self, job_id: str, *, after: int = 0, until: int | None = None, limit: int = 500
    ) -> list[EventRow]:
        """The events of a job after a number."""
        self._check(job_id)
        return self._store.events.of(job_id, after=after, until=until, limit=limit)

    def latest(self, job_id: str, types: Collection[EventType], limit: int) -> list[EventRow]:
        """The last events of a job of these types."""
        self._check(job_id)
        return self._store.events.latest(job_id, types, limit)


class TenantArtifacts(TenantPart):
    """Files written by the caller's jobs."""

    def of(self, job_id: str) -> list[ArtifactRow]:
        """The files of a job, by name."""
        self._check(job_id)
        return self._store.artifacts.of(job_id)

    def get(self, job_id: str, name: str) -> ArtifactRow:
        """One file."""
        self._check(job_id)
        return self._store.artifacts.get(job_id, name)

    def add(self, job_id: str, name: str, path: str, size: int, sha256: str, media_type: str) -> None:
        """Records a file that the service itself has written."""
        self._check(job_id)
        self._store.artifacts.add(job_id, name, path, size, sha256, media_type)


class TenantCheckpoints(TenantPart):
    """The caller's checkpoints: a name means its own, for administrators too."""

    def add(self, name: str, **upload: Unpack[NewCheckpoint]) -> tuple[CheckpointRow, bool]:
        """Adds a checkpoint."""
        return self._store.checkpoints.add(name, tenant=self._tenant, by=self._by, **upload)

    def reserve(
        self, upload: str, name: str, size: int, quota: Quota, idle_seconds: float, *, begun: bool
    ) -> int:
        """Reserves room for an upload; returns its maximum bytes."""
        return self._store.uploads.reserve(
            upload,
            name,
            size,
            tenant=self._tenant,
            quota=quota,
            limits=self._limits,
            idle_seconds=idle_seconds,
            begun=begun,
        )

    def release(self, upload: str) -> None:
        """Gives back what an upload has reserved."""
        self._store.uploads.release(upload, tenant=self._tenant)

    def get(self, name: str) -> CheckpointRow:
        """The checkpoint of this name."""
        return self._store.checkpoints.get(name, tenant=self._tenant)

    def page(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[CheckpointRow], str | None]:
        """Lists checkpoints, by name."""
        return self._store.checkpoints.page(tenant=self._tenant, limit=limit, cursor=cursor)

    def delete(self, name: str) -> str:
        """Deletes a checkpoint that no job needs; returns the id of its check."""
        return self._store.checkpoints.delete(name, tenant=self._tenant, by=self._by)


class TenantQuota(TenantPart):
    """Limits and usage of the caller's tenant."""

    def status(self, checkpoints: Quota) -> QuotaStatus:
        """Weight, limits, usage and place in the queues."""
        return self._store.allotments.of(self._tenant, self._limits, checkpoints)

    def delays(self, tenant: str | None) -> list[str]:
        """The limits that keep a tenant's shards from being claimed; empty if hidden from the caller."""
        if self._filter is not None and tenant != self._filter:
            return []
        return self._store.allotments.delays(tenant, self._limits)


class TenantFeatures:
    """The stores of features, which limit themselves to what the caller sees."""

    def __init__(self, store: Store, view: View, limits: Limits, by: Actor | None) -> None:
        self._caller = (store, view, limits, by)

    def of(self, kind: type[FeatureStore]) -> FeatureStore:
        """A feature's store for the caller. Raises LookupError: no feature names it as TENANT_STORE."""
        if not any(kind is module.TENANT_STORE for module in features.modules("store")):
            raise LookupError(f"{kind} is no feature's TENANT_STORE")
        return kind(*self._caller)

"""Adding a job: its row, tags, first shard and idempotency key, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from assay.service.contract.errors import IdempotencyMismatch, InvalidState
from assay.service.contract.fleet import traces
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.contract.specs import MAX_TAGS
from assay.service.contract.states import RETRYABLE, JobState, ShardState
from assay.service.contract.stored_specs import Spec
from assay.service.store.artifacts import weights_expired
from assay.service.store.clock import now
from assay.service.store.columns import storable
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.fleet.lanes import first_lane
from assay.service.store.fleet.quotas import check_submission
from assay.service.store.ids import new_id
from assay.service.store.rows import ShardKind
from assay.service.store.tables import idempotency_keys, jobs, shards, tags
from assay.service.store.transactions.dependencies import (
    add_dependencies,
    checkpoint_dependencies,
    lock_required,
    missing_dependency,
)
from assay.service.store.transactions.event_log import record_state_event
from assay.service.store.transactions.standings import tenant_limits
from assay.service.submission.dependencies import Dependency, dependencies_of
from assay.service.submission.weights import EXPIRED

FENCES = 1_000_000  # more than claims of a shard in an attempt


def known_job(connection: Connection, tenant: str | None, key: str | None, body_sha256: str) -> str | None:
    """The tenant's earlier job with this key; IdempotencyMismatch: another body."""
    if key is None:
        return None
    mine = (idempotency_keys.c.tenant == (tenant or "")) & (idempotency_keys.c.key == key)
    statement = select(idempotency_keys).where(mine)
    row = connection.execute(statement).one_or_none()
    if row is None:
        return None
    if row.body_sha256 != body_sha256:
        raise IdempotencyMismatch("this Idempotency-Key was used before, with another body")
    job_id: str = row.job_id
    return job_id


@traces.span("submit")
def add_job(
    connection: Connection,
    spec: Spec,
    body_sha256: str,
    key: str | None,
    tenant: str | None,
    limits: Limits = UNLIMITED,
    study: str | None = None,
) -> str:
    """Writes all rows of a new job, of a study or of its own, and returns its id.

    Raises TooManyRequests: a limit of the tenant; InvalidSpec: a job or checkpoint that must give weights is
    unknown or has ended without them; IntegrityError: another transaction has just used the key.
    """
    check_submission(connection, tenant, tenant_limits(connection, tenant, limits))
    trained = [dependency for dependency in dependencies_of(spec) if dependency.checkpoint is None]
    required = [*trained, *checkpoint_dependencies(connection, spec, tenant)]
    state = _state(connection, required)
    created_at = connection.execute(select(now())).scalar_one()
    job_id = new_id(created_at)
    traces.note(job=job_id, kind=spec["kind"])
    row = job_values(job_id, spec, created_at) | {"state": str(state), "tenant": tenant, "study_id": study}
    connection.execute(insert(jobs).values(**row))
    add_dependencies(connection, job_id, required)
    record_state_event(connection, job_id)
    add_first_shard(connection, job_id, "train" if spec["kind"] == "train" else "plan", spec, tenant)
    # Tags that differ only in characters that no database can hold are one tag.
    names = list(dict.fromkeys(storable(tag) for tag in spec["tags"]))
    if names:
        connection.execute(insert(tags), [{"tag": tag, "job_id": job_id} for tag in names])
    if key is not None:
        made = {"tenant": tenant or "", "key": key, "body_sha256": body_sha256}
        made_job = {"job_id": job_id, "created_at": created_at}
        connection.execute(insert(idempotency_keys).values(**made, **made_job))
    return job_id


def change_tags(connection: Connection, job: Row[Any], add: Iterable[str], remove: Iterable[str]) -> None:
    """Takes tags from a job, then gives it others. Raises InvalidState: more than `MAX_TAGS`."""
    lost = {storable(tag) for tag in remove}
    kept = [tag for tag in job.spec["tags"] if storable(tag) not in lost]
    new = {storable(tag): tag for tag in add}
    new = {name: tag for name, tag in new.items() if name not in map(storable, kept)}
    if new and len(kept) + len(new) > MAX_TAGS:
        count = f"has {len(kept)} tags, and would get {len(new)} more"
        raise InvalidState(f"job {job.id} {count}: a job may have {MAX_TAGS} tags")
    spec = {**job.spec, "tags": [*kept, *new.values()]}
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(spec=spec))
    connection.execute(delete(tags).where(tags.c.job_id == job.id, tags.c.tag.in_(lost | set(new))))
    if new:
        connection.execute(insert(tags), [{"tag": tag, "job_id": job.id} for tag in new])


def _state(connection: Connection, required: Sequence[Dependency]) -> JobState:
    # Locked: a job that ended before the commit would leave the new job waiting forever.
    found = lock_required(connection, {dependency.job for dependency in required})
    complaints = [
        (dependency, _complaint(connection, dependency, found[dependency.job])) for dependency in required
    ]
    problems = [(dependency, complaint) for dependency, complaint in complaints if complaint is not None]
    if problems:
        raise missing_dependency(problems)
    there = all(row is not None and row.state == JobState.SUCCEEDED for row in found.values())
    return JobState.QUEUED if there else JobState.WAITING


def _complaint(connection: Connection, dependency: Dependency, source: Row[Any] | None) -> str | None:
    if dependency.checkpoint is not None and (source is None or source.state in RETRYABLE):
        return "there is no such checkpoint" if source is None else "this checkpoint was rejected"
    if source is None or (source.kind == "check" and dependency.checkpoint is None):
        return "there is no such job"
    if source.state in RETRYABLE:
        return f"this job is {source.state} and has no weights"
    return EXPIRED if weights_expired(connection, source.id) else None


def job_values(job_id: str, spec: Spec, created_at: float) -> dict[str, Any]:
    """A new job's columns, except its state and tenant."""
    return {
        "id": job_id,
        "name": spec["name"],
        "kind": spec["kind"],
        "model": spec["model"]["name"],
        "priority": spec["priority"],
        "spec": spec,
        "attempt": 1,
        "created_at": created_at,
        "message": "",
        "progress_done": 0,
        "progress_total": None,
        "progress_unit": "steps" if spec["kind"] == "train" else "examples",
        "cost_done": 0.0,
        "cost_total": None,
        "last_event": 0,
        "seed": spec.get("seed"),
        "trace": traces.current(),
    }


def add_first_shard(
    connection: Connection, job_id: str, kind: ShardKind, spec: Spec, tenant: str | None, attempt: int = 1
) -> None:
    """Queues an evaluation job's `plan` shard, or a training job's `train` shard."""
    # Claims of an earlier attempt stay void: the fences of each attempt are higher.
    execution = spec["execution"]
    device = CHECKS if kind == "check" else execution["device"]
    at = float(connection.execute(select(now())).scalar_one())
    shard = shard_values(job_id, kind, spec["priority"], device, tenant, at)
    shard["requirements"] = first_lane(connection, device, spec)
    shard["devices"] = execution.get("devices", 1)  # Only trainings have several; older specs have no field.
    fence = first_fence(attempt)
    connection.execute(insert(shards), [{**shard, "id": f"{job_id}-{kind}", "fence": fence}])


def first_fence(attempt: int) -> int:
    """The fence of an attempt's new shards before their first claim."""
    return (attempt - 1) * FENCES


def shard_values(
    job_id: str, kind: ShardKind, priority: int, device: str, tenant: str | None, at: float
) -> dict[str, Any]:
    """The columns of a new shard on one device; a plan fills in the rest."""
    return {
        "job_id": job_id,
        "kind": kind,
        "evaluation": 0,
        "number": 0,
        "start": 0,
        "stop": 0,
        "device": device,
        "devices": 1,
        "precedence": -priority,
        "state": str(ShardState.QUEUED),
        "fence": 0,
        "failures": 0,
        "losses": 0,
        "done": 0,
        "total": None,
        "cost": 0.0,
        "tenant": tenant or "",
        "identity": "",
        "requirements": "",
        "queued_at": at,
    }

"""Checks of uploaded weights: the hidden job of an upload, and its end, which says ready or rejected."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import CheckJobSpec, ComponentReference, WeightsReference
from assay.service.contract.weights.options import WeightsReading
from assay.service.store.clock import now
from assay.service.store.ids import new_id
from assay.service.store.rows import Claim
from assay.service.store.tables import checkpoints, jobs
from assay.service.store.transactions.charge import ALL, charge
from assay.service.store.transactions.claim import retake
from assay.service.store.transactions.end_job import end_job
from assay.service.store.transactions.event_log import record_state_event
from assay.service.store.transactions.release import fail
from assay.service.store.transactions.submit import add_first_shard, job_values
from assay.service.store.transactions.transitions import complete, lock_claim

BAD_WEIGHTS = "bad_weights"  # The error of wrong weights; a check's other errors are accidents.
PRIORITY = 9  # Checks are short, and other jobs wait for them.


def submit_check(
    connection: Connection,
    name: str,
    model: ComponentReference,
    sha256: str,
    size: int,
    tenant: str | None,
    reading: WeightsReading,
) -> str:
    """Writes a file's check and the checkpoint's row; returns the job's id."""
    created_at = connection.execute(select(now())).scalar_one()
    job_id = new_id(created_at)
    weights: WeightsReference = {
        "checkpoint": name,
        "sha256": sha256,
        "normalization": reading["normalization"],
        "positions": reading["positions"],
    }
    if "class_names" in reading:
        weights["class_names"] = reading["class_names"]
    spec: CheckJobSpec = {
        "kind": "check",
        "name": name,
        "seed": 0,
        "tags": [],
        "priority": PRIORITY,
        "timeout_seconds": None,
        "model": {**model, "weights": weights},
        "execution": {"device": "auto"},
    }
    job = job_values(job_id, spec, created_at) | {"state": str(JobState.QUEUED), "tenant": tenant}
    connection.execute(insert(jobs).values(**job))
    record_state_event(connection, job_id)
    add_first_shard(connection, job_id, "check", spec, tenant)
    row = {"tenant": tenant or "", "name": name, "job_id": job_id, "model": model}
    stored = {"sha256": sha256, "size": size, "created_at": created_at}
    connection.execute(insert(checkpoints).values(**row, **stored))
    return job_id


def end_check(connection: Connection, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
    """Writes a check's verdict and ends its job; `error`: why it is rejected. False: a void claim."""
    assert claim.kind == "check", claim.kind
    found, retaken = lock_claim(connection, claim), False
    if found is None and retake(connection, claim):
        found, retaken = lock_claim(connection, claim), True
    if found is None:
        return False
    job, shard = found
    connection.execute(update(checkpoints).where(checkpoints.c.job_id == job.id).values(verdict=verdict))
    if error is not None:
        fail(connection, job, shard, BAD_WEIGHTS, error)
    else:
        complete(connection, shard)
        end_job(connection, job.id, {JobState.STARTING}, JobState.SUCCEEDED)
    charge(connection, job, [shard], measured=ALL, retaken=retaken)
    return True

"""The end of a check of uploaded weights: its checkpoint is ready or rejected, dependents go on or fail."""

from __future__ import annotations

from sqlalchemy import Connection, update

from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.states import JobState
from assay.service.store.rows import Claim
from assay.service.store.tables import checkpoints
from assay.service.store.transactions.claim import retake
from assay.service.store.transactions.end_job import end_job
from assay.service.store.transactions.release import fail
from assay.service.store.transactions.standings import charge
from assay.service.store.transactions.transitions import complete, lock_claim

# The error of a check that found the weights wrong; its other errors are accidents.
BAD_WEIGHTS = "bad_weights"


def end_check(connection: Connection, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
    """Writes the verdict of a check shard and ends its job, in a writing transaction; False: a void claim.

    `error` says why the file is rejected, as one sentence; None when it is ready.
    """
    assert claim.kind == "check", claim.kind
    found = lock_claim(connection, claim)
    if found is None and retake(connection, claim):
        found = lock_claim(connection, claim)
    if found is None:
        return False
    job, shard = found
    connection.execute(update(checkpoints).where(checkpoints.c.job_id == job.id).values(verdict=verdict))
    if error is not None:
        fail(connection, job, shard, BAD_WEIGHTS, error)
    else:
        complete(connection, shard)
        end_job(connection, job.id, {JobState.STARTING}, JobState.SUCCEEDED)
    charge(connection, job.tenant, [shard])
    return True

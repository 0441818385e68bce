"""Adding the jobs of a study: trainings, those shared once, and the evaluations of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from assay.service.contract.limits import Limits
from assay.service.store.audit import Actor, record
from assay.service.store.fleet.quotas import QUEUE_RETRY_SECONDS, over_limit, queued_jobs
from assay.service.store.tables import jobs, study_jobs
from assay.service.store.transactions.standings import tenant_limits
from assay.service.store.transactions.submit import add_job
from assay.service.studies.runs import PlannedRun, planned_runs, with_weights
from assay.service.studies.wire import ArmTemplate


def add_runs(
    connection: Connection,
    study_id: str,
    spec: dict[str, Any],
    templates: Sequence[ArmTemplate],
    seeds: Sequence[int],
    tenant: str | None,
    limits: Limits,
) -> list[str]:
    """Adds the jobs of new seeds; ids, oldest first. TooManyRequests: a limit; InvalidSpec: no weights."""
    runs = list(planned_runs(templates, seeds, spec["name"]))
    _check_room(connection, tenant, limits, runs)
    made: list[str] = []
    trained: dict[str, str] = {}
    links: list[dict[str, Any]] = []
    for run in runs:
        place = {"study_id": study_id, "arm": run.arm, "seed": run.seed}
        evaluate = run.evaluate
        if run.train is not None:
            if run.key not in trained:
                trained[run.key] = add_job(connection, run.train, "", None, tenant, limits, study_id)
                made.append(trained[run.key])
            evaluate = with_weights(evaluate, trained[run.key])
            links.append({**place, "role": "train", "job_id": trained[run.key]})
        made.append(add_job(connection, evaluate, "", None, tenant, limits, study_id))
        links.append({**place, "role": "evaluate", "job_id": made[-1]})
    if links:
        connection.execute(insert(study_jobs), links)
    return made


def _check_room(
    connection: Connection, tenant: str | None, limits: Limits, runs: Sequence[PlannedRun]
) -> None:
    most = tenant_limits(connection, tenant, limits).queued_jobs
    wanted = len(runs) + len({run.key for run in runs if run.train is not None})
    if not most or not wanted:
        return
    queued = queued_jobs(connection, tenant, most)
    if queued + wanted > most:
        text = f"the study needs {wanted} jobs and {queued} are queued, at most {most} may be"
        raise over_limit("queued_jobs", text, most, queued, QUEUE_RETRY_SECONDS, "requests")


def record_jobs(connection: Connection, by: Actor | None, made: Sequence[str], study_id: str) -> None:
    """Audits a study's new jobs, as if each had been posted."""
    if by is None:
        return
    told = select(jobs.c.id, jobs.c.kind, jobs.c.model).where(jobs.c.id.in_(made)).order_by(jobs.c.id)
    for job in connection.execute(told).all():
        detail = {"kind": job.kind, "model": job.model, "study": study_id}
        record(connection, by, "job.submit", job.id, detail=detail)

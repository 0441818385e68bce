"""Adding the jobs of a study: trainings, those shared once, and the evaluations of their weights; extensions.

An extension is a row of a study with `until`. A process that looks claims it for a while, so that processes
share the work; that seeds are added once follows from `Studies.conclude`, which holds the study's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from assay.service.contract.limits import Limits
from assay.service.contract.states import JobState
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.fleet.quotas import QUEUE_RETRY_SECONDS, over_limit, queued_jobs
from assay.service.store.tables import jobs, study_jobs
from assay.service.store.tenant_tables import study_extensions
from assay.service.store.transactions.standings import tenant_limits
from assay.service.store.transactions.submit import add_job
from assay.service.studies.rows import Extension
from assay.service.studies.runs import PlannedRun, planned_runs, with_weights
from assay.service.studies.wire import ArmTemplate, ExtensionState, StudyLook

LOOK_SECONDS = 60.0  # After it another process may look: the process that has claimed the look may be dead.


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


def add_extension(connection: Connection, study_id: str) -> None:
    """Lets the service extend a study."""
    values = {"study_id": study_id, "looks": [], "state": "open", "reason": "", "claimed_until": 0.0}
    connection.execute(insert(study_extensions).values(**values))


def extensions_of(connection: Connection, study_ids: Sequence[str]) -> dict[str, Extension]:
    """The extensions of studies, by their ids."""
    rows = connection.execute(select(study_extensions).where(study_extensions.c.study_id.in_(study_ids)))
    return {
        row.study_id: Extension([StudyLook(**look) for look in row.looks], row.state, row.reason)
        for row in rows
    }


def set_extension(
    connection: Connection, study_id: str, before: Sequence[ExtensionState], state: ExtensionState
) -> bool:
    """Changes the state of an extension that is in one of the states; whether it was."""
    mine = (study_extensions.c.study_id == study_id) & study_extensions.c.state.in_(before)
    values = {"state": state, "reason": "", "claimed_until": 0.0}
    return bool(connection.execute(update(study_extensions).where(mine).values(**values)).rowcount)


def claim_look(connection: Connection) -> str | None:
    """Claims a study to look at: its extension is open, and all its jobs have succeeded."""
    unfinished = (
        select(study_jobs.c.study_id)
        .outerjoin(jobs, jobs.c.id == study_jobs.c.job_id)
        .where(
            study_jobs.c.study_id == study_extensions.c.study_id,
            jobs.c.state.is_distinct_from(str(JobState.SUCCEEDED)),
        )
    )
    due = (
        select(study_extensions.c.study_id)
        .where(
            study_extensions.c.state == "open",
            study_extensions.c.claimed_until <= now(),
            ~unfinished.exists(),
        )
        .order_by(study_extensions.c.study_id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    study_id = connection.execute(due).scalar_one_or_none()
    if study_id is None:
        return None
    mine = study_extensions.c.study_id == study_id
    connection.execute(update(study_extensions).where(mine).values(claimed_until=now() + LOOK_SECONDS))
    return str(study_id)


def record_look(
    connection: Connection,
    study_id: str,
    known: Extension,
    look: StudyLook | None,
    state: ExtensionState,
    reason: str = "",
) -> None:
    """Records a look at a study that is locked, and whether it goes on."""
    looks = [*known.looks, look] if look is not None else known.looks
    values = {"looks": [one.model_dump(mode="json") for one in looks], "state": state, "reason": reason}
    mine = study_extensions.c.study_id == study_id
    connection.execute(update(study_extensions).where(mine).values(**values, claimed_until=0.0))

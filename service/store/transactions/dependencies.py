"""A job needs the weights of another, older one: the lock order of `transitions` is the order of ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, insert, select

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.store.tables import checkpoints, dependencies, jobs
from assay.service.store.transactions.transitions import OPEN, lock_job
from assay.service.submission.dependencies import Dependency, dependencies_of
from assay.service.submission.weights import LOC


def checkpoint_dependencies(connection: Connection, spec: Spec, tenant: str | None) -> list[Dependency]:
    """The tenant's checkpoints that a valid spec names. InvalidSpec: none such, or of other content."""
    weights = spec["model"].get("weights") or {}
    named = [dependency for dependency in dependencies_of(spec) if dependency.checkpoint is not None]
    if (own := weights.get("checkpoint")) is not None:
        named.append(Dependency(own, (*LOC, "checkpoint"), own, weights.get("sha256")))
    rows = select(checkpoints.c.name, checkpoints.c.job_id, checkpoints.c.sha256).where(
        checkpoints.c.tenant == (tenant or ""),
        checkpoints.c.name.in_(sorted({str(dependency.checkpoint) for dependency in named})),
    )
    known = {row.name: row for row in connection.execute(rows)} if named else {}
    problems: list[tuple[Dependency, str]] = []
    found: list[Dependency] = []
    for dependency in named:
        row = known.get(dependency.checkpoint)
        if row is None:
            problems.append((dependency, "there is no such checkpoint"))
        elif dependency.sha256 not in (None, row.sha256):
            problems.append((dependency, "the checkpoint of this name has another content"))
        else:
            found.append(replace(dependency, job=row.job_id))
    if problems:
        raise missing_dependency(problems)
    return found


def add_dependencies(connection: Connection, job_id: str, required: Sequence[Dependency]) -> None:
    """Writes the dependencies of a new job."""
    rows = [
        {"job_id": job_id, "depends_on": source}
        for source in {dependency.job: None for dependency in required}
    ]
    if rows:
        connection.execute(insert(dependencies), rows)


def required_jobs(connection: Connection, job_id: str) -> list[str]:
    """The jobs that a job needs weights of, by id, also deleted jobs."""
    mine = select(dependencies.c.depends_on).where(dependencies.c.job_id == job_id)
    return sorted(connection.execute(mine).scalars())


def lock_required(connection: Connection, sources: Collection[str]) -> dict[str, Row[Any] | None]:
    """Locks required jobs, before their dependents, until the transaction ends; None: missing."""
    return {source: lock_job(connection, source, share=True) for source in sorted(sources)}


def waiting_dependents(connection: Connection, job_id: str) -> list[str]:
    """The jobs that wait for this one, possibly among others, by id."""
    waiting = _dependents(job_id).where(jobs.c.state == str(JobState.WAITING)).order_by(jobs.c.id)
    return [row.id for row in connection.execute(waiting)]


def dependencies_met(connection: Connection, job_id: str) -> bool:
    """Whether all required jobs have succeeded. The caller holds the job's row."""
    needed = jobs.alias("needed")
    missing = (
        select(needed.c.id)
        .join(dependencies, dependencies.c.depends_on == needed.c.id)
        .where(dependencies.c.job_id == job_id, needed.c.state != str(JobState.SUCCEEDED))
    )
    return connection.execute(missing.limit(1)).first() is None


def unfinished_dependent(connection: Connection, job_id: str) -> Row[str, str] | None:
    """`id` and `tenant` of a dependent that has not ended; None without one."""
    return connection.execute(_dependents(job_id).where(_open(jobs.c.state)).limit(1)).one_or_none()


def has_unfinished_dependent() -> ColumnElement[bool]:
    """Condition: an unfinished job needs this job's weights."""
    dependents = jobs.alias("dependents")
    edge = (dependencies.c.depends_on == jobs.c.id) & (dependencies.c.job_id == dependents.c.id)
    return exists().where(edge, _open(dependents.c.state))


def missing_dependency(problems: Sequence[tuple[Dependency, str]]) -> InvalidSpec:
    """The error of a job that names jobs or a checkpoint without weights to give, and why."""
    details = [
        ErrorDetail(loc=[*dependency.loc], message=message, given=dependency.checkpoint or dependency.job)
        for dependency, message in problems
    ]
    whose = "checkpoint" if any(dependency.checkpoint for dependency, _ in problems) else "job"
    return InvalidSpec(f"the {whose} whose weights are wanted cannot give them", details)


def _dependents(job_id: str) -> Select[str, str]:
    return (
        select(jobs.c.id, jobs.c.tenant)
        .join(dependencies, dependencies.c.job_id == jobs.c.id)
        .where(dependencies.c.depends_on == job_id)
    )


def _open(state: ColumnElement[str]) -> ColumnElement[bool]:
    return state.in_([str(one) for one in OPEN])

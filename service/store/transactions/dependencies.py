"""Which jobs need the weights of which: noted when a job is added, and asked by whatever changes either.

A needed job is older than those that need it, so the lock order of `moves` is that of ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, insert, select

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.store.tables import checkpoints, dependencies, jobs
from assay.service.store.transactions.transitions import OPEN, lock_job
from assay.service.submission.dependencies import Need
from assay.service.submission.weights import LOC


def checkpoint_needs(connection: Connection, spec: Spec, tenant: str | None) -> list[Need]:
    """The checkpoint that a valid spec names, if it does, as the tenant knows it.

    Raises:
        InvalidSpec: when there is none of that name, or it has another content than the spec says.
    """
    weights = spec["model"].get("weights") or {}
    name = weights.get("checkpoint")
    if name is None:
        return []
    mine = (checkpoints.c.tenant == (tenant or "")) & (checkpoints.c.name == name)
    row = connection.execute(select(checkpoints.c.job_id, checkpoints.c.sha256).where(mine)).one_or_none()
    need = Need(row.job_id if row is not None else "", (*LOC, "checkpoint"), checkpoint=name)
    if row is None:
        raise cannot_give([(need, "there is no such checkpoint")])
    if weights.get("sha256") not in (None, row.sha256):
        raise cannot_give([(need, "the checkpoint of this name has another content")])
    return [need]


def note_needs(connection: Connection, job_id: str, needs: Sequence[Need]) -> None:
    """Writes down what a new job needs."""
    rows = [{"job_id": job_id, "depends_on": source} for source in {need.job: None for need in needs}]
    if rows:
        connection.execute(insert(dependencies), rows)


def needed_by(connection: Connection, job_id: str) -> list[str]:
    """The jobs whose weights a job needs, by id; they may have been deleted."""
    mine = select(dependencies.c.depends_on).where(dependencies.c.job_id == job_id)
    return sorted(connection.execute(mine).scalars())


def lock_needed(connection: Connection, sources: Collection[str]) -> dict[str, Row[Any] | None]:
    """Keeps needed jobs from changing until the transaction ends; None for those that are not there.

    Whoever needs them is locked after this, or does not exist yet.
    """
    return {source: lock_job(connection, source, share=True) for source in sorted(sources)}


def waiting_for(connection: Connection, job_id: str) -> list[str]:
    """The jobs that wait for this one, and maybe for others too, by id."""
    waiting = _needing(job_id).where(jobs.c.state == str(JobState.WAITING)).order_by(jobs.c.id)
    return [row.id for row in connection.execute(waiting)]


def has_all(connection: Connection, job_id: str) -> bool:
    """Whether everything that a job needs has succeeded. The caller holds the job's row."""
    needed = jobs.alias("needed")
    missing = (
        select(needed.c.id)
        .join(dependencies, dependencies.c.depends_on == needed.c.id)
        .where(dependencies.c.job_id == job_id, needed.c.state != str(JobState.SUCCEEDED))
    )
    return connection.execute(missing.limit(1)).first() is None


def unfinished_user(connection: Connection, job_id: str) -> Row[str, str] | None:
    """A job that has not ended and needs this one's weights: its `id` and `tenant`; None without one."""
    return connection.execute(_needing(job_id).where(_open(jobs.c.state)).limit(1)).one_or_none()


def still_needed() -> ColumnElement[bool]:
    """The condition that a job's weights are needed by one that has not ended."""
    users = jobs.alias("users")
    needing = (dependencies.c.depends_on == jobs.c.id) & (dependencies.c.job_id == users.c.id)
    return exists().where(needing, _open(users.c.state))


def cannot_give(problems: Sequence[tuple[Need, str]]) -> InvalidSpec:
    """The error for a job that names others, or a checkpoint: why each cannot give its weights."""
    details = [
        ErrorDetail(loc=[*need.loc], message=message, given=need.checkpoint or need.job)
        for need, message in problems
    ]
    whose = "checkpoint" if any(need.checkpoint for need, _ in problems) else "job"
    return InvalidSpec(f"the {whose} whose weights are wanted cannot give them", details)


def _needing(job_id: str) -> Select[str, str]:
    return (
        select(jobs.c.id, jobs.c.tenant)
        .join(dependencies, dependencies.c.job_id == jobs.c.id)
        .where(dependencies.c.depends_on == job_id)
    )


def _open(state: ColumnElement[str]) -> ColumnElement[bool]:
    return state.in_([str(one) for one in OPEN])

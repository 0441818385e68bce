"""Jobs: added, listed, canceled, retried, ended, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from sqlalchemy import Select, case, func, select, update
from sqlalchemy.exc import IntegrityError

from assay.service.contract.errors import InvalidState
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.contract.records import JobProvenance
from assay.service.contract.states import TERMINAL, JobState
from assay.service.contract.stored_specs import Spec
from assay.service.store.artifacts import weights_expired
from assay.service.store.audit import Actor, owner_of, record
from assay.service.store.database import StorePart
from assay.service.store.job_lists import JobListing, JobPage, page_of_jobs
from assay.service.store.row_mapping import read_job, unknown_job
from assay.service.store.rows import JobRow, SourceRow
from assay.service.store.tables import LEFT, jobs, results, shards
from assay.service.store.transactions.deadline import overdue, overdue_message
from assay.service.store.transactions.dependencies import unfinished_dependent
from assay.service.store.transactions.end_job import cancel_job, delete_job, end_job, problem
from assay.service.store.transactions.event_log import one_line, record_message
from assay.service.store.transactions.repetition import free_waiting
from assay.service.store.transactions.retry import retry_job
from assay.service.store.transactions.submit import add_job, change_tags, known_job
from assay.service.store.transactions.transitions import CLAIMABLE, is_left, lock_job, states_before


class Jobs(StorePart):
    """The jobs."""

    def add(
        self,
        spec: Spec,
        *,
        body_sha256: str,
        idempotency_key: str | None = None,
        tenant: str | None = None,
        limits: Limits = UNLIMITED,
        by: Actor | None = None,
    ) -> tuple[JobRow, bool]:
        """Adds a job with its first shard.

        `spec` has every default filled in. Two calls of a tenant with the same `idempotency_key` and body add
        one job. Raises TooManyRequests: a limit of the tenant; IdempotencyMismatch: the key with another
        body; InvalidSpec: a job that must give weights is unknown or has ended without them.
        """
        while True:
            try:
                with self._database.writing() as connection:
                    known = known_job(connection, tenant, idempotency_key, body_sha256)
                    if known is not None:
                        return read_job(connection, known), False
                    job_id = add_job(connection, spec, body_sha256, idempotency_key, tenant, limits)
                    told = {"kind": spec["kind"], "model": spec["model"]["name"]}
                    record(connection, by, "job.submit", job_id, detail=told)
                    return read_job(connection, job_id), True
            except IntegrityError:
                if idempotency_key is None:  # Another request with the same key was quicker.
                    raise

    def known(self, idempotency_key: str, body_sha256: str, *, tenant: str | None = None) -> JobRow | None:
        """The tenant's earlier job with this key. Raises IdempotencyMismatch: it had another body."""
        with self._database.reading() as connection:
            job_id = known_job(connection, tenant, idempotency_key, body_sha256)
            return None if job_id is None else read_job(connection, job_id)

    def get(self, job_id: str, *, tenant: str | None = None) -> JobRow:
        """Reads a job, of a tenant if given. Raises NotFound."""
        with self._database.reading() as connection:
            return read_job(connection, job_id, tenant)

    def source(self, job_id: str, *, tenant: str | None = None) -> SourceRow:
        """Reads a job, of a tenant if given, as a source of weights. Raises NotFound."""
        with self._database.reading() as connection:
            job = read_job(connection, job_id, tenant)
            return SourceRow(job.kind, job.state, job.spec, weights_expired(connection, job_id))

    def belongs(self, job_id: str, tenant: str) -> bool:
        """Whether the job exists, belongs to this tenant and is not a check."""
        mine = (jobs.c.id == job_id) & (jobs.c.tenant == tenant) & (jobs.c.kind != "check")
        with self._database.reading() as connection:
            return connection.execute(select(jobs.c.id).where(mine)).scalar() is not None

    def page(self, **asked: Unpack[JobListing]) -> tuple[list[JobRow], str | None]:
        """The jobs and the cursor of `listed`."""
        return self.listed(**asked)[:2]

    def listed(self, **asked: Unpack[JobListing]) -> JobPage:
        """Lists jobs, of a tenant if given, as `page_of_jobs`."""
        with self._database.reading() as connection:
            return page_of_jobs(connection, **asked)

    def cancel(self, job_id: str, *, by: Actor | None = None) -> JobRow:
        """Cancels a job, `canceling` while workers have shards of it. NotFound; InvalidState: it ended."""
        with self._database.writing() as connection:
            job = lock_job(connection, job_id)
            if job is None:
                raise unknown_job(job_id)
            if JobState(job.state) in TERMINAL:
                raise InvalidState(f"job {job_id} is {job.state} and cannot be canceled")
            cancel_job(connection, job_id)
            record(connection, by, "job.cancel", job_id, detail=owner_of(job.tenant, by))
            return read_job(connection, job_id)

    def retry(self, job_id: str, limits: Limits = UNLIMITED, *, by: Actor | None = None) -> JobRow:
        """Queues a failed, canceled or timed out job again; its finished shards are kept.

        Jobs that failed with `dependency_failed` because of it stay failed. Raises TooManyRequests: a limit
        of its tenant; NotFound; InvalidState: another state, or required weights were deleted.
        """
        with self._database.writing() as connection:
            retry_job(connection, job_id, limits)
            row = read_job(connection, job_id)
            record(connection, by, "job.retry", job_id, detail=owner_of(row.tenant, by))
            return row

    def replan(self, job_id: str, limits: Limits = UNLIMITED, *, by: Actor | None = None) -> JobRow:
        """Plans an evaluation again, its outcomes are deleted. Raises as `retry`; InvalidState: no plan."""
        with self._database.writing() as connection:
            retry_job(connection, job_id, limits, replan=True)
            row = read_job(connection, job_id)
            record(connection, by, "job.replan", job_id, detail=owner_of(row.tenant, by))
            return row

    def delete(self, job_id: str, *, by: Actor | None = None) -> None:
        """Deletes an ended job and all below it. NotFound; InvalidState: it, or a dependent, is open."""
        with self._database.writing() as connection:
            job = lock_job(connection, job_id)
            if job is None:
                raise unknown_job(job_id)
            if JobState(job.state) not in TERMINAL:
                raise InvalidState(f"job {job_id} is {job.state}: only a job that has ended can be deleted")
            dependent = unfinished_dependent(connection, job_id)
            if dependent is not None:
                # The id of another tenant's job must not be disclosed.
                name = f"job {dependent.id}" if dependent.tenant == job.tenant else "a job of another tenant"
                raise InvalidState(f"{name} is not finished and needs the weights of job {job_id}")
            delete_job(connection, job)
            record(connection, by, "job.delete", job_id, detail=owner_of(job.tenant, by))

    def tag(
        self, job_id: str, add: Sequence[str] = (), remove: Sequence[str] = (), *, by: Actor | None = None
    ) -> JobRow:
        """Takes tags from a job, then gives it others. NotFound; InvalidState: more than `MAX_TAGS`."""
        with self._database.writing() as connection:
            job = lock_job(connection, job_id)
            if job is None:
                raise unknown_job(job_id)
            change_tags(connection, job, add, remove)
            changed = {name: list(tags) for name, tags in (("add", add), ("remove", remove)) if tags}
            record(connection, by, "job.tag", job_id, detail={**changed, **owner_of(job.tenant, by)})
            return read_job(connection, job_id)

    def queue_positions(self, rows: Sequence[JobRow]) -> dict[str, int]:
        """Queue positions of the queued jobs, 1 the tenant's next; a query per tenant and priority."""
        queued = [row for row in rows if row.state is JobState.QUEUED]
        if not queued:
            return {}
        places: dict[str, int] = {}
        with self._database.reading() as connection:
            for tenant, priority in {(row.tenant, row.priority) for row in queued}:
                ids = [row.id for row in queued if (row.tenant, row.priority) == (tenant, priority)]
                statement = _places(tenant, priority, ids)
                places |= {row.id: row.place for row in connection.execute(statement)}
        return places

    def free_repetitions(self, seconds: float) -> None:
        """Lets repetitions that waited so long run where they were measured, or ends them."""
        free_waiting(self._database, seconds)

    def ready_to_finish(self) -> list[str]:
        """Ids of active jobs with all shards done: only the merge is missing."""
        working = jobs.c.state.in_([str(JobState.STARTING), str(JobState.RUNNING)])
        # As a value: PostgreSQL would turn `exists` into a join that reads all shards.
        left = select(shards.c.id).where(shards.c.job_id == jobs.c.id, LEFT).limit(1).scalar_subquery()
        statement = select(jobs.c.id).where(working, left.is_(None)).order_by(jobs.c.id)
        with self._database.reading() as connection:
            return list(connection.execute(statement).scalars())

    def unmerged(self) -> list[tuple[str, int]]:
        """Evaluations of running jobs, by job and index, that are measured and have no result."""
        of_shard = (shards.c.job_id, shards.c.evaluation)
        merged = (results.c.job_id == of_shard[0]) & (results.c.evaluation == of_shard[1])
        statement = (
            select(*of_shard)
            .join(jobs, jobs.c.id == shards.c.job_id)
            .outerjoin(results, merged)
            .where(
                jobs.c.state == str(JobState.RUNNING), jobs.c.kind == "evaluate", shards.c.kind == "evaluate"
            )
            .where(results.c.job_id.is_(None))
            .group_by(*of_shard)
            .having(func.sum(case((LEFT, 1), else_=0)) == 0)
            .order_by(*of_shard)
        )
        with self._database.reading() as connection:
            return [(row.job_id, row.evaluation) for row in connection.execute(statement)]

    def succeed(self, job_id: str, provenance: JobProvenance, **summary: Any) -> bool:
        """Ends a job with all shards done, and releases its dependents; with `summary_columns`."""
        with self._database.writing() as connection:
            job = lock_job(connection, job_id)
            if job is None or is_left(connection, job_id):
                return False
            return end_job(
                connection,
                job_id,
                {JobState.STARTING, JobState.RUNNING},
                JobState.SUCCEEDED,
                provenance=provenance,
                # Sums of fractions have rounding errors.
                progress_done=func.coalesce(jobs.c.progress_total, jobs.c.progress_done),
                cost_done=func.coalesce(jobs.c.cost_total, jobs.c.cost_done),
                **summary,
            )

    def without_summary(self, limit: int) -> list[str]:
        """The newest succeeded jobs without a summary, as earlier versions left them."""
        bare = (jobs.c.state == str(JobState.SUCCEEDED)) & jobs.c.summary.is_(None) & (jobs.c.kind != "check")
        with self._database.reading() as connection:
            statement = select(jobs.c.id).where(bare).order_by(jobs.c.id.desc()).limit(limit)
            return list(connection.execute(statement).scalars())

    def summarise(self, job_id: str, columns: dict[str, Any]) -> None:
        """Writes a job's `summary_columns`, and its spec's seed. Unknown jobs are ignored."""
        with self._database.writing() as connection:
            spec = connection.execute(select(jobs.c.spec).where(jobs.c.id == job_id)).scalar() or {}
            columns = {**columns, "seed": func.coalesce(jobs.c.seed, spec.get("seed"))}
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**columns))

    def fail(self, job_id: str, error_type: str, message: str) -> bool:
        """Fails a job that has not ended and is not being canceled, and the jobs that wait for it."""
        error = problem(error_type, message)
        with self._database.writing() as connection:
            lock_job(connection, job_id)
            return end_job(connection, job_id, states_before(JobState.FAILED), JobState.FAILED, error=error)

    def time_out(self, at: float | None = None) -> int:
        """Ends every job past its deadline, returns their number; `at` None: the database's clock."""
        with self._database.reading() as connection:
            statement = select(jobs.c.id).where(overdue(at)).order_by(jobs.c.id)
            job_ids = connection.execute(statement).scalars().all()
        return sum(self._time_out(job_id, at) for job_id in job_ids)

    def log(self, job_id: str, message: str) -> None:
        """Sets the job's message on its current step. Unknown jobs are ignored."""
        with self._database.writing() as connection:
            record_message(connection, job_id, one_line(message))

    def _time_out(self, job_id: str, at: float | None) -> bool:
        with self._database.writing() as connection:
            job = lock_job(connection, job_id)
            late = select(jobs.c.id).where(jobs.c.id == job_id, overdue(at))
            if job is None or connection.execute(late).first() is None:  # Under the lock: a new clock counts
                return False
            error = problem("timed_out", overdue_message(job))
            return end_job(connection, job_id, CLAIMABLE, JobState.TIMED_OUT, error=error)


def _places(tenant: str | None, priority: int, ids: Sequence[str]) -> Select[str, int]:
    """Queue positions within tenant and priority: the jobs ahead of all are counted, from an index alone."""
    mine = jobs.c.tenant.is_(None) if tenant is None else jobs.c.tenant == tenant
    queued = (jobs.c.state == str(JobState.QUEUED)) & mine
    alike = queued & (jobs.c.priority == priority)
    counting = select(func.count()).select_from(jobs)
    urgent = counting.where(queued, jobs.c.priority > priority).scalar_subquery()
    older = counting.where(alike, jobs.c.id < min(ids)).scalar_subquery()
    number = func.row_number().over(order_by=jobs.c.id)
    near = (jobs.c.id >= min(ids)) & (jobs.c.id <= max(ids))
    span = select(jobs.c.id, number.label("number")).where(alike, near).subquery()
    return select(span.c.id, (urgent + older + span.c.number).label("place")).where(span.c.id.in_(ids))

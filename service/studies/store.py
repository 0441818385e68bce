"""Studies: added whole, extended by seeds, canceled, retried and deleted with their jobs.

A study's state follows from its jobs' states. `add_job` adds the jobs in one transaction, so limits,
dependencies and ids work as for posted jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from assay.service.contract.errors import (
    ErrorDetail,
    IdempotencyMismatch,
    InvalidSpec,
    InvalidState,
    NotFound,
)
from assay.service.contract.states import RETRYABLE, TERMINAL, JobState
from assay.service.store.audit import owner_of, record
from assay.service.store.clock import now
from assay.service.store.ids import decode_cursor, encode_cursor, new_id
from assay.service.store.row_mapping import row_of
from assay.service.store.tables import dependencies, jobs, studies, study_jobs
from assay.service.store.transactions.end_job import cancel_job, delete_job
from assay.service.store.transactions.release import DIFFERENT
from assay.service.store.transactions.retry import retry_job
from assay.service.store.transactions.transitions import OPEN, lock_job
from assay.service.studies.designs.store import Designs, with_seeds
from assay.service.studies.kept.kept_texts import KeptTexts
from assay.service.studies.rows import REOPENED, Extension, StudyJobRow, StudyRow
from assay.service.studies.runs import job_count
from assay.service.studies.transactions import (
    add_extension,
    add_runs,
    claim_look,
    extensions_of,
    record_jobs,
    record_look,
    set_extension,
)
from assay.service.studies.wire import (
    MAX_JOBS,
    OWN_TRAINING,
    ArmTemplate,
    ExtensionState,
    RunState,
    StudyLook,
)
from assay.service.submission.dependencies import dependencies_of


class Studies(Designs, KeptTexts):
    """The studies that a caller sees. Every method is one short transaction."""

    def add(
        self,
        spec: dict[str, Any],
        templates: Sequence[ArmTemplate],
        *,
        body_sha256: str,
        idempotency_key: str | None = None,
        design: str | None = None,
        changed: str | None = None,
    ) -> tuple[StudyRow, bool]:
        """Adds a study with all its jobs, or nothing; weights may come from jobs that the caller sees.

        `templates`: the jobs of each arm; `design`: the digest; `changed`: what a
        budget changed, in words. Two calls of a tenant with the same
        `idempotency_key` and body add one study. Raises TooManyRequests: these jobs are over a limit of the
        tenant; IdempotencyMismatch: the key with another body; InvalidSpec: a job or checkpoint cannot give
        weights.
        """
        specs = [spec for arm in templates for spec in (arm["evaluate"], arm["train"]) if spec is not None]
        named = [dependency for spec in specs for dependency in dependencies_of(spec)]
        self._check_sources([one for one in named if one.job != OWN_TRAINING])
        while True:
            try:
                with self._database.writing() as connection:
                    known = _known(connection, self._owner, idempotency_key, body_sha256)
                    if known is not None:
                        return _study(connection, known), False
                    study_id = new_id(connection.execute(select(now())).scalar_one())
                    row = {"id": study_id, "tenant": self._owner, "name": spec["name"], "spec": spec}
                    row |= {"templates": list(templates), "created_at": now()}
                    row |= {"key": idempotency_key, "body_sha256": body_sha256, "design": design}
                    if design is not None:
                        fixing = self._fixing(connection, design, templates, spec["seeds"])
                        row["fixing"] = fixing if changed is None else {**fixing, "changed": changed}
                    connection.execute(insert(studies).values(**row))
                    if spec.get("until") is not None:
                        add_extension(connection, study_id)
                    made = add_runs(
                        connection, study_id, spec, templates, spec["seeds"], self._tenant, self._limits
                    )
                    told: dict[str, Any] = {
                        "arms": len(templates),
                        "seeds": len(spec["seeds"]),
                        "jobs": len(made),
                    }
                    told |= {} if design is None else {"design": design}
                    record_jobs(connection, self._by, made, study_id)
                    record(connection, self._by, "study.submit", study_id, detail=told)
                    return _study(connection, study_id), True
            except IntegrityError:
                if idempotency_key is None:  # Another request with the same key was quicker.
                    raise

    def known(self, idempotency_key: str, body_sha256: str) -> StudyRow | None:
        """The tenant's earlier study with this key. Raises IdempotencyMismatch: it had another body."""
        with self._database.reading() as connection:
            study_id = _known(connection, self._owner, idempotency_key, body_sha256)
            return None if study_id is None else _study(connection, study_id)

    def get(self, study_id: str) -> StudyRow:
        """Reads a study. Raises NotFound."""
        with self._database.reading() as connection:
            return _study(connection, study_id, self._filter)

    def evaluation_jobs(self, study_id: str) -> dict[str, Row[Any]]:
        """Id, state, error and plan of the jobs that measure a study, by id; deleted jobs have none."""
        planned = func.coalesce(jobs.c.plan, jobs.c.provenance).label("planned")
        statement: Select[Any] = (
            select(jobs.c.id, jobs.c.state, jobs.c.error, planned)
            .join(study_jobs, study_jobs.c.job_id == jobs.c.id)
            .where(study_jobs.c.study_id == study_id, study_jobs.c.role == "evaluate")
        )
        if self._filter is not None:
            statement = statement.where(jobs.c.tenant == self._filter)
        with self._database.reading() as connection:
            return {row.id: row for row in connection.execute(statement)}

    def page(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[StudyRow], str | None]:
        """Lists studies, newest first, and the next page's cursor. Raises InvalidSpec: a foreign cursor."""
        statement = select(studies).order_by(studies.c.id.desc()).limit(limit + 1)
        if cursor is not None:
            statement = statement.where(studies.c.id < decode_cursor(cursor))
        if self._filter is not None:
            statement = statement.where(studies.c.tenant == self._filter)
        with self._database.reading() as connection:
            found = connection.execute(statement).all()
            ids = [row.id for row in found[:limit]]
            runs, extensions = _runs(connection, ids), extensions_of(connection, ids)
            rows = [_study_row(row, runs.get(row.id, []), extensions.get(row.id)) for row in found[:limit]]
        return rows, encode_cursor(rows[-1].id) if len(found) > limit else None

    def extend(self, study_id: str, seeds: Sequence[int]) -> tuple[StudyRow, list[str]]:
        """Adds the jobs of more seeds, except seeds that the study has.

        Raises NotFound; InvalidSpec: too many jobs, or weights that it needs are gone; TooManyRequests: a
        limit of its tenant.
        """
        with self._database.writing() as connection:
            row = _locked(connection, study_id, self._filter)
            new = [seed for seed in seeds if seed not in row.spec["seeds"]]
            made = self._add_seeds(connection, row, new)
            if made:
                record_jobs(connection, self._by, made, study_id)
                told = {"seeds": len(new), "jobs": len(made)} | owner_of(row.tenant or None, self._by)
                record(connection, self._by, "study.extend", study_id, detail=told)
            return _study(connection, study_id), made

    def _add_seeds(
        self, connection: Connection, row: Row[Any], new: list[int], *, by_rule: bool = False
    ) -> list[str]:
        every = [*row.spec["seeds"], *new]
        _check_size(row.templates, every, new)
        spec = {**row.spec, "seeds": every}
        changed: dict[str, Any] = {"spec": spec}
        changed |= {} if row.fixing is None else {"fixing": with_seeds(connection, row, new, by_rule=by_rule)}
        connection.execute(update(studies).where(studies.c.id == row.id).values(**changed))
        return add_runs(connection, row.id, spec, row.templates, new, row.tenant or None, self._limits)

    def claim_look(self) -> StudyRow | None:
        """A study with `until` whose jobs have all succeeded; no other process gets it for a minute."""
        with self._database.writing() as connection:
            study_id = claim_look(connection)
            return None if study_id is None else _study(connection, study_id)

    def conclude(
        self,
        looked_at: StudyRow,
        look: StudyLook | None,
        state: ExtensionState,
        *,
        seeds: Sequence[int] = (),
        reason: str = "",
    ) -> bool:
        """Records a look at a study as it was, and adds the seeds; nothing if it has changed since.

        Raises NotFound: it is deleted; TooManyRequests: a limit of its tenant; InvalidSpec: too many jobs, or
        weights that it needs are gone.
        """
        with self._database.writing() as connection:
            row = _locked(connection, looked_at.id, self._filter)
            present = _study(connection, looked_at.id)
            same = (present.spec["seeds"], present.extension) == (
                looked_at.spec["seeds"],
                looked_at.extension,
            )
            if not same or not present.looked_for:
                return False
            assert present.extension is not None
            record_look(connection, row.id, present.extension, look, state, reason)
            self._add_seeds(connection, row, list(seeds), by_rule=True)
            return True

    def cancel(self, study_id: str) -> StudyRow:
        """Cancels its unfinished jobs and its extension. Raises NotFound; InvalidState: all have ended."""
        with self._database.writing() as connection:
            row = _locked(connection, study_id, self._filter)
            open_jobs = [job for job in _locked_jobs(connection, study_id) if JobState(job.state) in OPEN]
            looked_for = _study(connection, study_id).looked_for
            if not open_jobs and not looked_for:
                raise InvalidState(f"study {study_id} has ended and cannot be canceled")
            set_extension(connection, study_id, ["open"], "canceled")
            for job in reversed(open_jobs):  # Before their trainings: so they are canceled and do not fail.
                if job.state != JobState.CANCELING:
                    cancel_job(connection, job.id)
            for job in open_jobs:
                record(connection, self._by, "job.cancel", job.id, detail={"study": study_id})
            record(
                connection, self._by, "study.cancel", study_id, detail=owner_of(row.tenant or None, self._by)
            )
            return _study(connection, study_id)

    def retry(self, study_id: str) -> tuple[StudyRow, list[str]]:
        """Queues its failed, canceled and timed-out jobs again, and lets its extension go on.

        What they have finished is kept. Jobs that failed since a repeated shard has other bits are planned
        again. Raises NotFound; InvalidState: nothing to resume, or a job's training was deleted;
        TooManyRequests: a limit of its tenant.
        """
        with self._database.writing() as connection:
            row = _locked(connection, study_id, self._filter)
            found = [job for job in _locked_jobs(connection, study_id) if JobState(job.state) in RETRYABLE]
            ended = [job.id for job in found]
            if not set_extension(connection, study_id, REOPENED, "open") and not ended:
                raise InvalidState(f"study {study_id} has no job that failed, was canceled or timed out")
            for job in found:  # Oldest first: trainings before their evaluations.
                other_bits = (job.error or {}).get("type") == DIFFERENT
                retry_job(connection, job.id, self._limits, replan=other_bits)
            for job_id in ended:
                record(connection, self._by, "job.retry", job_id, detail={"study": study_id})
            record(
                connection, self._by, "study.retry", study_id, detail=owner_of(row.tenant or None, self._by)
            )
            return _study(connection, study_id), ended

    def delete(self, study_id: str) -> list[str]:
        """Deletes an ended study and its jobs; returns their ids. NotFound; InvalidState: open, or needed."""
        with self._database.writing() as connection:
            row = _locked(connection, study_id, self._filter)
            of_study = _locked_jobs(connection, study_id)
            looked_for = _study(connection, study_id).looked_for
            if looked_for or any(JobState(job.state) not in TERMINAL for job in of_study):
                raise InvalidState(f"study {study_id} has not ended: cancel it first")
            ids = [job.id for job in of_study]
            _check_unneeded(connection, study_id, ids, row.tenant)
            connection.execute(studies.delete().where(studies.c.id == study_id))
            for job in of_study:
                delete_job(connection, job)
            for job_id in ids:
                record(connection, self._by, "job.delete", job_id, detail={"study": study_id})
            record(
                connection, self._by, "study.delete", study_id, detail=owner_of(row.tenant or None, self._by)
            )
            return ids


TENANT_STORE = Studies  # which `TenantStore.features` gives to routes


def unknown_study(study_id: str) -> NotFound:
    """The error for an unknown study id."""
    return NotFound(f"there is no study {study_id[:100]}")


def _known(connection: Connection, tenant: str, key: str | None, body_sha256: str) -> str | None:
    if key is None:
        return None
    mine = (studies.c.tenant == tenant) & (studies.c.key == key)
    row = connection.execute(select(studies.c.id, studies.c.body_sha256).where(mine)).one_or_none()
    if row is not None and row.body_sha256 != body_sha256:
        raise IdempotencyMismatch("this Idempotency-Key was used before, with another body")
    return None if row is None else str(row.id)


def _study(connection: Connection, study_id: str, tenant: str | None = None) -> StudyRow:
    row = row_of(connection, studies, study_id, tenant)
    if row is None:
        raise unknown_study(study_id)
    extension = extensions_of(connection, [study_id]).get(study_id)
    return _study_row(row, _runs(connection, [study_id]).get(study_id, []), extension)


def _study_row(row: Row[Any], runs: list[StudyJobRow], extension: Extension | None) -> StudyRow:
    shown = (row.id, row.tenant, row.name, row.spec, row.templates, row.created_at)
    return StudyRow(*shown, runs, row.design, row.fixing, extension)


def _runs(connection: Connection, study_ids: Sequence[str]) -> dict[str, list[StudyJobRow]]:
    shown = (jobs.c.state, jobs.c.message, jobs.c.cost_done, jobs.c.cost_total)
    statement = (
        select(study_jobs, *shown)
        .outerjoin(jobs, jobs.c.id == study_jobs.c.job_id)
        .where(study_jobs.c.study_id.in_(study_ids))
        .order_by(study_jobs.c.seed, study_jobs.c.arm, study_jobs.c.role)
    )
    found: dict[str, list[StudyJobRow]] = {}
    for row in connection.execute(statement):
        state: RunState = "deleted" if row.state is None else JobState(row.state)
        failed = state in (JobState.FAILED, JobState.TIMED_OUT)
        run = StudyJobRow(
            arm=row.arm,
            seed=row.seed,
            role=row.role,
            job_id=row.job_id,
            state=state,
            share=1.0 if state is JobState.SUCCEEDED else _share(row),
            message=row.message if failed else "",
        )
        found.setdefault(row.study_id, []).append(run)
    return found


def _share(row: Row[Any]) -> float:
    return min(1.0, row.cost_done / row.cost_total) if row.cost_total else 0.0


def _locked(connection: Connection, study_id: str, tenant: str | None) -> Row[Any]:
    statement = select(studies).where(studies.c.id == study_id)
    if tenant is not None:
        statement = statement.where(studies.c.tenant == tenant)
    row = connection.execute(statement.with_for_update()).one_or_none()
    if row is None:
        raise unknown_study(study_id)
    return row


def _locked_jobs(connection: Connection, study_id: str) -> list[Row[Any]]:
    """Its remaining jobs, locked in the order of `transitions`: by ids."""
    named = select(study_jobs.c.job_id).where(study_jobs.c.study_id == study_id).distinct()
    locked = (lock_job(connection, job_id) for job_id in sorted(connection.execute(named).scalars()))
    return [job for job in locked if job is not None]


def _check_size(templates: Sequence[ArmTemplate], seeds: Sequence[int], new: Sequence[int]) -> None:
    count = job_count([template["train"] is not None for template in templates], len(seeds))
    if new and count > MAX_JOBS:
        message = f"the study would have up to {count} jobs; at most {MAX_JOBS} are allowed"
        detail = ErrorDetail(
            loc=["seeds"], message=message, given=len(new), allowed=f"at most {MAX_JOBS} jobs"
        )
        raise InvalidSpec(f"seeds: {message}", [detail])


def _check_unneeded(connection: Connection, study_id: str, ids: Sequence[str], tenant: str) -> None:
    """Raises InvalidState where an unfinished job outside the study needs its weights."""
    outside = (
        select(jobs.c.id, jobs.c.tenant)
        .join(dependencies, dependencies.c.job_id == jobs.c.id)
        .where(
            dependencies.c.depends_on.in_(ids),
            jobs.c.state.in_([str(state) for state in OPEN]),
            jobs.c.id.not_in(ids),
        )
    )
    found = connection.execute(outside.limit(1)).one_or_none()
    if found is not None:
        # The id of another tenant's job must not be disclosed.
        name = f"job {found.id}" if (found.tenant or "") == tenant else "a job of another tenant"
        raise InvalidState(f"{name} is not finished and needs weights of study {study_id}")

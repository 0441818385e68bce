"""The kept results of studies in the store, as text."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, exists, func, insert, select

from assay.service.contract.states import TERMINAL
from assay.service.store.clock import now
from assay.service.store.tables import jobs, results, studies, study_jobs
from assay.service.store.tenant_tables import study_extensions, study_results
from assay.service.store.tenants import TenantPart


class KeptTexts(TenantPart):
    """The texts of results. Every method is one short transaction."""

    def kept_text(self, study_id: str, sha256: str) -> str | None:
        """The text of a study as it is; None without."""
        mine = (study_results.c.study_id == study_id) & (study_results.c.sha256 == sha256)
        with self._database.reading() as connection:
            return connection.execute(select(study_results.c.results).where(mine)).scalar_one_or_none()

    def keep_text(self, study_id: str, sha256: str, text: str) -> None:
        """Keeps a text in place of the last."""
        row = {"study_id": study_id, "sha256": sha256, "results": text}
        with self._database.writing() as connection:
            connection.execute(delete(study_results).where(study_results.c.study_id == study_id))
            connection.execute(insert(study_results).values(**row, created_at=now()))

    def measured(self, study_id: str) -> str:
        """When the jobs of a study ended and their results were merged, which both may happen again."""
        mine = study_jobs.c.study_id == study_id
        ends = select(func.count(jobs.c.id), func.max(jobs.c.finished_at), func.sum(jobs.c.attempt))
        merges = select(func.count(results.c.job_id), func.max(results.c.created_at))
        with self._database.reading() as connection:
            found = (
                connection.execute(statement.where(mine)).one()
                for statement in (
                    ends.join(study_jobs, study_jobs.c.job_id == jobs.c.id),
                    merges.join(study_jobs, study_jobs.c.job_id == results.c.job_id),
                )
            )
            return str([tuple(row) for row in found])

    def without_text(self, tried: Collection[str] = ()) -> str | None:
        """The newest study that has ended since its results were kept, if they ever were."""
        mine = study_jobs.c.study_id == studies.c.id
        of_study = study_jobs.c.job_id == jobs.c.id
        ended = ~exists(
            select(jobs.c.id)
            .join(study_jobs, of_study)
            .where(mine, jobs.c.state.not_in([str(state) for state in TERMINAL]))
        )
        going_on = exists(
            select(study_extensions.c.study_id).where(
                study_extensions.c.study_id == studies.c.id, study_extensions.c.state == "open"
            )
        )
        end = select(func.coalesce(func.max(jobs.c.finished_at), 0.0)).join(study_jobs, of_study).where(mine)
        kept = exists(
            select(study_results.c.study_id).where(
                study_results.c.study_id == studies.c.id,
                study_results.c.created_at >= end.scalar_subquery(),
            )
        )
        due = select(studies.c.id).where(~kept, ended, ~going_on, studies.c.id.not_in(tried))
        with self._database.reading() as connection:
            return connection.execute(due.order_by(studies.c.id.desc()).limit(1)).scalar_one_or_none()

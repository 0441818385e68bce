"""The kept results of studies in the store, as text."""

from __future__ import annotations

from sqlalchemy import delete, exists, insert, select

from assay.service.contract.states import TERMINAL
from assay.service.store.clock import now
from assay.service.store.tables import jobs, studies, study_jobs
from assay.service.store.tenant_tables import study_results
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

    def without_text(self) -> str | None:
        """The newest ended study of which nothing was ever kept."""
        mine = study_jobs.c.study_id == studies.c.id
        open_jobs = select(jobs.c.id).join(study_jobs, study_jobs.c.job_id == jobs.c.id).where(mine)
        ended = ~exists(open_jobs.where(jobs.c.state.not_in([str(state) for state in TERMINAL])))
        kept = select(study_results.c.study_id).where(study_results.c.study_id == studies.c.id)
        due = select(studies.c.id).where(~exists(kept), ended).order_by(studies.c.id.desc())
        with self._database.reading() as connection:
            return connection.execute(due.limit(1)).scalar_one_or_none()

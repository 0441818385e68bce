"""Finished evaluations for leaderboards: the newest ones, read in bounded pieces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from assay.service.contract.records import JobProvenance, Plan, ResultJson
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.files.job_files import SIGNATURE_FILE
from assay.service.store.tables import artifacts, jobs, results
from assay.service.store.tenants import TenantPart

MAX_JOBS = 2000
MAX_CHARACTERS = 2_000_000  # of a job's results; a job with more is left out


@dataclass(frozen=True)
class FinishedJobRow:
    """A succeeded evaluation with its merged results by position."""

    id: str
    spec: Spec
    plan: Plan | None
    provenance: JobProvenance | None
    results: dict[int, ResultJson]


class Leaderboards(TenantPart):
    """The finished evaluations that a caller sees. Every method is one short transaction."""

    def newest(self) -> tuple[list[str], bool]:
        """Ids of the newest `MAX_JOBS` succeeded evaluations, and whether there are more."""
        wanted = (jobs.c.state == str(JobState.SUCCEEDED)) & (jobs.c.kind == "evaluate")
        statement = select(jobs.c.id).where(wanted).order_by(jobs.c.id.desc()).limit(MAX_JOBS + 1)
        if self._filter is not None:
            statement = statement.where(jobs.c.tenant == self._filter)
        with self._database.reading() as connection:
            found = list(connection.execute(statement).scalars())
        return found[:MAX_JOBS], len(found) > MAX_JOBS

    def read(self, job_ids: Sequence[str]) -> list[FinishedJobRow]:
        """These jobs, with results of at most `MAX_CHARACTERS`."""
        of_these = results.c.job_id.in_(job_ids)
        total = func.sum(func.length(results.c.result))
        sized = select(results.c.job_id).where(of_these).group_by(results.c.job_id)
        columns = (jobs.c.id, jobs.c.spec, jobs.c.plan, jobs.c.provenance)
        with self._database.reading() as connection:
            fitting = list(connection.execute(sized.having(total <= MAX_CHARACTERS)).scalars())
            chosen = select(*columns).where(
                jobs.c.id.in_(fitting), func.length(jobs.c.spec) <= MAX_CHARACTERS
            )
            if self._filter is not None:
                chosen = chosen.where(jobs.c.tenant == self._filter)
            described = connection.execute(chosen).all()
            ids = [row.id for row in described]
            merged = connection.execute(select(results).where(results.c.job_id.in_(ids))).all()
        found: dict[str, dict[int, ResultJson]] = {}
        for row in merged:
            found.setdefault(row.job_id, {})[row.evaluation] = row.result
        return [
            FinishedJobRow(row.id, row.spec, row.plan, row.provenance, found.get(row.id, {}))
            for row in described
        ]

    def specs(self, job_ids: Collection[str]) -> dict[str, Spec]:
        """The specs of the jobs that exist, by id."""
        chosen = select(jobs.c.id, jobs.c.spec).where(
            jobs.c.id.in_(job_ids), func.length(jobs.c.spec) <= MAX_CHARACTERS
        )
        if self._filter is not None:
            chosen = chosen.where(jobs.c.tenant == self._filter)
        with self._database.reading() as connection:
            return {row.id: row.spec for row in connection.execute(chosen)}

    def signed(self, job_ids: Collection[str]) -> set[str]:
        """The jobs with signed results."""
        theirs = artifacts.c.job_id.in_(job_ids) & (artifacts.c.name == SIGNATURE_FILE)
        statement = select(artifacts.c.job_id).where(theirs)
        if self._filter is not None:
            statement = statement.join(jobs, jobs.c.id == artifacts.c.job_id).where(
                jobs.c.tenant == self._filter
            )
        with self._database.reading() as connection:
            return set(connection.execute(statement).scalars())


TENANT_STORE = Leaderboards  # which `TenantStore.features` gives to pages

"""Finished evaluations for leaderboards: the newest ones, read in bounded pieces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from assay.service.contract.records import JobProvenance, Plan, ResultJson
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.signing.wire import SIGNATURE_FILE
from assay.service.store.database import Database
from assay.service.store.tables import artifacts, jobs, results

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


class Leaderboards:
    """Finished evaluations. Every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, tenant: str | None) -> tuple[list[str], bool]:
        """Ids of the newest `MAX_JOBS` succeeded evaluations, of a tenant if given; whether more exist."""
        wanted = (jobs.c.state == str(JobState.SUCCEEDED)) & (jobs.c.kind == "evaluate")
        statement = select(jobs.c.id).where(wanted).order_by(jobs.c.id.desc()).limit(MAX_JOBS + 1)
        if tenant is not None:
            statement = statement.where(jobs.c.tenant == tenant)
        with self._database.reading() as connection:
            found = list(connection.execute(statement).scalars())
        return found[:MAX_JOBS], len(found) > MAX_JOBS

    def read(self, job_ids: Sequence[str], tenant: str | None) -> list[FinishedJobRow]:
        """These jobs, of a tenant if given, with results of at most `MAX_CHARACTERS`."""
        of_these = results.c.job_id.in_(job_ids)
        total = func.sum(func.length(results.c.result))
        sized = select(results.c.job_id).where(of_these).group_by(results.c.job_id)
        columns = (jobs.c.id, jobs.c.spec, jobs.c.plan, jobs.c.provenance)
        with self._database.reading() as connection:
            fitting = list(connection.execute(sized.having(total <= MAX_CHARACTERS)).scalars())
            chosen = select(*columns).where(
                jobs.c.id.in_(fitting), func.length(jobs.c.spec) <= MAX_CHARACTERS
            )
            if tenant is not None:
                chosen = chosen.where(jobs.c.tenant == tenant)
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

    def specs(self, job_ids: Collection[str], tenant: str | None) -> dict[str, Spec]:
        """The specs of the jobs that exist, by id; with a tenant, of that tenant's."""
        chosen = select(jobs.c.id, jobs.c.spec).where(
            jobs.c.id.in_(job_ids), func.length(jobs.c.spec) <= MAX_CHARACTERS
        )
        if tenant is not None:
            chosen = chosen.where(jobs.c.tenant == tenant)
        with self._database.reading() as connection:
            return {row.id: row.spec for row in connection.execute(chosen)}

    def signed(self, job_ids: Collection[str], tenant: str | None) -> set[str]:
        """The jobs with signed results; with a tenant, of that tenant."""
        theirs = artifacts.c.job_id.in_(job_ids) & (artifacts.c.name == SIGNATURE_FILE)
        statement = select(artifacts.c.job_id).where(theirs)
        if tenant is not None:
            statement = statement.join(jobs, jobs.c.id == artifacts.c.job_id).where(jobs.c.tenant == tenant)
        with self._database.reading() as connection:
            return set(connection.execute(statement).scalars())


class TenantLeaderboards:
    """The finished evaluations that a caller sees; `tenant` None: all tenants."""

    def __init__(self, rows: Leaderboards, tenant: str | None) -> None:
        self._rows = rows
        self._tenant = tenant

    def newest(self) -> tuple[list[str], bool]:
        """Ids of the newest jobs, and whether there are more."""
        return self._rows.newest(self._tenant)

    def read(self, job_ids: Sequence[str]) -> list[FinishedJobRow]:
        """The jobs with results that are not too long."""
        return self._rows.read(job_ids, self._tenant)

    def specs(self, job_ids: Collection[str]) -> dict[str, Spec]:
        """Specs by job id."""
        return self._rows.specs(job_ids, self._tenant)

    def signed(self, job_ids: Collection[str]) -> set[str]:
        """The jobs with signed results."""
        return self._rows.signed(job_ids, self._tenant)

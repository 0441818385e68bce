"""The list of files written by jobs; the files themselves are on disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select
from sqlalchemy.exc import IntegrityError

from assay.service.contract.errors import NotFound
from assay.service.contract.states import TERMINAL
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import StorePart
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import ArtifactRow
from assay.service.store.tables import artifacts, jobs
from assay.service.store.transactions.dependencies import has_unfinished_dependent
from assay.service.store.transactions.transitions import lock_job

WEIGHTS = "weights.safetensors"
UPLOAD = ".upload-"  # Prefix of the names of unfinished uploads.
AGAIN = ".again-"  # The same of folders of shards that are computed again; a shard's id follows.


@dataclass(frozen=True)
class ExpiredFolders:
    """Jobs that may lose their files: `expired` ended long ago, `unknown` are not in the database."""

    expired: set[str]
    unknown: set[str]


class Artifacts(StorePart):
    """Files by job and name."""

    def add(self, job_id: str, name: str, path: str, size: int, sha256: str, media_type: str) -> None:
        """Records a file of `size` bytes, replaces its namesake. Raises NotFound: no such job."""
        values = {
            "job_id": job_id,
            "name": name,
            "path": path,
            "size": size,
            "sha256": sha256,
            "media_type": media_type,
            "created_at": now(),
            "expired_at": None,
        }
        try:
            with self._database.writing() as connection:
                upsert(connection, artifacts, values)
        except IntegrityError as error:
            raise unknown_job(job_id) from error

    def of(self, job_id: str) -> list[ArtifactRow]:
        """The files of a job, by name."""
        statement = select(artifacts).where(artifacts.c.job_id == job_id)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return sorted((_artifact(row) for row in rows), key=lambda artifact: artifact.name)

    def expire(self, job_ids: Collection[str], keep_seconds: float | None) -> ExpiredFolders:
        """Selects jobs with these ids that may lose their files; first marks their artifacts as expired."""
        # They ended over `keep_seconds` ago (None: no limit), and no unfinished job needs their weights.
        # Adding a dependent locks the training job's row, as this does, and checks the mark.
        with self._database.reading() as connection:
            known = select(jobs.c.id).where(jobs.c.id.in_(list(job_ids)))
            found = set(connection.execute(known).scalars())
            unknown = set(job_ids) - found
            if keep_seconds is None:
                return ExpiredFolders(expired=set(), unknown=unknown)
            old = set(connection.execute(known.where(_old(keep_seconds))).scalars())
        expired = {job_id for job_id in sorted(old) if self._expire(job_id, keep_seconds)}
        return ExpiredFolders(expired=expired, unknown=unknown)

    def _expire(self, job_id: str, keep_seconds: float) -> bool:
        with self._database.writing() as connection:
            if lock_job(connection, job_id) is None:
                return False
            still = select(jobs.c.id).where(jobs.c.id == job_id, _old(keep_seconds))
            if connection.execute(still).scalar() is None:
                return False
            there = (artifacts.c.job_id == job_id) & artifacts.c.expired_at.is_(None)
            connection.execute(artifacts.update().where(there).values(expired_at=now()))
            return True

    def get(self, job_id: str, name: str) -> ArtifactRow:
        """One file. Raises NotFound: the job has no such file."""
        statement = select(artifacts).where(artifacts.c.job_id == job_id, artifacts.c.name == name)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise NotFound(f"job {job_id[:100]} has no artifact {name[:200]}")
        return _artifact(row)


def weights_expired(connection: Connection, job_id: str) -> bool:
    """Whether a training job's weights were deleted for their age; the caller holds the job's row."""
    gone = (
        (artifacts.c.job_id == job_id) & (artifacts.c.name == WEIGHTS) & artifacts.c.expired_at.is_not(None)
    )
    return connection.execute(select(artifacts.c.name).where(gone)).first() is not None


def _old(keep_seconds: float) -> ColumnElement[bool]:
    ended = jobs.c.state.in_([str(state) for state in TERMINAL]) & (jobs.c.finished_at < now() - keep_seconds)
    return ended & (jobs.c.kind != "check") & ~has_unfinished_dependent()  # A checkpoint stays until deleted.


def _artifact(row: Row[Any]) -> ArtifactRow:
    return ArtifactRow(**row._mapping)

"""The list of files that jobs left; the files themselves are on disk."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.exc import IntegrityError

from service.contract.errors import NotFound
from service.store.clock import now
from service.store.database import Database
from service.store.reading import unknown_job
from service.store.rows import ArtifactRow
from service.store.tables import artifacts
from service.store.upsert import upsert


class Artifacts:
    """Files by job and name. Every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job_id: str, name: str, path: str, size: int, sha256: str, media_type: str) -> None:
        """Notes a file of `size` bytes; a file of the same name is replaced.

        Raises:
            NotFound: when the job has been deleted.
        """
        values = {
            "job_id": job_id,
            "name": name,
            "path": path,
            "size": size,
            "sha256": sha256,
            "media_type": media_type,
            "created_at": now(),
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

    def get(self, job_id: str, name: str) -> ArtifactRow:
        """One file.

        Raises:
            NotFound: when the job has no file of this name.
        """
        statement = select(artifacts).where(artifacts.c.job_id == job_id, artifacts.c.name == name)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            raise NotFound(f"job {job_id[:100]} has no artifact {name[:200]}")
        return _artifact(row)


def _artifact(row: Row[Any]) -> ArtifactRow:
    return ArtifactRow(**row._mapping)

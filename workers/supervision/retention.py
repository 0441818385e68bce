"""Deletes files of jobs that ended long ago, folders of deleted jobs, and old audit entries. Results stay.

The sweep goes over folders: a half-deleted folder is found again. The database decides on each folder, and
marks its artifacts before the first file is deleted.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from assay.service.store.artifacts import AGAIN, UPLOAD
from assay.service.store.ids import is_id
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings

log = logging.getLogger(__name__)
DAY = 86400.0
EVERY_SECONDS = 600.0
BATCH = 100
MAX_PER_SWEEP = 100  # The calling reaper has lost shards to handle: the next sweep deletes the rest
SOON_SECONDS = 30.0
ORPHAN_SECONDS = 7 * DAY  # The database may be a backup, older than a folder without a job
GOING = ".expired-"


class Retention:
    """Sweeps the artifacts folder every ten minutes; any number of workers may do so."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self._store = store
        self._folder = settings.artifacts
        self._keep = settings.keep_artifacts_days * DAY or None
        self._keep_audit_days = settings.keep_audit_days
        self._due = time.monotonic()

    def sweep_when_due(self) -> None:
        """Sweeps unless done in the last minutes. Raises OperationalError: no database."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self.sweep_audit()
            if self.sweep() >= MAX_PER_SWEEP:
                self._due = time.monotonic() + SOON_SECONDS

    def sweep(self) -> int:
        """One pass over the folders; returns the number removed. OperationalError: no database."""
        for path in self._folder.glob(f"{GOING}*"):
            shutil.rmtree(path, ignore_errors=True)  # left by a killed worker
        for path in self._folder.glob(f"{UPLOAD}*"):
            if _age(path) > DAY:  # of a killed service: a day without a byte is no upload
                path.unlink(missing_ok=True)
        for path in self._folder.glob(f"{AGAIN}*"):
            if _age(path) > DAY:
                shutil.rmtree(path, ignore_errors=True)
        removed, known = 0, 0
        orphans: set[str] = set()
        for names in _batches(path.name for path in self._folder.glob("*") if is_id(path.name)):
            verdict = self._store.artifacts.expire(names, self._keep)
            known += len(names) - len(verdict.unknown)
            orphans |= verdict.unknown
            removed += sum(self._remove(job_id) for job_id in sorted(verdict.expired))
            if removed >= MAX_PER_SWEEP:
                return removed
        return removed + self._remove_orphans(orphans, known)

    def sweep_audit(self) -> None:
        """Removes at most 10,000 old audit entries. Raises OperationalError: no database."""
        removed = self._store.audit.expire(self._keep_audit_days) if self._keep_audit_days else 0
        if removed:
            log.info("%d audit entries were removed, older than %d days", removed, self._keep_audit_days)

    def _remove_orphans(self, orphans: Collection[str], known: int) -> int:
        old = sorted(name for name in orphans if _age(self._folder / name) > ORPHAN_SECONDS)
        if old and len(orphans) > known:
            log.warning(
                "%d of %d job folders in %s have no job in the database: nothing is deleted,"
                " it looks like the wrong database or the wrong folder",
                len(orphans),
                len(orphans) + known,
                self._folder,
            )
            return 0
        return sum(self._remove(name) for name in old)

    def _remove(self, job_id: str) -> bool:
        folder = self._folder / job_id
        # Renamed first: a retry of the job must not find half of its old files.
        going = self._folder / f"{GOING}{job_id}-{uuid.uuid4().hex}"
        try:
            folder.rename(going)
            shutil.rmtree(going)
        except FileNotFoundError:  # another worker was faster
            return False
        except OSError as error:
            log.warning("job %s: its files could not be deleted: %s", job_id, error)
            return False
        log.info("job %s: its files were deleted, they had expired", job_id)
        return True


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(names, BATCH)):
        yield batch


def _age(folder: Path) -> float:
    try:
        newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return 0.0
    return time.time() - newest

"""Deletes files of jobs that ended long ago, folders of deleted jobs, and old audit entries. Results stay.

The sweep goes over folders: a half-deleted folder is found again. The database decides on each folder, and
marks its artifacts before the first file is deleted.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Iterator
from itertools import islice

from assay.service.files.file_store import StoreAway, age_of
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


class Retention:
    """Sweeps the artifacts folder every ten minutes; any number of workers may do so."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self._store = store
        self._folder, self._files = settings.artifacts, settings.file_store
        self._keep = settings.keep_artifacts_days * DAY or None
        self._keep_audit_days = settings.keep_audit_days
        self._due = time.monotonic()

    def sweep_when_due(self) -> None:
        """Sweeps unless done in the last minutes. Raises OperationalError: no database."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self.sweep_audit()
            try:
                if self.sweep() >= MAX_PER_SWEEP:
                    self._due = time.monotonic() + SOON_SECONDS
            except StoreAway as error:
                log.warning("no files are deleted now: %s", error)

    def sweep(self) -> int:
        """One pass over the folders; returns the number removed. OperationalError: no database."""
        self._files.tidy()
        for path in self._folder.glob(f"{UPLOAD}*"):
            if age_of(path) > DAY:  # of a killed service: a day without a byte is no upload
                path.unlink(missing_ok=True)
        for path in self._folder.glob(f"{AGAIN}*"):
            if age_of(path) > DAY:
                shutil.rmtree(path, ignore_errors=True)
        removed, known = 0, 0
        orphans: set[str] = set()
        for names in _batches(filter(is_id, self._files.jobs())):
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
        old = sorted(name for name in orphans if self._files.age(name) > ORPHAN_SECONDS)
        if old and len(orphans) > known:
            log.warning(
                "%d of %d job folders have no job in the database: nothing is deleted,"
                " it looks like the wrong database or the wrong folder",
                len(orphans),
                len(orphans) + known,
            )
            return 0
        return sum(self._remove(name) for name in old)

    def _remove(self, job_id: str) -> bool:
        try:
            if not self._files.clear(job_id):  # another worker was faster
                return False
        except OSError as error:
            log.warning("job %s: its files could not be deleted: %s", job_id, error)
            return False
        log.info("job %s: its files were deleted, they had expired", job_id)
        return True


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(names, BATCH)):
        yield batch

"""Puts right what a crash left: expired leases, dead owners, overdue jobs, results that were not merged."""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import OperationalError

from service.store.session import Store
from workers import owner
from workers.settings import WorkerSettings
from workers.supervisor import merge_and_finish

log = logging.getLogger(__name__)


class Reaper(threading.Thread):
    """Sweeps the database every few seconds; any number of reapers may run."""

    def __init__(self, store: Store, settings: WorkerSettings, *, interval: float = 2.0) -> None:
        super().__init__(name="reaper", daemon=True)
        self._store = store
        self._settings = settings
        self._interval = interval
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End after the current sweep."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped; a database that is away is waited for."""
        while not self._stopping.is_set():
            try:
                self.sweep()
            except OperationalError as error:
                log.warning("the database is away: %s", error)
            self._stopping.wait(self._interval)

    def sweep(self) -> None:
        """One pass over everything that can be stuck."""
        dead = sorted({row.worker for row in self._store.shards.running() if owner.is_dead(row.worker)})
        expired = self._store.shards.expire(dead_owners=dead)
        if expired:
            log.warning("%d leases expired or belonged to a dead process", expired)
        overdue = self._store.jobs.time_out()
        if overdue:
            log.warning("%d jobs timed out", overdue)
        for job_id in self._store.jobs.ready_to_finish():
            log.info("job %s: merging again", job_id)
            merge_and_finish(self._store, self._settings, job_id, None, job_done=True)

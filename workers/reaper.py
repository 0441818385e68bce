"""Puts right what a crash left: expired leases, dead owners, overdue jobs, results that were not merged."""

from __future__ import annotations

import logging
import threading

from service.store.session import Store
from workers import owner
from workers.away import DATABASE_AWAY
from workers.finishing import finish_job
from workers.settings import WorkerSettings

log = logging.getLogger(__name__)


class Reaper(threading.Thread):
    """Sweeps the database every `interval` seconds; any number of reapers may run."""

    def __init__(self, store: Store, settings: WorkerSettings, *, interval: float = 2.0) -> None:
        super().__init__(name="reaper", daemon=True)
        self._store = store
        self._settings = settings
        self._interval = interval
        self._stopping = threading.Event()
        self._unmerged: set[str] = set()

    def stop(self) -> None:
        """End after the current sweep."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped; a database that is away is waited for, and no error ends it."""
        while not self._stopping.is_set():
            try:
                self.sweep()
            except DATABASE_AWAY as error:
                log.warning("the database is away: %s", error)
            except Exception:  # a reaper that dies unseen would leave lost shards lost
                log.exception("reaper: unexpected error, going on")
            self._stopping.wait(self._interval)

    def sweep(self) -> None:
        """One pass over everything that can be stuck.

        A job whose shards are all done is merged when the sweep before saw it too: most likely a
        supervisor is just merging it.
        """
        dead = sorted({row.worker for row in self._store.shards.running() if owner.is_dead(row.worker)})
        expired = self._store.shards.expire(dead_owners=dead)
        if expired:
            log.warning("%d leases expired or belonged to a dead process", expired)
        overdue = self._store.jobs.time_out()
        if overdue:
            log.warning("%d jobs timed out", overdue)
        ready = set(self._store.jobs.ready_to_finish())
        for job_id in sorted(ready & self._unmerged):
            log.info("job %s: merging again", job_id)
            finish_job(self._store, self._settings, job_id)
        self._unmerged = ready

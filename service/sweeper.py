"""Ends expired leases and overdue jobs, even when no worker is left to do it.

Workers do the same and more (`workers.supervision.reaper`). Without workers and sweeper a canceled job would
stay `canceling` until a worker starts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from assay.service.store.fleet.duty import Duty, Silence
from assay.service.store.fleet.workers import REAPER
from assay.service.store.store import Store

log = logging.getLogger(__name__)
SWEEP_SECONDS = 10.0
DUTY_SWEEPS = 3


class Sweeper(threading.Thread):
    """Sweeps the database every few seconds; of any number of sweepers, one leads.

    `opener`: gives the open store; raises the database's error while it is away. `seconds`: between two
    sweeps.
    """

    def __init__(self, opener: Callable[[], Store], seconds: float = SWEEP_SECONDS) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._opener = opener
        self._seconds = seconds
        self._stopping = threading.Event()
        self._reaper = Silence(REAPER, DUTY_SWEEPS * seconds)
        self._duty = Duty("sweeper", DUTY_SWEEPS * seconds)
        self.start()

    def close(self) -> None:
        """End after the current sweep."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Sweep until closed; waits while the database is away, and survives every error."""
        while not self._stopping.wait(self._seconds):
            try:
                self.sweep()
            except (DBAPIError, PoolTimeout):
                log.debug("the database is away")  # the service's answers report it
            except Exception:
                log.exception("sweeper: unexpected error, going on")

    def sweep(self) -> None:
        """One pass, unless a worker's reaper does it, or another service."""
        store = self._opener()
        if not self._reaper.look(store):
            self._duty.stand_by(store)
            return
        if not self._duty.held(store):
            return
        at = self._duty.at
        expired, overdue = store.shards.expire(at=at), store.jobs.time_out(at)
        if expired or overdue:
            log.warning("%d leases expired, %d jobs timed out", expired, overdue)

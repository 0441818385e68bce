"""Repairs the effects of crashes: expired leases, dead owners, overdue jobs, lost merges and doorbells."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from assay.service.reports.summaries import summarise_earlier
from assay.service.store.artifacts import UPLOAD
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.duty import Duty
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.fleet.workers import REAPER
from assay.service.store.store import Store
from assay.workers.devices import device_count
from assay.workers.identity import identity
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.completion import finish_evaluation, finish_job
from assay.workers.supervision.counters import WorkerCounters
from assay.workers.supervision.ledger import DATABASE_UNAVAILABLE
from assay.workers.supervision.retention import Retention

log = logging.getLogger(__name__)
OWN_SECONDS = 10.0  # Between looks of a reaper that does not lead
DUTY_SECONDS, DUTY_SWEEPS = 10.0, 3  # Silence, and sweeps, after which another reaper leads
MERGE_SECONDS = 5.0  # Between looks for evaluations that a gateway's workers leave unmerged
PRUNE_SECONDS = 600.0  # Between removals of empty lanes, and looks for jobs without a summary
WAITED_SECONDS = 600.0  # Of a repeated shard for another worker


class Reaper(threading.Thread):
    """Sweeps the database every `sweep_seconds`; of any number of reapers, one leads.

    `grace_seconds`: after its start no lease expires, for workers whose gateway was away with it; they renew.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        *,
        device_classes: Sequence[str],
        ring: Callable[[], None] = lambda: None,
        grace_seconds: float = 0.0,
    ) -> None:
        super().__init__(name="reaper", daemon=True)
        self._store = store
        self._settings = settings
        self._devices = tuple(device_classes)
        self._ring = ring
        self._stopping = threading.Event()
        self._duty = Duty(REAPER, DUTY_SECONDS + DUTY_SWEEPS * settings.sweep_seconds, settings.lease_seconds)
        self._expires_from = time.monotonic() + grace_seconds
        self._looked_at = float("-inf")
        self._pruned_at = float("-inf")
        self._unmerged: set[str] = set()
        self._measured: set[tuple[str, int]] = set()
        self._merged_at = float("-inf")
        self._all_summarised = False
        self._counters = WorkerCounters()
        self._retention = Retention(store, settings)

    def stop(self) -> None:
        """End after the current sweep."""
        self._stopping.set()

    def run(self) -> None:
        """Sweep until stopped; waits for the database, survives every error."""
        while not self._stopping.is_set():
            try:
                self.sweep()
            except DATABASE_UNAVAILABLE as error:
                log.warning("the database is away: %s", error)
            except Exception:  # a dead reaper would leave lost shards lost
                log.exception("reaper: unexpected error, going on")
            self._stopping.wait(self._settings.sweep_seconds)
        try:
            self._duty.release(self._store)
        except DATABASE_UNAVAILABLE:
            log.warning("the database is away: another reaper follows when this one has been silent")

    def sweep(self) -> None:
        """One pass: over this machine's dead processes, and if it leads, over all stuck work."""
        leads = self._duty.held(self._store)
        dead: list[str] = []
        if leads or time.monotonic() - self._looked_at >= OWN_SECONDS:
            self._looked_at = time.monotonic()
            held = self._store.shards.running()
            dead = sorted({row.worker for row in held if lease_owner.is_dead(row.worker)})
        leases = leads and time.monotonic() >= self._expires_from
        expired = self._store.shards.expire(dead_owners=dead, leases=leases, at=self._duty.at)
        if expired:
            self._counters.count("assay_shard_losses_total", expired)
            log.warning("%d leases expired or belonged to a dead process", expired)
        if leads:
            self._sweep_for_all()
        else:
            self._unmerged, self._measured = set(), set()
        self._counters.write(self._store.counters)

    def _sweep_for_all(self) -> None:
        """What one reaper does for all."""
        overdue = self._store.jobs.time_out(self._duty.at)
        if overdue:
            log.warning("%d jobs timed out", overdue)
        ready = set(self._store.jobs.ready_to_finish())
        for job_id in sorted(ready & self._unmerged):
            log.info("job %s: merging again", job_id)
            finish_job(self._store, self._settings, job_id)
        self._unmerged = ready
        self._merge_evaluations()
        self._all_summarised = self._all_summarised or summarise_earlier(self._store) == 0
        self._retention.sweep_when_due()
        for upload in self._store.uploads.sweep(self._settings.upload_idle_seconds):
            (self._settings.artifacts / f"{UPLOAD}{upload}").unlink(missing_ok=True)
        if time.monotonic() - self._pruned_at > PRUNE_SECONDS:
            self._pruned_at = time.monotonic()
            self._store.lanes.prune()
            self._all_summarised = False  # An older process may have merged jobs since.
        self._store.jobs.free_repetitions(WAITED_SECONDS)
        pool = (self._devices, device_count(self._settings.devices), self._settings.limits)
        self._store.shards.keep_time(*pool)
        mine = identity()["digest"]
        if self._store.shards.claimable(*pool, mine) or self._store.shards.claimable(
            (CHECKS,), identity=mine
        ):
            self._ring()

    def _merge_evaluations(self) -> None:
        if time.monotonic() - self._merged_at < MERGE_SECONDS:
            return
        self._merged_at = time.monotonic()
        measured = {*self._store.jobs.unmerged()}
        for job_id, evaluation in sorted(measured & self._measured):
            finish_evaluation(self._store, self._settings, job_id, evaluation)
        self._measured = measured

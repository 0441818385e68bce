"""Rates of a running shard's reports and checks, with Redis in front of the database.

Without Redis every report is written at once, and every check asks the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from assay.service.contract.messages import ProgressReport
from assay.service.store.live import Live
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.outcome_spool import DATABASE_UNAVAILABLE

log = logging.getLogger(__name__)
LIVE_SECONDS = 0.5
DATABASE_SECONDS = 5.0
STALL_FACTOR = 10.0
LOADING_FACTOR = 6.0


class ProgressReporter:
    """Progress of one shard: to Redis at most twice a second, to the database every few seconds.

    While Redis does not answer, the database gets what Redis would have got.
    """

    def __init__(self, store: Store, live: Live, claim: Claim) -> None:
        self._store = store
        self._live = live
        self._claim = claim
        self._seconds = DATABASE_SECONDS if live.used else 0.0
        self._recorded_at = self._told_at = float("-inf")
        self._waiting: ProgressReport | None = None
        self._told = False

    def note(self, message: ProgressReport) -> None:
        """Takes a report of the evaluator; it replaces one that is still waiting."""
        self._waiting, self._told = message, False
        self.tick()

    def tick(self) -> None:
        """Sends due reports; to be called often, so that no report waits for the next one."""
        if self._waiting is None:
            return
        now = time.monotonic()
        if now - self._recorded_at >= self._seconds:
            self._record(self._waiting)
        elif not self._told and now - self._told_at >= LIVE_SECONDS:
            self._told, self._told_at = True, now
            if not self._live.report(self._claim, self._waiting["done"]):
                self._record(self._waiting)

    def close(self) -> None:
        """Writes the last report to the database in any case."""
        if self._waiting is not None:
            self._record(self._waiting)

    def _record(self, message: ProgressReport) -> None:
        self._waiting, self._recorded_at = None, time.monotonic()
        try:
            text = message.get("message")
            self._store.shards.progress(self._claim, message["done"], message["total"], text)
        except DATABASE_UNAVAILABLE as error:
            log.warning("shard %s: progress not recorded: %s", self._claim.shard_id, error)


class Stalled(Exception):
    """The evaluator of a shard goes on without getting on."""


class ProgressDeadline:
    """Ends a shard that makes no progress: a lease proves that its supervisor lives, not that work goes on.

    Args:
        claim: of the shard.
        stall_seconds: the shortest deadline; an evaluate shard has ten times its expected seconds, and shards
            that plan and train, which load and hash data first, have at least half an hour.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, claim: Claim, stall_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        loading = LOADING_FACTOR * stall_seconds if claim.kind in ("plan", "train") else 0.0
        self.seconds = max(stall_seconds, STALL_FACTOR * claim.expected_seconds, loading)
        self._clock = clock
        self._at = clock()
        self._last: tuple[int, str] | None = None

    def note(self, report: ProgressReport) -> None:
        """Takes a report of the evaluator: one that says the same as the last is no progress."""
        said = (report["done"], report["message"])
        if said != self._last:
            self._at, self._last = self._clock(), said

    def check(self) -> None:
        """Looks whether it is over.

        Raises:
            Stalled: it is.
        """
        if self._clock() - self._at > self.seconds:
            last = "" if self._last is None else f" after {self._last[0]:,} ({self._last[1]})"
            raise Stalled(
                f"the shard made no progress for {self.seconds:,.0f} s{last}, and its evaluator was ended"
                " (ASSAY_STALL_SECONDS, or ten times what the plan expects of the shard)"
            )


class Watch:
    """Schedules a running shard's checks whether to go on."""

    def __init__(self, live: Live, claim: Claim, settings: WorkerSettings) -> None:
        self._live = live
        self._claim = claim
        self._renewal_seconds = settings.renewal_seconds
        self._asked_at = time.monotonic()
        self.seconds = min(settings.control_seconds, settings.renewal_seconds)

    def due(self) -> bool:
        """Whether to ask now, due to time or a hint in Redis; to be called every `seconds`."""
        now = time.monotonic()
        # Half an interval early is better than half late: a lease may be short.
        late = now - self._asked_at >= self._renewal_seconds - self.seconds / 2
        if not late and not self._live.canceled(self._claim):
            return False
        self._asked_at = now
        return True

"""Rates of a running shard's reports and checks, with Redis in front of the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from assay.service.contract.messages import ProgressReport
from assay.service.contract.records import TrainingSpeed
from assay.service.store.live import Live
from assay.service.store.rows import Claim
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import Work
from assay.workers.supervision.ledger import LEDGER_AWAY, WorkLedger

log = logging.getLogger(__name__)
LIVE_SECONDS = 0.5
DATABASE_SECONDS = 5.0
STALL_FACTOR = 10.0
# A measured shard longer than `motionless_seconds` has one long step: times the plan's expectation.
LONG_FACTOR = 3.0
LOADING_FACTOR = 6.0
LOOK_SECONDS = 10.0
BUSY_SHARE = 0.01  # A computing process takes more of a core, also while it waits for its GPU
TOLD_SECONDS = 60.0


class ProgressReporter:
    """Progress: to Redis at most twice a second, to the database every few seconds, or all without Redis."""

    def __init__(self, ledger: WorkLedger, live: Live, claim: Claim) -> None:
        self._ledger = ledger
        self._live = live
        self._claim = claim
        self._seconds = DATABASE_SECONDS if ledger.remote or live.used else 0.0
        self._recorded_at = self._told_at = float("-inf")
        self._waiting: ProgressReport | None = None
        self._told = False

    def note(self, message: ProgressReport) -> None:
        """Takes a report; it replaces a waiting report."""
        self._waiting, self._told = message, False
        self.tick()

    def tick(self) -> None:
        """Sends due reports; to be called often."""
        if self._waiting is None:
            return
        now = time.monotonic()
        if now - self._recorded_at >= self._seconds:
            self._record(self._waiting)
        elif self._live.used and not self._told and now - self._told_at >= LIVE_SECONDS:
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
            speed = _speed(message)
            self._ledger.progress(self._claim, message["done"], message["total"], text, speed)
        except LEDGER_AWAY as error:
            log.warning("shard %s: progress not recorded: %s", self._claim.shard_id, error)


def _speed(message: ProgressReport) -> TrainingSpeed:
    found = TrainingSpeed()
    if rate := message.get("examples_per_second"):
        found["examples_per_second"] = rate
    if (gpu := message.get("gpu")) is not None:
        found["gpu_memory"] = round(min(1.0, gpu["used"] / max(gpu["total"], 1)), 3)
        if "busy" in gpu:
            found["gpu_busy"] = gpu["busy"]
    return found


class Stalled(Exception):
    """The evaluator of a shard goes on without getting on."""


class ProgressDeadline:
    """Ends a shard that makes no progress: a lease only proves that its supervisor lives.

    `stall_seconds`: the shortest deadline; an evaluate shard has ten times its expected seconds, shards that
    plan and train, which load and hash data first, at least half an hour. `motionless_seconds`: the longest
    time without progress or computing; and the longest deadline, unless three times the expected seconds, or
    half an hour, are more. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        claim: Claim,
        stall_seconds: float,
        motionless_seconds: float,
        work: Callable[[], Work],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        loading = LOADING_FACTOR * stall_seconds if claim.kind in ("plan", "train") else 0.0
        longest = max(motionless_seconds, LONG_FACTOR * claim.expected_seconds)
        self.seconds = max(stall_seconds, min(STALL_FACTOR * claim.expected_seconds, longest), loading)
        self._motionless_seconds = motionless_seconds
        self._work, self._clock = work, clock
        self._at = self._moved_at = self._looked_at = self._told_at = clock()
        self._seen: Work | None = None
        self._last: tuple[int, str] | None = None

    def note(self, report: ProgressReport) -> None:
        """Takes a report; a repeated report is no progress."""
        said = (report["done"], report["message"])
        if said != self._last:
            self._at = self._moved_at = self._told_at = self._clock()
            self._last = said

    def check(self) -> str | None:
        """Looks, once a minute without progress, what the shard waits for. Raises Stalled: it is over."""
        now = self._clock()
        if now - self._looked_at >= min(LOOK_SECONDS, self._motionless_seconds / 10):
            self._look(now)
        last = "" if self._last is None else f" after {self._last[0]:,} ({self._last[1]})"
        if now - self._at > self.seconds:
            raise Stalled(
                f"the shard made no progress for {self.seconds:,.0f} s{last}, and its evaluator was ended"
                " (ASSAY_STALL_SECONDS, or ten times what the plan expects of the shard, at most"
                " ASSAY_MOTIONLESS_SECONDS or three times)"
            )
        if now - self._moved_at > self._motionless_seconds:
            raise Stalled(
                f"the evaluator {self._doing()}, and the shard made no progress for"
                f" {self._motionless_seconds:,.0f} s{last}: it was ended (ASSAY_MOTIONLESS_SECONDS)"
            )
        if now - self._told_at < TOLD_SECONDS:
            return None
        self._told_at = now
        ends = self._at + self.seconds
        if now - self._moved_at >= LOOK_SECONDS:
            ends = min(ends, self._moved_at + self._motionless_seconds)
        return (
            f"waits for its evaluator, which {self._doing()}: no progress for {now - self._at:,.0f} s{last};"
            f" ended in {max(0.0, ends - now):,.0f} s without any"
        )

    def _look(self, now: float) -> None:
        found, before, elapsed = self._work(), self._seen, now - self._looked_at
        if before is None or found.seconds - before.seconds > BUSY_SHARE * elapsed:
            self._moved_at = now
        self._seen, self._looked_at = found, now

    def _doing(self) -> str:
        if self._seen is not None and self._seen.stopped:
            return "is stopped by a signal"
        return "computes nothing" if self._looked_at > self._moved_at else "computes"


class Watch:
    """Schedules a running shard's checks whether to go on."""

    def __init__(self, live: Live, claim: Claim, settings: WorkerSettings) -> None:
        self._live = live
        self._claim = claim
        self._renewal_seconds = settings.renewal_seconds
        self._asked_at = time.monotonic()
        self.seconds = min(settings.control_seconds, settings.renewal_seconds)

    def due(self) -> bool:
        """Whether to ask now, by time or a hint in Redis; called every `seconds`."""
        now = time.monotonic()
        # Half an interval early: a lease may be short.
        late = now - self._asked_at >= self._renewal_seconds - self.seconds / 2
        if not late and not self._live.canceled(self._claim):
            return False
        self._asked_at = now
        return True

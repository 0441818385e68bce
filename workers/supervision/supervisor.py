"""Claims shards one after another and runs them in an evaluator. Never imports torch.

A supervisor is a thread with an evaluator. The doorbell only shortens its sleep: the database has the work.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from assay.service.catalog.catalog import load
from assay.service.contract import logs
from assay.service.contract.fleet.worker_records import Gauges
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.live import Live
from assay.service.store.rows import Claim
from assay.service.submission.requirements import folders_read, weights_of
from assay.workers.containment.probe import Sandbox
from assay.workers.identity import code, identity
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.claim_files import ClaimFiles, SharedFiles
from assay.workers.supervision.counters import WorkerCounters
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess, UnfitWorker
from assay.workers.supervision.inventory import Inventory
from assay.workers.supervision.job_limits import EvaluatorWatch, OverLimit
from assay.workers.supervision.ledger import LEDGER_AWAY, Asked, Heartbeat, WorkLedger, absence
from assay.workers.supervision.outcome_spool import SPOOL, Spool
from assay.workers.supervision.shard_run import ShardRun, Workplace
from assay.workers.supervision.warm_evaluator import WarmEvaluator

log = logging.getLogger(__name__)
BEAT_SECONDS = 10.0
CHECK_IDLE_SECONDS = 30.0


class Supervisor(threading.Thread):
    """Runs shards until `stop`.

    A supervisor for `CHECKS` alone is no counted worker, and keeps its evaluator for `CHECK_IDLE_SECONDS` at
    most. `ring_others`: tells other supervisors of a claimable job; may fail. `files`: None for shared files.
    `seconds_left`: for shards, None for any length. `left`: outcomes of workers that come no more.
    """

    def __init__(
        self,
        ledger: WorkLedger,
        settings: WorkerSettings,
        *,
        device_classes: Sequence[str],
        number: int = 0,
        ring_others: Callable[[str], None] = lambda job_id: None,
        files: ClaimFiles | None = None,
        seconds_left: Callable[[], float | None] = lambda: None,
        left: Sequence[Spool] = (),
    ) -> None:
        self.worker_id = lease_owner.worker_id(number)
        # Kept at a restart, for administrators.
        self.known_as = f"{lease_owner.host()}:{settings.node or number}"
        super().__init__(name=f"supervisor-{number}", daemon=True)
        self._ledger = ledger
        self._settings = settings
        self._devices = tuple(device_classes)
        self._only_checks = self._devices == (CHECKS,)
        self._doorbell = threading.Event()
        self._stopping = threading.Event()
        self._idle_since = time.monotonic()  # infinite while a shard runs
        self._seconds_left = seconds_left
        self._last_beat = float("-inf")
        self._claim_unheard = self._waited = False  # waited: for the shard, at the gateway
        self._counters = WorkerCounters(settings.workers_per_gpu if settings.devices == 1 else 0)
        self._sandbox = Sandbox(settings.trial)
        self._evaluator = WarmEvaluator(settings, self._counters, device_classes)
        self._device_count = self._evaluator.health.devices
        self._may_claim = False
        self._prefetch = settings.prefetch and not self._only_checks
        self._cordoned = False
        self._unknown = False
        self._repeats = False
        self._watch: EvaluatorWatch | None = None
        self.inventory = Inventory(settings, self.known_as)
        self._told: tuple[object, ...] = ()
        self._spool = Spool(settings.state / SPOOL, ledger, self.worker_id)
        self._left = left
        self._live = Live(settings.redis)
        self._place = Workplace(
            ledger,
            files or SharedFiles(settings),
            self._live,
            settings,
            self._evaluator,
            self._spool,
            self.inventory,
            beat=self._beat,
            drained=self._drained,
            ring_others=ring_others,
            stopping=self._stopping,
            counters=self._counters,
        )

    @property
    def evaluator_pid(self) -> int | None:
        """Process id of its evaluator, which leads a process group; None without one."""
        process = self._evaluator.process
        return None if process is None else process.pid

    @property
    def idle_seconds(self) -> float:
        """Seconds without a shard; 0 while a shard runs."""
        return max(0.0, time.monotonic() - self._idle_since)

    @property
    def is_cordoned(self) -> bool:
        """Whether an administrator has taken it out of service, and its last shard is over."""
        return self._cordoned

    def ring(self) -> None:
        """Wakes the supervisor: there may be a shard to claim."""
        self._doorbell.set()

    def stop(self) -> None:
        """End the current shard (back to the queue, uncounted) and then the thread."""
        self._stopping.set()
        self._doorbell.set()

    def run(self) -> None:
        """Claim and run until stopped; waits for the database, survives every error."""
        self._sandbox.find_out()
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._evaluator.end()
            self._live.close()
            try:
                self._counters.write(self._ledger)
                self._ledger.gone(self.worker_id)
            except LEDGER_AWAY as error:
                log.warning("%s; this worker stays listed until its beat is old", absence(error))

    def _turn(self) -> None:
        try:
            self._flush()
            if not self._step():
                self._rest()
        except LEDGER_AWAY as error:
            log.warning("%s", absence(error))
            self._stopping.wait(self._settings.database_away_seconds)
        except Exception:
            # A dead thread would leave a service that accepts jobs and never runs them.
            log.exception("supervisor: unexpected error, going on")
            self._stopping.wait(self._settings.database_away_seconds)

    def _flush(self) -> None:
        for spool in (self._spool, *self._left):
            for claim, finished in spool.flush():
                self._ledger.complete(claim, finished)

    def _step(self) -> bool:
        self._may_claim = self._is_fit()
        self._judge()
        self._beat()
        self._may_claim &= self._is_admitted()
        claim = self._claim() if self._may_claim and not self._stopping.is_set() else None
        if claim is None:
            return False
        with logs.about(**claim.subject):
            log.info("shard %s (%s): claimed, fence %d", claim.shard_id, claim.kind, claim.fence)
            begun = time.monotonic()
            if claim.repeat and not self._repeats and self._evaluator.job == claim.job_id:
                self._evaluator.end()  # it may have measured the shard
            self._repeats = claim.repeat
            self._idle_since = math.inf
            try:
                self._run(claim)
            finally:
                self._idle_since = time.monotonic()
            log.info("shard %s: over after %.1f s", claim.shard_id, self._idle_since - begun)
        return True

    def _run(self, claim: Claim) -> None:
        weights = weights_of(load(), claim.spec["model"])
        with self.inventory.using(folders_read(load(), claim.spec), weights) as gone:
            if gone:  # removed for another data set since this worker said that it has it
                self._ledger.release(claim, f"a worker no longer has {', '.join(gone)}")
            else:
                ShardRun(self._place, claim).run()

    def _is_fit(self) -> bool:
        if self._sandbox.refuses:
            return False
        self._cordoned = not self._only_checks and self._ledger.cordon(self.known_as) is not None
        if self._cordoned:  # someone may be working on its devices
            return False
        self._evaluator.look(self._stopping.is_set)
        return bool(self._evaluator.health.classes)

    def _is_admitted(self) -> bool:
        """Whether its code may take work; after a heartbeat, which says what its code is."""
        digest, before = identity()["digest"], self._unknown
        self._unknown = not self._ledger.admits(digest)
        if self._unknown and not before and not self._only_checks:
            text = "identity %s (version %s, commit %s) is not the service's own release's: this worker takes"
            text += " no work until an administrator allows it: assay workers allow %s"
            log.warning(text, digest, code()["version"], code().get("commit"), digest)
        return not self._unknown

    def _drained(self) -> bool:
        if self._only_checks:
            return False
        cordon = self._ledger.cordon(self.known_as)
        return cordon is not None and cordon.drain

    def _judge(self, *, look: bool = True) -> None:
        self.inventory.hear(self._ledger.published())
        if self.inventory.judge(self._ledger.lanes(), self._evaluator.health.gpu, look=look):
            self._evaluator.refused.clear()  # its data have been mended

    def _claim(self) -> Claim | None:
        if self._claim_unheard:
            # An earlier claim may be committed with its answer lost: its shard should not wait for the lease.
            self._ledger.expire_own(self.worker_id)
        self._claim_unheard = True
        asked = Asked(
            worker=self.worker_id,
            device_classes=tuple(self._evaluator.health.classes),
            lease_seconds=self._settings.lease_seconds,
            identity=identity()["digest"],
            without=(*self._evaluator.refused, *self._evaluator.left),
            warm_job=self._evaluator.job,
            warm_shards=self._evaluator.shards,
            devices=self._device_count,
            lanes=tuple(self.inventory.lanes(unmet=self._ledger.unmet)),
            seconds=self._seconds_left(),
            unknown_seconds=self._settings.shard_seconds,
        )
        claim = self._ledger.claim(asked, changing=self.inventory.is_staging)
        self._claim_unheard = False
        self._waited = self._ledger.remote
        return claim

    def _rest(self) -> None:
        if self._evaluator.process is None:
            if self._may_claim and (self._prefetch or self._soon_needed()):
                self._prefetch = False  # once: an idle evaluator is ended after its time
                self._make_ready()
        elif (
            self._cordoned
            or (self._idle_for_long() and not self._soon_needed())
            or self._warm_job_was_stopped()
            or self._over_a_limit(self._evaluator.process)
        ):
            self._evaluator.end()
        self._doorbell.wait(0.0 if self._waited else self._settings.rest_seconds)
        self._waited = False
        self._doorbell.clear()

    def _idle_for_long(self) -> bool:
        limit = self._settings.idle_seconds
        if self._only_checks:
            limit = min(limit, CHECK_IDLE_SECONDS)
        return self.idle_seconds > limit

    def _soon_needed(self) -> bool:
        return not self._only_checks and self._ledger.being_planned(self._devices)

    def _make_ready(self) -> None:
        try:
            self._evaluator.ready(self._stopping.is_set)
        except (UnfitWorker, EvaluatorDied, OSError) as error:
            log.warning("the evaluator is not ready: %s", error)
            self._evaluator.end()
        self._idle_since = time.monotonic()

    def _warm_job_was_stopped(self) -> bool:
        """Whether the warm model's job is canceled or deleted: its memory must be freed."""
        return self._evaluator.job is not None and self._ledger.is_stopped(self._evaluator.job)

    def _over_a_limit(self, process: EvaluatorProcess) -> bool:
        if self._evaluator.job is None:
            return False
        folder, most = self._settings.folder(self._evaluator.job), self._settings.max_job_files_bytes
        if self._watch is None or not self._watch.is_of(process, folder):
            self._watch = EvaluatorWatch(process, folder, most, self._settings.control_seconds)
        try:
            self._watch.look_when_due()
        except OverLimit as error:
            log.warning("job %s: its evaluator is ended: %s", self._evaluator.job, error)
            return True
        return False

    def _beat(self) -> None:
        health = self._evaluator.health
        served = () if self._sandbox.refuses else health.classes
        due = time.monotonic() - self._last_beat >= BEAT_SECONDS
        if due and not self._only_checks:
            self._judge(look=False)  # a shard may take hours, and others wait for its word
        stock = self.inventory.gauges
        told = (served, stock, self.inventory.other_data)
        if due or told != self._told:
            if not self._only_checks:
                gauges: Gauges = {**self._counters.gauges, **health.gauges, **stock}
                gauges["catalog"], gauges["code"] = identity()["catalog"], code()
                if (contained := self._sandbox.record) is not None:
                    gauges["containment"] = contained
                if other := {*self._evaluator.refused.values(), *self.inventory.other_data}:
                    gauges["other_data"] = sorted(other)
                beat = Heartbeat(
                    worker=self.worker_id,
                    host=lease_owner.host(),
                    device_classes=tuple(served or self._devices),
                    pid=lease_owner.pid(),
                    gauges=gauges,
                    devices=self._device_count if served else 0,
                    name=self.known_as,
                    identity=identity()["digest"],
                )
                self._ledger.beat(beat)
            self._last_beat, self._told = time.monotonic(), told
            self._counters.write(self._ledger)

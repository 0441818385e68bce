"""Claims shards by lease, drives one evaluator process, renews, cancels, records. Never imports torch.

One supervisor is one thread with one evaluator. The doorbell only shortens its sleep: what there is
to do stands in the database. While a shard runs, a second long-lived thread renews the lease and asks
whether to go on, so that a slow evaluator never loses its lease and a cancelled one is ended in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy.exc import OperationalError

from service.contract.errors import NotFound
from service.contract.states import JobState
from service.store.rows import Claim, OutcomeRow
from service.store.session import Store
from workers import owner
from workers.jobs import merge
from workers.process import EvaluatorDied, EvaluatorProcess, Message
from workers.settings import WorkerSettings
from workers.spool import Spool

log = logging.getLogger(__name__)
BEAT_SECONDS = 10.0
DATABASE_AWAY_SECONDS = 2.0
STOPPED = frozenset({JobState.CANCELED, JobState.TIMED_OUT})


class Supervisor(threading.Thread):
    """Runs shards one after another until `stop`."""

    def __init__(
        self, store: Store, settings: WorkerSettings, *, device_classes: Sequence[str], number: int = 0
    ) -> None:
        self.identity = owner.identity(number)
        super().__init__(name=f"supervisor-{number}", daemon=True)
        self._store = store
        self._settings = settings
        self._devices = tuple(device_classes)
        self._doorbell = threading.Event()
        self._stopping = threading.Event()
        self._evaluator: EvaluatorProcess | None = None
        self._warm_job: str | None = None
        self._idle_since = time.monotonic()
        self._last_beat = float("-inf")
        self._spool = Spool(settings.state / "spool", store, self.identity)

    def ring(self) -> None:
        """There may be something to claim."""
        self._doorbell.set()

    def stop(self) -> None:
        """End the current shard (it goes back to the queue, uncounted) and then the thread."""
        self._stopping.set()
        self._doorbell.set()

    def run(self) -> None:
        """Claim and run until stopped; a database that is away is waited for."""
        try:
            while not self._stopping.is_set():
                try:
                    self._spool.flush()
                    if not self._step():
                        self._rest()
                except OperationalError as error:
                    log.warning("the database is away: %s", error)
                    self._stopping.wait(DATABASE_AWAY_SECONDS)
        finally:
            self._end_evaluator()
            try:
                self._store.workers.gone(self.identity)
            except OperationalError:
                log.warning("the database is away: this worker stays listed until its beat is old")

    def _step(self) -> bool:
        self._beat()
        claim = self._store.shards.claim(
            self.identity, self._devices, lease_seconds=self._settings.lease_seconds, warm_job=self._warm_job
        )
        if claim is None:
            return False
        log.info("job %s shard %s (%s): claimed, fence %d", claim.job_id, claim.shard_id, claim.kind, claim.fence)
        ShardRun(self, claim).run()
        self._warm_job = claim.job_id
        self._idle_since = time.monotonic()
        return True

    def _rest(self) -> None:
        idle = time.monotonic() - self._idle_since > self._settings.idle_seconds
        if self._evaluator is not None and (idle or self._warm_job_was_stopped()):
            self._end_evaluator()
        self._doorbell.wait(self._settings.poll_seconds)
        self._doorbell.clear()

    def _warm_job_was_stopped(self) -> bool:
        """Whether the model in memory belongs to a job that was cancelled or deleted: its memory is promised back."""
        if self._warm_job is None:
            return False
        try:
            return self._store.jobs.get(self._warm_job).state in STOPPED
        except NotFound:
            return True

    def _beat(self) -> None:
        if time.monotonic() - self._last_beat >= BEAT_SECONDS:
            self._store.workers.beat(self.identity, owner.host(), self._devices, owner.pid())
            self._last_beat = time.monotonic()

    def _warm_evaluator(self) -> EvaluatorProcess:
        if self._evaluator is not None and not self._evaluator.alive():
            self._end_evaluator()
        if self._evaluator is None:
            self._evaluator = EvaluatorProcess(self._settings)
        return self._evaluator

    def _end_evaluator(self) -> None:
        if self._evaluator is not None:
            self._evaluator.stop(self._settings.cancel_grace_seconds)
            self._evaluator = None
            self._warm_job = None


class ShardRun:
    """One claimed shard, from request to record."""

    def __init__(self, supervisor: Supervisor, claim: Claim) -> None:
        self._supervisor = supervisor
        self._store = supervisor._store
        self._settings = supervisor._settings
        self._claim = claim
        self._verdict = "run"
        self._over = threading.Event()

    def run(self) -> None:
        """Send the request, follow the reports, record the end."""
        renewer = threading.Thread(target=self._renew, name=f"renew-{self._claim.shard_id}", daemon=True)
        renewer.start()
        try:
            self._follow(self._supervisor._warm_evaluator())
        except EvaluatorDied as error:
            output = self._supervisor._evaluator.last_output if self._supervisor._evaluator else ""
            self._supervisor._end_evaluator()
            if not self._interrupted():
                self._fail("evaluator_died", f"the evaluator process died ({error}). {output[-1500:]}", retry=True)
        finally:
            self._over.set()
            renewer.join()

    def _follow(self, evaluator: EvaluatorProcess) -> None:
        evaluator.send(self._request())
        while True:
            if self._interrupted():
                return
            message = evaluator.receive(timeout=0.2)
            if message is not None and self._handle(message):
                return

    def _interrupted(self) -> bool:
        """Whether the shard has to end now for a reason outside it; if so, it is ended."""
        if self._verdict == "run" and not self._supervisor._stopping.is_set():
            return False
        self._supervisor._end_evaluator()
        if self._verdict == "cancel":
            self._store.shards.canceled(self._claim)
        elif self._verdict == "run":
            self._store.shards.release(self._claim)
        log.info("shard %s: ended (%s)", self._claim.shard_id, self._verdict)
        return True

    def _handle(self, message: Message) -> bool:
        """Record one report; True when it was the last one of the shard."""
        kind = message["type"]
        if kind == "progress":
            self._store.shards.progress(self._claim, message["done"], message["total"], message.get("message"))
        elif kind == "checkpoint":
            self._store.shards.checkpoint(self._claim)
        elif kind == "error":
            self._fail(message["error_type"], message["message"], retry=message["retry"])
        elif kind == "plan":
            self._store.shards.finish_plan(self._claim, message["plan"])
        else:
            self._finish(message)
        return kind not in {"progress", "checkpoint"}

    def _finish(self, message: Message) -> None:
        row = OutcomeRow(
            evaluation=self._claim.evaluation or 0,
            number=self._claim.number,
            n=message["n"],
            columns=message["columns"],
            seconds=message["seconds"],
            forward_passes=message["forward_passes"],
            backward_passes=message["backward_passes"],
            extra=message["extra"],
        )
        finished = self._supervisor._spool.record(self._claim, row)
        if finished is None:
            log.warning("shard %s: outcome refused, another worker has it", self._claim.shard_id)
        elif finished.evaluation_done:
            merge_and_finish(self._store, self._settings, self._claim.job_id, row.evaluation, finished.job_done)

    def _fail(self, error_type: str, message: str, *, retry: bool) -> None:
        job = self._store.shards.fail(self._claim, error_type, message, retry=retry)
        log.warning("shard %s: %s: %s (job %s)", self._claim.shard_id, error_type, message, job.state)

    def _request(self) -> dict[str, Any]:
        claim = self._claim
        return {
            "kind": claim.kind,
            "job": claim.job_id,
            "spec": claim.spec,
            "plan": claim.plan,
            "evaluation": claim.evaluation,
            "start": claim.start,
            "stop": claim.stop,
            "folder": str(self._settings.artifacts(claim.job_id)),
            "weights": self._weights(),
            "shard_seconds": self._settings.shard_seconds,
            "checkpoint_seconds": self._settings.checkpoint_seconds,
        }

    def _weights(self) -> str | None:
        source = (self._claim.spec["model"].get("weights") or {}).get("job")
        return str(self._settings.artifacts(source) / "weights.safetensors") if source else None

    def _renew(self) -> None:
        interval = min(self._settings.renew_seconds, self._settings.control_seconds)
        while not self._over.wait(interval):
            try:
                self._verdict = self._store.shards.renew(self._claim, self._settings.lease_seconds)
                self._supervisor._beat()
            except OperationalError as error:
                log.warning("shard %s: lease not renewed: %s", self._claim.shard_id, error)
            if self._verdict != "run":
                return


def merge_and_finish(
    store: Store, settings: WorkerSettings, job_id: str, evaluation: int | None, job_done: bool
) -> None:
    """Merge one evaluation (None: all of them) and, when every shard is done, end the job.

    Safe to repeat: results are replaced by equal ones. What cannot be saved fails the job.
    """
    try:
        merge.save(store, settings.artifacts(job_id), job_id, evaluation, job_done=job_done)
    except OperationalError:
        raise  # the reaper merges once the database is back
    except Exception as error:
        log.exception("job %s: the results could not be saved", job_id)
        store.jobs.fail(job_id, "save_failed", f"the results could not be saved: {error}")

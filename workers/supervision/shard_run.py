"""Runs one claimed shard, from request to record.

While the evaluator works, a second thread renews the lease and asks whether to go on, so that a slow
evaluator never loses its lease and a cancelled one is ended in time. It continues while a record waits for a
database that is away.

An evaluator that has not answered its request is ended in any case: the next shard must never read the answer
to this one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, cast

from assay.service.contract import logs
from assay.service.contract.checkpoints import Verdict
from assay.service.contract.errors import NotFound
from assay.service.contract.messages import (
    CheckedReport,
    Failure,
    FinalReport,
    OutcomeReport,
    ProgressReport,
    ShardRequest,
)
from assay.service.contract.verdict_records import VerdictRecord
from assay.service.store.live import Live
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.completion import merge_and_finish
from assay.workers.supervision.counters import WorkerCounters, device_of
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess, UnfitWorker
from assay.workers.supervision.heartbeat import ProgressDeadline, ProgressReporter, Stalled, Watch
from assay.workers.supervision.inventory import Inventory
from assay.workers.supervision.job_limits import (
    EvaluatorWatch,
    OverLimit,
    TooManyFiles,
    TrainingLimits,
    accepted,
    remove_files_but,
)
from assay.workers.supervision.outcome_spool import DATABASE_UNAVAILABLE, Spool
from assay.workers.supervision.shard_data import OtherDataHere, ShardData
from assay.workers.supervision.shard_sources import ShardSources
from assay.workers.supervision.warm_evaluator import (
    DEVICE_FAULT,
    LAST_ERRORS,
    OTHER_DATA,
    UNFIT,
    UNFIT_WORKER,
    WarmEvaluator,
    never,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
RECEIVE_SECONDS = 0.2
OUTPUT_SHOWN = 1500


@dataclass(frozen=True)
class Workplace:
    """Shared means of a supervisor's shard runs."""

    store: Store
    live: Live
    settings: WorkerSettings
    evaluator: WarmEvaluator
    spool: Spool
    inventory: Inventory  # of the worker's data sets
    beat: Callable[[], None]  # sends a heartbeat when one is due; called from the renewing thread
    ring_others: Callable[[str], None]  # tells other supervisors that a job has become claimable; it may fail
    stopping: threading.Event  # set when the supervisor shuts down
    counters: WorkerCounters = field(default_factory=WorkerCounters)
    # whether an administrator wants the running shard back; called from the renewing thread
    drained: Callable[[], bool] = never


class ShardRun:
    """Runs one claim to its end; use it once."""

    def __init__(self, place: Workplace, claim: Claim) -> None:
        self._place = place
        self._store = place.store
        self._claim = claim
        self._reports = ProgressReporter(place.store, place.live, claim)
        self._limits = TrainingLimits(
            place.settings.job_limits, claim.spec["execution"]["device"], self._set_deadline
        )
        self._data = ShardData(
            claim, place.inventory, place.evaluator, self._interrupted, place.settings.stall_seconds
        )
        self._about = {"job": claim.job_id, "shard": claim.shard_id}
        self._verdict: Literal["run", "cancel", "lost", "drain"] = "run"
        self._over = threading.Event()

    def run(self) -> None:
        """Send the request, follow the reports, record the end.

        Raises:
            OperationalError: the database was away until the supervisor was stopped.
        """
        begun = time.monotonic()
        try:
            with logs.about(**self._about):
                self._run()
        finally:
            self._place.counters.shard(self._claim, time.monotonic() - begun)

    def _run(self) -> None:
        name = f"renew-{self._claim.shard_id}"
        renewer = threading.Thread(target=self._renew, name=name, daemon=True)
        renewer.start()
        try:
            message = self._ask()
            if message is not None:
                self._record(message)
        except DATABASE_UNAVAILABLE:
            raise
        except NotFound:
            log.info("shard %s: its job was deleted", self._claim.shard_id)
        except OverLimit as error:
            self._fail("over_limit", str(error), retry=False)
            if isinstance(error, TooManyFiles) and self._claim.kind != "check":
                self._remove_unlisted_files()
        except Exception as error:  # a defect must not end the supervisor and block all other jobs
            log.exception("shard %s: could not be recorded", self._claim.shard_id)
            self._fail("worker_raised", f"{type(error).__name__}: {error}", retry=True)
        finally:
            self._over.set()
            renewer.join()

    def _ask(self) -> FinalReport | None:
        """The evaluator's last report; None when the shard ended without one and its end is recorded."""
        message, error_type, failure = None, "evaluator_died", ""
        try:
            message = self._follow(self._place.evaluator.ready(self._interrupted))
        except UnfitWorker as error:
            self._give_back({"error_type": UNFIT_WORKER, "message": str(error), "retry": True})
            return None
        except EvaluatorDied as error:
            process = self._place.evaluator.process
            output = process.last_output[-OUTPUT_SHOWN:] if process is not None else ""
            failure = f"the evaluator process died: {error}. {output}"
        except OSError as error:
            failure = f"the evaluator process could not be started: {error}"
        except Stalled as error:
            error_type, failure = "no_progress", str(error)
        finally:
            if message is None:
                self._place.evaluator.end()
        if message is None and not self._interrupted():
            self._place.counters.count("assay_evaluator_deaths_total")
            self._place.evaluator.health.evaluator_died()
            self._fail(error_type, failure, retry=True)
        elif message is None:
            self._leave()
        return message

    def _follow(self, evaluator: EvaluatorProcess) -> FinalReport | None:
        try:
            evaluator.about = self._about
            settings = self._place.settings
            try:
                data = self._data.hashes()
            except OtherDataHere as error:
                return {"type": "error", "error_type": OTHER_DATA, "message": str(error), "retry": True}
            evaluator.send(self._request(data))
            folder, most = settings.folder(self._claim.job_id), settings.max_job_files_bytes
            watch = EvaluatorWatch(evaluator, folder, most, settings.control_seconds)
            stall = ProgressDeadline(self._claim, settings.stall_seconds)
            deadline = time.monotonic() + settings.max_check_seconds
            while not self._interrupted():
                if self._claim.kind == "check" and time.monotonic() > deadline:
                    self._place.evaluator.end()
                    return _too_slow(settings.max_check_seconds)
                message = evaluator.receive(timeout=RECEIVE_SECONDS)
                watch.look_when_due()
                if message is None or message["type"] == "self_tested" or message["type"] == "hashed":
                    self._reports.tick()
                    stall.check()
                elif message["type"] == "progress":
                    stall.note(message)
                    self._progress(message)
                elif message["type"] == "checkpoint":
                    self._checkpoint()
                else:
                    watch.look()
                    return message
            return None
        finally:
            self._reports.close()

    def _interrupted(self) -> bool:
        """Whether the shard has to end now for a reason outside it."""
        return self._verdict != "run" or self._place.stopping.is_set()

    def _progress(self, message: ProgressReport) -> None:
        if "gpu" in message:
            self._place.counters.gauge("gpu", message["gpu"])
        self._reports.note(message)
        if self._claim.kind == "train":
            self._limits.note(message)

    def _set_deadline(self, seconds: float) -> None:
        try:
            self._store.shards.limit(self._claim, seconds)
        except DATABASE_UNAVAILABLE as error:
            log.warning("shard %s: deadline not recorded: %s", self._claim.shard_id, error)

    def _checkpoint(self) -> None:
        try:
            self._store.shards.checkpoint(self._claim)
        except DATABASE_UNAVAILABLE as error:
            log.warning("shard %s: checkpoint not recorded: %s", self._claim.shard_id, error)

    def _leave(self) -> None:
        log.info("shard %s: interrupted (%s)", self._claim.shard_id, self._verdict)
        if self._verdict == "cancel":
            self._insist(lambda: self._store.shards.canceled(self._claim))
        elif self._verdict != "lost":
            self._insist(lambda: self._store.shards.release(self._claim))
            self._ring_others()

    def _record(self, message: FinalReport) -> None:
        self._place.evaluator.answered(self._claim.job_id)
        if message["type"] == "outcome":
            self._finish(message)
        elif message["type"] == "plan":
            plan = accepted(self._place.settings.job_limits, message["plan"])
            wanted = self._data.requirements(plan)
            if self._insist(lambda: self._store.shards.finish_plan(self._claim, plan, wanted)):
                self._ring_others()
        elif message["type"] == "checked":
            verdict, error = message["verdict"], message["error"]
            if self._insist(lambda: self._store.checkpoints.checked(self._claim, verdict, error)):
                self._ring_others()  # for the jobs that waited for it
        elif message["error_type"] in UNFIT:
            self._give_back(message)
        else:
            if message["retry"] or message["error_type"] in LAST_ERRORS:
                self._place.evaluator.end()  # the next attempt starts from nothing
            again, known = message["retry"], message.get("fingerprint")
            self._fail(message["error_type"], message["message"], retry=again, fingerprint=known)

    def _give_back(self, failure: Failure) -> None:
        """Leaves the shard to a worker that is fit for it; nothing is counted against the job."""
        error_type, message = failure["error_type"], failure["message"]
        log.error("shard %s: given back, %s: %s", self._claim.shard_id, error_type, message)
        self._place.counters.failure(self._claim, error_type)
        self._place.evaluator.give_up(
            self._claim.job_id, failure, others=self._has_others, judged=bool(self._claim.requirements)
        )
        said = f"a worker gave a shard back: {message}"
        give_back = (
            self._store.shards.device_fault if error_type == DEVICE_FAULT else self._store.shards.release
        )
        self._insist(lambda: give_back(self._claim, said))
        self._ring_others()

    def _has_others(self) -> bool:
        """Whether other workers could take the shard; this one may have just stopped serving its device."""
        claim, online = self._claim, self._store.workers.online
        device, devices = device_of(claim), claim.spec["execution"].get("devices", 1)
        return self._insist(lambda: online(device, devices=devices, besides=claim.worker)) > 0

    def _finish(self, message: OutcomeReport) -> None:
        row = _outcome(self._claim, message)
        finished = self._insist(lambda: self._place.spool.record(self._claim, row))
        if finished is None:
            log.warning("shard %s: outcome refused, another worker has it", self._claim.shard_id)
            self._place.counters.count("assay_outcomes_refused_total")
        else:
            self._place.counters.outcome(self._claim, row)
            merge_and_finish(self._store, self._place.settings, self._claim, finished)
            if finished.job_done:
                self._ring_others()  # for the jobs that waited for this one

    def _ring_others(self) -> None:
        try:
            self._place.ring_others(self._claim.job_id)
        except Exception as error:  # any error is harmless: they also poll
            log.info("the other supervisors could not be rung: %s", error)

    def _fail(self, error_type: str, message: str, *, retry: bool, fingerprint: str | None = None) -> None:
        log.warning("shard %s: %s: %s", self._claim.shard_id, error_type, message)
        self._place.counters.failure(self._claim, error_type)
        fail, claim = self._store.shards.fail, self._claim
        try:
            job = self._insist(lambda: fail(claim, error_type, message, retry=retry, fingerprint=fingerprint))
        except NotFound:
            return
        log.info("shard %s: job is %s", self._claim.shard_id, job.state)

    def _remove_unlisted_files(self) -> None:
        """Frees the disk of a job that has ended over a limit; its artifacts stay."""
        folder = self._place.settings.folder(self._claim.job_id)
        listed = self._insist(lambda: self._store.artifacts.of(self._claim.job_id))
        remove_files_but(folder, {Path(row.path).name for row in listed})

    def _insist(self, write: Callable[[], T]) -> T:
        """Repeat a write until the database accepts it; a supervisor that stops gives up."""
        while True:
            try:
                return write()
            except DATABASE_UNAVAILABLE as error:
                log.warning("shard %s: the database is away: %s", self._claim.shard_id, error)
                if self._place.stopping.wait(self._place.settings.database_away_seconds):
                    raise

    def _request(self, data: dict[str, str]) -> ShardRequest:
        claim, settings = self._claim, self._place.settings
        sources = ShardSources(claim, self._store, settings, self._insist)
        request = {
            "kind": claim.kind,
            "job": claim.job_id,
            "spec": self._place.evaluator.health.settled(claim.spec),
            "plan": claim.plan,
            "evaluation": claim.evaluation,
            "start": claim.start,
            "stop": claim.stop,
            "folder": str(settings.folder(claim.job_id)),
            "weights": sources.weights(),
            "sources": sources.others(),
            "data_sha256": data,
            "shard_seconds": settings.shard_seconds,
            "checkpoint_seconds": settings.checkpoint_seconds,
            "cores": settings.cores_each(1),
        }
        if claim.kind == "train":
            request["deadline_seconds"] = self._limits.longest_seconds
        return cast(ShardRequest, request)  # a claim's kind is that of its spec, but for a plan

    def _renew(self) -> None:
        with logs.about(**self._about):
            self._renew_until_over()

    def _renew_until_over(self) -> None:
        settings = self._place.settings
        watch = Watch(self._place.live, self._claim, settings)
        while self._verdict == "run" and not self._over.wait(watch.seconds):
            try:
                if watch.due():
                    self._verdict = self._store.shards.renew(self._claim, settings.lease_seconds)
                    self._place.beat()
                    if self._verdict == "run" and self._place.drained():
                        self._verdict = "drain"
            except Exception as error:  # of any kind: it must not let the lease run out
                log.warning("shard %s: lease not renewed: %s", self._claim.shard_id, error)


def _too_slow(seconds: float) -> CheckedReport:
    """The answer in place of an evaluator that was ended: the same file would take as long again."""
    error = f"its check took more than {seconds:g} s (ASSAY_MAX_CHECK_SECONDS), and was ended"
    verdict = Verdict(other=[error]).model_dump(mode="json")
    return {"type": "checked", "verdict": cast(VerdictRecord, verdict), "error": error}


def _outcome(claim: Claim, message: OutcomeReport) -> OutcomeRow:
    if claim.kind == "evaluate" and message["n"] != (expected := claim.stop - claim.start):
        raise ValueError(f"the evaluator measured {message['n']} examples, the shard has {expected}")
    return OutcomeRow(
        evaluation=claim.evaluation,
        number=claim.number,
        n=message["n"],
        columns=message["columns"],
        seconds=message["seconds"],
        forward_passes=message["forward_passes"],
        backward_passes=message["backward_passes"],
        extra=message["extra"],
    )

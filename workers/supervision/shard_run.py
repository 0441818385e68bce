"""Runs one claimed shard, from request to record.

A second thread renews the lease and asks whether to go on, also while a record waits for a database that is
away: a slow evaluator never loses its lease, and a cancelled one is ended in time.

An evaluator without an answer is ended: the next shard must never read it.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from typing import Literal, TypeVar, cast

from opentelemetry.trace import SpanKind

from assay.service.contract import logs
from assay.service.contract.errors import NotFound
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet import traces
from assay.service.contract.messages import CheckedReport, FinalReport, ProgressReport, ShardRequest
from assay.service.contract.weights.checkpoints import Verdict
from assay.service.store.artifacts import AGAIN
from assay.service.store.rows import Claim
from assay.workers.supervision.evaluator_process import (
    EvaluatorDied,
    EvaluatorProcess,
    ProtocolBroken,
    UnfitWorker,
)
from assay.workers.supervision.heartbeat import ProgressDeadline, ProgressReporter, Stalled, Watch
from assay.workers.supervision.job_limits import EvaluatorWatch, OverLimit, TooManyFiles, TrainingLimits
from assay.workers.supervision.ledger import LEDGER_AWAY
from assay.workers.supervision.public_errors import in_words
from assay.workers.supervision.shard_data import OtherDataHere, ShardData
from assay.workers.supervision.shard_end import ShardEnd
from assay.workers.supervision.shard_end import Workplace as Workplace
from assay.workers.supervision.shard_sources import ShardSources
from assay.workers.supervision.warm_evaluator import OTHER_DATA, UNFIT_WORKER

log = logging.getLogger(__name__)
T = TypeVar("T")
RECEIVE_SECONDS = 0.2
OUTPUT_SHOWN = 1500
BAD_REPORT = "bad_report"


class ShardRun:
    """Runs one claim to its end; use it once."""

    def __init__(self, place: Workplace, claim: Claim) -> None:
        self._place = place
        self._ledger = place.ledger
        self._claim = claim
        self._folder = place.settings.folder(f"{AGAIN}{claim.shard_id}" if claim.repeat else claim.job_id)
        self._reports = ProgressReporter(place.ledger, place.live, claim)
        self._limits = TrainingLimits(
            place.settings.job_limits, claim.spec["execution"]["device"], self._set_deadline
        )
        self._data = ShardData(
            claim, place.inventory, place.evaluator, self._interrupted, place.settings.stall_seconds
        )
        self._about = claim.subject
        self._verdict: Literal["run", "cancel", "lost", "drain"] = "run"
        self._end = ShardEnd(place, claim, self._interrupted, self._canceled)
        self._over = threading.Event()

    def run(self) -> None:
        """Send the request, record the end. Raises OperationalError: no database till the stop."""
        begun, claim = time.monotonic(), self._claim
        facts = {"job": claim.job_id, "shard": claim.shard_id, "worker": claim.worker}
        try:
            with (
                logs.about(**self._about),
                traces.span(claim.kind, claim.trace, kind=SpanKind.CONSUMER, **facts),
            ):
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
                self._end.record(message, self._data)
        except LEDGER_AWAY:
            raise
        except NotFound:
            log.info("shard %s: its job was deleted", self._claim.shard_id)
        except OverLimit as error:
            self._end.fail("over_limit", str(error), retry=False)
            if isinstance(error, TooManyFiles) and self._claim.kind != "check":
                self._end.remove_unlisted_files()
        except Exception as error:  # a defect must not end the supervisor and block all jobs
            log.exception("shard %s: could not be recorded", self._claim.shard_id)
            self._end.fail("worker_raised", in_words(error), retry=True)
        finally:
            self._over.set()
            renewer.join()

    def _ask(self) -> FinalReport | None:
        """The evaluator's last report; None when the shard ended without one, and is recorded."""
        message, error_type, failure = None, "evaluator_died", ""
        try:
            message = self._follow(self._place.evaluator.ready(self._interrupted))
        except (UnfitWorker, OtherDataHere) as error:
            self._end.give_back(UNFIT_WORKER if isinstance(error, UnfitWorker) else OTHER_DATA, str(error))
            return None
        except (EvaluatorDied, OSError, Stalled) as error:
            error_type, failure = self._failure(error)
        finally:
            if message is None:
                self._place.evaluator.end()
        if message is None and not self._interrupted():
            self._place.counters.count("assay_evaluator_deaths_total")
            if error_type != BAD_REPORT:
                self._place.evaluator.health.evaluator_died()
            # A checkpoint before each broken report would have it tried for ever.
            self._end.fail(error_type, failure, retry=error_type != BAD_REPORT)
        elif message is None:
            self._end.leave()
        return message

    def _failure(self, error: Exception) -> tuple[str, str]:
        if isinstance(error, ProtocolBroken):
            return BAD_REPORT, f"the evaluator broke the protocol: {error}"
        if isinstance(error, EvaluatorDied):
            process = self._place.evaluator.process
            output = process.last_output[-OUTPUT_SHOWN:] if process is not None else ""
            return "evaluator_died", f"the evaluator process died: {error}. {output}"
        if isinstance(error, Stalled):
            return "no_progress", str(error)
        return "evaluator_died", f"the evaluator process could not be started: {error}"

    def _follow(self, evaluator: EvaluatorProcess) -> FinalReport | None:
        try:
            evaluator.about = self._about
            settings = self._place.settings
            evaluator.send(self._request(self._data.hashes()))
            most = settings.max_job_files_bytes
            watch = EvaluatorWatch(evaluator, self._folder, most, settings.control_seconds)
            stall = ProgressDeadline(
                self._claim, settings.stall_seconds, settings.motionless_seconds, lambda: evaluator.work
            )
            deadline = time.monotonic() + settings.max_check_seconds
            while not self._interrupted():
                if self._claim.kind == "check" and time.monotonic() > deadline:
                    self._place.evaluator.end()
                    return _too_slow(settings.max_check_seconds)
                message = evaluator.receive(timeout=RECEIVE_SECONDS)
                watch.look_when_due()
                if message is None:
                    self._reports.tick()
                    self._say(stall.check())
                elif message["type"] == "self_tested" or message["type"] == "hashed":
                    raise AssertionError("no report to a shard's request")  # `reports` refuses them
                elif message["type"] == "progress":
                    stall.note(message)
                    self._progress(message)
                elif message["type"] == "checkpoint":
                    self._checkpoint(message["step"])
                else:
                    watch.look()
                    return message
            return None
        finally:
            self._reports.close()
            if self._claim.repeat:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _interrupted(self) -> bool:
        return self._verdict != "run" or self._place.stopping.is_set()

    def _canceled(self) -> bool | None:
        return None if self._verdict == "lost" else self._verdict == "cancel"

    def _say(self, waiting: str | None) -> None:
        if waiting is not None:
            log.warning("shard %s: %s", self._claim.shard_id, waiting)
            with contextlib.suppress(*LEDGER_AWAY):
                self._ledger.log(self._claim, waiting)

    def _progress(self, message: ProgressReport) -> None:
        if "gpu" in message:  # by the name of the worker's own test
            self._place.counters.gauge(
                "gpu", {**message["gpu"], "name": self._place.evaluator.health.gpu_name}
            )
        self._reports.note(message)
        if self._claim.kind == "train":
            self._limits.note(message)

    def _set_deadline(self, seconds: float) -> None:
        try:
            self._ledger.limit(self._claim, seconds)
        except LEDGER_AWAY as error:
            log.warning("shard %s: deadline not recorded: %s", self._claim.shard_id, error)

    def _checkpoint(self, step: int) -> None:
        try:
            self._place.files.keep(self._claim, step)
            self._ledger.checkpoint(self._claim, step)
        except (*LEDGER_AWAY, OSError) as error:
            log.warning("shard %s: checkpoint not recorded: %s", self._claim.shard_id, error)

    def _request(self, data: dict[str, str]) -> ShardRequest:
        claim, settings = self._claim, self._place.settings
        sources = ShardSources(claim, self._ledger, self._place.files, self._end.insist)
        request = {
            "kind": claim.kind,
            "job": claim.job_id,
            "spec": self._place.evaluator.health.settled(claim.spec),
            "plan": claim.plan,
            "evaluation": claim.evaluation,
            "start": claim.start,
            "stop": claim.stop,
            "folder": str(self._folder),
            "weights": sources.weights(),
            "sources": sources.others(),
            "data_sha256": data,
            "shard_seconds": settings.shard_seconds,
            "checkpoint_seconds": settings.checkpoint_seconds,
            "cores": settings.cores_each(1),
        }
        if claim.kind == "train":
            self._end.insist(lambda: self._place.files.resume(claim))
            request["deadline_seconds"] = self._limits.longest_seconds
        return cast(ShardRequest, request)  # a claim's kind is its spec's, except for a plan

    def _renew(self) -> None:
        with logs.about(**self._about):
            self._renew_until_over()

    def _renew_until_over(self) -> None:
        settings = self._place.settings
        watch = Watch(self._place.live, self._claim, settings)
        while self._verdict == "run" and not self._over.wait(watch.seconds):
            try:
                if watch.due():
                    self._verdict = self._ledger.renew(self._claim, settings.lease_seconds)
                    self._place.beat()
                    if self._verdict == "run" and self._place.drained():
                        self._verdict = "drain"
            except Exception as error:  # must not let the lease run out
                log.warning("shard %s: lease not renewed: %s", self._claim.shard_id, error)


def _too_slow(seconds: float) -> CheckedReport:
    """For an evaluator that was ended: the same file would take as long again."""
    error = f"its check took more than {seconds:g} s (ASSAY_MAX_CHECK_SECONDS), and was ended"
    verdict = Verdict(other=[error]).model_dump(mode="json")
    return {"type": "checked", "verdict": cast(VerdictRecord, verdict), "error": error}

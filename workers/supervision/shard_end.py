"""The end of a shard's run: records its outcome or failure, or gives the shard back."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from assay.service.contract.errors import NotFound
from assay.service.contract.fleet import traces
from assay.service.contract.messages import Failure, FinalReport, OutcomeReport
from assay.service.store.live import Live
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.transactions.repetition import REPEAT
from assay.workers.jobs.artifacts import describe
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.claim_files import ClaimFiles
from assay.workers.supervision.counters import WorkerCounters, device_of
from assay.workers.supervision.inventory import Inventory
from assay.workers.supervision.job_limits import accepted, remove_files_but
from assay.workers.supervision.ledger import LEDGER_AWAY, WorkLedger, absence
from assay.workers.supervision.outcome_spool import Spool
from assay.workers.supervision.public_errors import without_paths
from assay.workers.supervision.shard_data import ShardData
from assay.workers.supervision.unfit_claims import FINGERPRINT, LOOKED_AT, confirmed, is_claim
from assay.workers.supervision.warm_evaluator import DEVICE_FAULT, LAST_ERRORS, WarmEvaluator, never

log = logging.getLogger(__name__)
T = TypeVar("T")
NO_FILE = (errno.EINVAL, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.EACCES)


@dataclass(frozen=True)
class Workplace:
    """Shared means of a supervisor's shard runs."""

    ledger: WorkLedger
    files: ClaimFiles
    live: Live
    settings: WorkerSettings
    evaluator: WarmEvaluator
    spool: Spool
    inventory: Inventory  # of data sets
    beat: Callable[[], None]  # a due heartbeat; called from the renewing thread
    ring_others: Callable[[str], None]  # tells other supervisors of a claimable job; may fail
    stopping: threading.Event  # at the supervisor's shutdown
    counters: WorkerCounters = field(default_factory=WorkerCounters)
    # an administrator wants the running shard back; called from the renewing thread
    drained: Callable[[], bool] = never


class ShardEnd:
    """Records the end of a claim."""

    def __init__(
        self,
        place: Workplace,
        claim: Claim,
        interrupted: Callable[[], bool],
        canceled: Callable[[], bool | None],
    ) -> None:
        self._place, self._ledger, self._claim = place, place.ledger, claim
        self._interrupted, self._canceled = interrupted, canceled

    def leave(self) -> None:
        """Gives a shard back that was interrupted; nothing is counted."""
        canceled = self._canceled()
        log.info("shard %s: interrupted", self._claim.shard_id)
        if canceled:
            self.insist(lambda: self._ledger.canceled(self._claim))
        elif canceled is not None:
            self.insist(lambda: self._ledger.release(self._claim))
            self._ring_others()

    def record(self, message: FinalReport, data: ShardData) -> None:
        """Records the evaluator's answer on `data`. Raises OverLimit: the plan is over a limit."""
        self._place.evaluator.answered(self._claim.job_id)
        if message["type"] == "outcome":
            self._finish(message)
        elif message["type"] == "plan":
            plan = accepted(self._place.settings.job_limits, data.trusted(message["plan"]))
            wanted = data.requirements(plan)
            share, finish_plan = self._repeat(), self._ledger.finish_plan
            if self.insist(lambda: finish_plan(self._claim, plan, wanted, share)):
                self._ring_others()
        elif message["type"] == "checked":
            verdict, error = message["verdict"], message["error"]
            if self.insist(lambda: self._ledger.checked(self._claim, verdict, error)):
                self._ring_others()  # for waiting jobs
        elif is_claim(message["error_type"]):
            self._judge(message, data)
        else:
            if message["retry"] or message["error_type"] in LAST_ERRORS:
                self._place.evaluator.end()  # the next attempt starts from nothing
            again, known = message["retry"], message.get("fingerprint")
            self.fail(message["error_type"], message["message"], retry=again, fingerprint=known)

    def _judge(self, claimed: Failure, data: ShardData) -> None:
        """Finds out whether the worker is unfit, as the job says; else that counts against the job."""
        error_type, evaluator = claimed["error_type"], self._place.evaluator
        reason = confirmed(error_type, evaluator, data, self._interrupted)
        if self._interrupted():
            self.leave()
        elif reason is not None:
            self.give_back(error_type, reason)
        else:
            said = f"the job says that its worker is not fit, {claimed['message']}; the worker has looked: "
            evaluator.leave(self._claim.job_id, LOOKED_AT[error_type], others=self._has_others)
            self.fail(error_type, f"{said}{LOOKED_AT[error_type]}", retry=True, fingerprint=FINGERPRINT)
            self._ring_others()

    def give_back(self, error_type: str, reason: str) -> None:
        """Leaves the shard to a fit worker; nothing counts against the job."""
        log.error("shard %s: given back, %s: %s", self._claim.shard_id, error_type, reason)
        self._place.counters.failure(self._claim, error_type)
        self._place.evaluator.give_up(
            self._claim.job_id,
            {"error_type": error_type, "message": reason, "retry": True},
            others=self._has_others,
            judged=bool(self._claim.requirements),
        )
        said = f"a worker gave a shard back: {self._public(reason)}"
        give_back = self._ledger.device_fault if error_type == DEVICE_FAULT else self._ledger.release
        self.insist(lambda: give_back(self._claim, said))
        self._ring_others()

    def _repeat(self) -> float:
        """Share of repeated shards: the job's, the service's, or a hundredth."""
        settings, asked = self._place.settings, self._claim.spec["execution"].get("repeat")
        if (share := settings.repeat if asked is None else cast(float, asked)) is not None:
            return share
        return REPEAT if settings.among_others and self._has_others() else 0.0

    def _has_others(self) -> bool:
        claim, online = self._claim, self._ledger.online
        device, devices = device_of(claim), claim.spec["execution"].get("devices", 1)
        return self.insist(lambda: online(device, devices=devices, besides=claim.worker)) > 0

    def _finish(self, message: OutcomeReport) -> None:
        try:
            row = self._outcome(message)
        except OSError as error:  # a file system may fail for a moment
            self._place.evaluator.end()
            retry = error.errno not in NO_FILE
            self.fail("bad_report", f"a file that the evaluator has named: {error}", retry=retry)
            return
        finished = self.insist(lambda: self._place.spool.record(self._claim, row))
        if finished is None:
            log.warning("shard %s: outcome refused, another worker has it", self._claim.shard_id)
            self._place.counters.count("assay_outcomes_refused_total")
        else:
            self._place.counters.outcome(self._claim, row)
            self._ledger.complete(self._claim, finished)
            if finished.job_done or finished.evaluation_done:
                self._ring_others()  # for waiting jobs, and repeated shards

    def _outcome(self, message: OutcomeReport) -> OutcomeRow:
        folder, extra = self._place.settings.folder(self._claim.job_id), message["extra"]
        if self._claim.repeat:  # its files are not kept
            extra = {
                "attack": extra["attack"],
                "evidence": extra["evidence"],
                "provenance": extra["provenance"],
            }
        if "artifacts" in extra:
            extra = {**extra, "artifacts": [describe(folder / one["name"]) for one in extra["artifacts"]]}
        if "gallery" in extra:
            extra = {**extra, "gallery": describe(folder / extra["gallery"]["name"])}
        return OutcomeRow(
            evaluation=self._claim.evaluation,
            number=self._claim.number,
            n=message["n"],
            columns=message["columns"],
            seconds=message["seconds"],
            forward_passes=message["forward_passes"],
            backward_passes=message["backward_passes"],
            extra=extra,
        )

    def _ring_others(self) -> None:
        try:
            self._place.ring_others(self._claim.job_id)
        except Exception as error:  # harmless: they also poll
            log.info("the other supervisors could not be rung: %s", error)

    def fail(self, error_type: str, message: str, *, retry: bool, fingerprint: str | None = None) -> None:
        """Counts a failure of the shard against its job."""
        log.warning("shard %s: %s: %s", self._claim.shard_id, error_type, message)
        self._place.counters.failure(self._claim, error_type)
        traces.failed(error_type)
        fail, claim, public = self._ledger.fail, self._claim, self._public(message)
        try:
            state = self.insist(lambda: fail(claim, error_type, public, retry=retry, fingerprint=fingerprint))
        except NotFound:
            return
        log.info("shard %s: job is %s", self._claim.shard_id, state)

    def _public(self, text: str) -> str:
        return without_paths(text, self._place.settings, self._claim.job_id)

    def remove_unlisted_files(self) -> None:
        """Frees the disk of a job that ended over a limit; its artifacts stay."""
        folder = self._place.settings.folder(self._claim.job_id)
        listed = self.insist(lambda: self._ledger.artifact_names(self._claim))
        remove_files_but(folder, listed)

    def insist(self, write: Callable[[], T]) -> T:
        """Repeat a write until the database accepts it; a stopping supervisor gives up."""
        while True:
            try:
                return write()
            except LEDGER_AWAY as error:
                log.warning("shard %s: %s", self._claim.shard_id, absence(error))
                if self._place.stopping.wait(self._place.settings.database_away_seconds):
                    raise

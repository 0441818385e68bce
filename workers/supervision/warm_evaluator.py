"""A supervisor's evaluator, kept warm between shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.service.contract.messages import Failure
from assay.workers.devices import device_count
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.counters import WorkerCounters
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess, UnfitWorker
from assay.workers.supervision.health import Health

DEVICE_FAULT, OTHER_DATA, OTHER_IDENTITY = "device_fault", "other_data", "other_identity"
UNFIT = (OTHER_DATA, OTHER_IDENTITY, DEVICE_FAULT)  # Errors of a worker unfit for a job; others may be fit
UNFIT_WORKER = "unfit"  # A failed self-test; no job's evaluator can report it
LAST_ERRORS = ("device_assertion",)  # After these a job's process cannot use the device
MAX_REFUSED = 100


def never() -> bool:
    """Nothing interrupts."""
    return False


class WarmEvaluator:
    """Starts an evaluator on demand, and records whose model it holds."""

    def __init__(
        self,
        settings: WorkerSettings,
        counters: WorkerCounters | None = None,
        device_classes: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._counters = counters or WorkerCounters()
        self._process: EvaluatorProcess | None = None
        self.job: str | None = None  # of the last answered request, while its evaluator lives
        self.shards = 0  # its requests answered in a row
        self.refused: dict[str, str] = {}  # unfit jobs with the reason, oldest first
        self.left: dict[str, str] = {}  # jobs that call it unfit, with its own finding, oldest first
        self._faulted: dict[str, str] = {}
        self.health = Health(device_classes, device_count(settings.devices))

    def answered(self, job: str) -> None:
        """Records that a request of this job was answered."""
        self.shards = self.shards + 1 if job == self.job else 1
        self.job = job

    def give_up(
        self, job: str, failure: Failure, *, others: Callable[[], bool], judged: bool = False
    ) -> None:
        """Ends the evaluator of a worker unfit for a job, and refuses the job from now on.

        A device's fault refuses it at the second time, where others are. `failure`: the worker's own finding,
        never the job's word.
        """
        self.end()
        again = job in self._faulted
        if failure["error_type"] == OTHER_IDENTITY:  # its program was exchanged
            self.health.outdated = failure["message"]
        if failure["error_type"] == DEVICE_FAULT:
            _remember(self._faulted, job, failure["message"])
        if (failure["error_type"] == OTHER_DATA and not judged) or (again and others()):
            _remember(self.refused, job, failure["message"])

    def leave(self, job: str, reason: str, *, others: Callable[[], bool]) -> None:
        """Leaves a job to other workers, if any: its shard may run there."""
        if others():
            _remember(self.left, job, reason)

    @property
    def process(self) -> EvaluatorProcess | None:
        """The evaluator, dead or alive; None without one."""
        return self._process

    def ready(self, interrupted: Callable[[], bool] = never) -> EvaluatorProcess:
        """A living evaluator with tested devices.

        Raises UnfitWorker: the test failed, or no program for it; EvaluatorDied: the test was interrupted;
        OSError: no program, and no devices are tested.
        """
        process = self._started()
        if not self.health.tested:
            self._test(process, interrupted)
        return process

    def look(self, interrupted: Callable[[], bool]) -> bool:
        """Test the devices if due before a claim; whether there was a test, with its outcome in `health`."""
        if not self.health.due:
            return False
        try:
            self._test(self._started(), interrupted)
        except (UnfitWorker, EvaluatorDied):
            self.end()
        return True

    def end(self) -> None:
        """End the evaluator, if any, with all its children."""
        process, self._process, self.job, self.shards = self._process, None, None, 0
        if process is not None:
            process.stop(self._settings.cancel_grace_seconds)
            self._counters.gauge("gpu", None)  # its memory is given back

    def _started(self) -> EvaluatorProcess:
        if self._process is not None and not self._process.alive():
            self.end()
        if self._process is None:
            try:
                self._process = EvaluatorProcess(self._settings)
            except OSError as error:
                if not self.health.judges:
                    raise
                self.health.failed(f"the evaluator process could not be started: {error}")
                raise UnfitWorker(self.health.reason) from error
            self._counters.count("assay_evaluator_starts_total")
        return self._process

    def _test(self, process: EvaluatorProcess, interrupted: Callable[[], bool]) -> None:
        self.job, self.shards = None, 0  # its template ends a job's evaluator first
        process.about = {}
        self.health.test(process, interrupted)


def _remember(jobs: dict[str, str], job: str, reason: str) -> None:
    jobs[job] = reason
    while len(jobs) > MAX_REFUSED:
        del jobs[next(iter(jobs))]

"""A supervisor's evaluator, kept warm between shards."""

from __future__ import annotations

from assay.workers.settings import WorkerSettings
from assay.workers.supervision.counters import WorkerCounters
from assay.workers.supervision.evaluator_process import EvaluatorProcess

# Errors of a worker that is not fit for a job, which other workers may be.
UNFIT = ("other_data",)
MAX_REFUSED = 100


class WarmEvaluator:
    """Starts an evaluator on demand, and records whose model it holds.

    Attributes:
        job: the job of the last answered request, while its evaluator lives.
        shards: how many requests of that job were answered in a row.
        refused: jobs that it is not fit for, with the reason, the oldest first.
    """

    def __init__(self, settings: WorkerSettings, counters: WorkerCounters | None = None) -> None:
        self._settings = settings
        self._counters = counters or WorkerCounters()
        self._process: EvaluatorProcess | None = None
        self.job: str | None = None
        self.shards = 0
        self.refused: dict[str, str] = {}

    def answered(self, job: str) -> None:
        """Records that a request of this job was answered."""
        self.shards = self.shards + 1 if job == self.job else 1
        self.job = job

    def refuse(self, job: str, reason: str) -> None:
        """Records that it is not fit for a job; the latest such jobs are remembered."""
        self.refused[job] = reason
        while len(self.refused) > MAX_REFUSED:
            del self.refused[next(iter(self.refused))]

    @property
    def process(self) -> EvaluatorProcess | None:
        """The evaluator, dead or alive; None without one."""
        return self._process

    def ready(self) -> EvaluatorProcess:
        """A living evaluator.

        Raises:
            OSError: its program cannot be started.
        """
        if self._process is not None and not self._process.alive():
            self.end()
        if self._process is None:
            self._process = EvaluatorProcess(self._settings)
            self._counters.count("assay_evaluator_starts_total")
        return self._process

    def end(self) -> None:
        """End the evaluator, if any, with all its children."""
        process, self._process, self.job, self.shards = self._process, None, None, 0
        if process is not None:
            process.stop(self._settings.cancel_grace_seconds)
            self._counters.gauge("gpu", None)  # its memory is given back

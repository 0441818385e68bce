"""Results of jobs that have ended, kept in memory: reading 500 evaluations takes a third of a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from assay.service.api.results import finished_results
from assay.service.catalog.catalog import Catalog
from assay.service.contract.results import Results
from assay.service.contract.states import TERMINAL, JobState
from assay.service.dashboard.result_rows import ShownResults, shown_results
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

# Of all kept jobs together, in metrics and rows of breakdowns: about 2 kB each.
MAX_KEPT_ROWS = 20_000
# A worker may still merge an evaluation of a job that was canceled or has failed.
SETTLED_SECONDS = 300.0
# What tells results from those of an earlier attempt: tenant, id, attempt, state and end.
Key = tuple[str | None, str, int, str, float | None]


@dataclass(frozen=True)
class ReadResults:
    """Results of a job, and what a page shows of them; neither may be changed."""

    results: Results
    shown: ShownResults


class KeptResults:
    """The results that pages asked for last; safe with several threads."""

    def __init__(self, max_rows: int = MAX_KEPT_ROWS) -> None:
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[ReadResults, int]] = OrderedDict()
        self._rows = 0

    def of(self, store: TenantStore, job: JobRow, catalog: Catalog) -> ReadResults:
        """The results so far, with the checks across them.

        Args:
            store: Of a caller who sees the job.
            job: As the caller's store gave it, just now.
            catalog: For the checks.

        Raises:
            NoResults: No evaluation has finished, and the job has not succeeded without any (training).
        """
        key = (job.tenant, job.id, job.attempt, job.state.value, job.finished_at)
        settled = _is_settled(job)
        if settled:
            with self._lock:
                if key in self._known:
                    self._known.move_to_end(key)
                    return self._known[key][0]
        results = finished_results(store, job, catalog)
        read = ReadResults(results, shown_results(results))
        if settled:
            self._keep(key, read)
        return read

    def _keep(self, key: Key, read: ReadResults) -> None:
        parts = read.results.evaluations
        size = 1 + sum(1 + len(part.metrics) + len(part.breakdown) for part in parts)
        if size > self._max_rows:
            return
        with self._lock:
            if key in self._known:
                return
            self._known[key] = (read, size)
            self._rows += size
            while self._rows > self._max_rows:
                _, (_, gone) = self._known.popitem(last=False)
                self._rows -= gone


def _is_settled(job: JobRow) -> bool:
    if job.state is JobState.SUCCEEDED:
        return True
    ended = job.state in TERMINAL and job.finished_at is not None
    return ended and time.time() - (job.finished_at or 0.0) > SETTLED_SECONDS

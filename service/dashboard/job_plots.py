"""The list of a job's plots, kept in memory: it takes longer to make than the rest of a page."""

from __future__ import annotations

from assay.service.api.plots import plot_summary, plots_with
from assay.service.contract.plots import PlotSummary
from assay.service.contract.results import Results
from assay.service.lru_cache import LruCache
from assay.service.settings import Settings
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

MAX_KEPT = 256
# Kinds of plots in which a single job is a single point.
OF_SEVERAL = frozenset({"tradeoff"})
# What the plots of a job depend on: its id, attempt, end, name, and the numbers of its results and files.
Key = tuple[str, int, float | None, str, int, int]

_cache: LruCache[Key, list[PlotSummary]] = LruCache(MAX_KEPT)


def plots_of_job(
    store: TenantStore, settings: Settings, job: JobRow, results: Results, files: int
) -> list[PlotSummary]:
    """The plots of a job that the caller sees, as a list.

    Args:
        store: The caller's.
        settings: Where the files are.
        job: Whose plots.
        results: So far.
        files: Number of the job's files.
    """
    key = (job.id, job.attempt, job.finished_at, job.name, len(results.evaluations), files)

    def make() -> list[PlotSummary]:
        specs = plots_with(store, settings, job, results)
        return [plot_summary(job, kind, spec) for kind, spec in specs.items() if kind not in OF_SEVERAL]

    return _cache.get_or_make(key, make)

"""Summaries of jobs, which lists show and sort by: written at the merge, and of earlier jobs afterwards."""

from __future__ import annotations

from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Results
from assay.service.contract.summaries import JobSummary
from assay.service.metrics.compare.bracket import brackets
from assay.service.reports.headline import summary
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store

AT_ONCE = 50


def saved_results(store: Store, job_id: str) -> Results:
    """The merged results of a job with the contradictions in brackets, without other checks across them."""
    saved = store.results.of(job_id)
    places = {index: EvaluationResult.model_validate(saved[index]) for index in sorted(saved)}
    warnings = brackets(
        places, lambda place: [row.columns for row in store.results.outcomes(job_id, place)], load().threat_of
    )[1]
    evaluations = [*places.values()]
    return Results(job=job_id, complete=True, evaluations=evaluations, warnings=warnings, provenance=None)


def summarised(results: Results) -> dict[str, Any]:
    """The columns of a job's summary."""
    return summary_columns(summary(results))


def summarise_earlier(store: Store) -> int:
    """Summarises up to `AT_ONCE` jobs that an earlier version merged; returns their number."""
    found = store.jobs.without_summary(AT_ONCE)
    for job_id in found:
        try:
            columns = summarised(saved_results(store, job_id))
        except (ValueError, TypeError, LookupError):  # not results of this version
            columns = summary_columns(JobSummary())
        store.jobs.summarise(job_id, columns)
    return len(found)

"""Plots of a job that has ended, stored beside its files: `plot-KIND.vl.json`, and the same as SVG."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.service.contract.records import ArtifactDescription
from assay.service.contract.results import EvaluationResult, Results
from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.render import RenderError, render
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.workers.jobs import artifacts

log = logging.getLogger(__name__)
TRAINING_LOG = "training_log.jsonl"  # as workers/training/training_log.py names it; that package needs torch


def save_plots(
    store: Store, folder: Path, job: JobRow, tallies: Mapping[int, Mapping[str, Any]], *, svg: bool
) -> None:
    """Store the plots that the job's results allow.

    Args:
        store: has the results.
        folder: of the job's files.
        job: whose evaluations are all merged.
        tallies: counts of the examples, by evaluation.
        svg: whether they are rendered too; one that cannot be is logged, and left out.

    Raises:
        NotFound: the job has been deleted.
        OSError: a file could not be written.
    """
    saved = store.results.of(job.id)
    results = Results(
        job=job.id,
        complete=True,
        evaluations=[EvaluationResult.model_validate(saved[index]) for index in sorted(saved)],
        provenance=None,
    )
    labelled = LabelledResults(job.name or job.id, results, tallies, _training_records(folder))
    for kind, spec in plots_of([labelled]).items():
        written = [artifacts.write_text(folder / f"plot-{kind}.vl.json", json.dumps(spec))]
        if svg:
            written += _rendered(folder / f"plot-{kind}.svg", spec)
        for one in written:
            store.artifacts.add(job.id, **one)


def _rendered(path: Path, spec: dict[str, Any]) -> list[ArtifactDescription]:
    try:
        content = render(spec, "svg")
    except (RenderError, OSError) as error:
        log.warning("%s: not rendered, the service renders it when it is asked for: %s", path, error)
        return []
    return [artifacts.write(path, content)]


def _training_records(folder: Path) -> list[dict[str, Any]]:
    """The records of a training; none for other jobs, or for a damaged log."""
    try:
        lines = (folder / TRAINING_LOG).read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("%s: no training curves: %s", folder / TRAINING_LOG, error)
        return []
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("epoch"), int)]

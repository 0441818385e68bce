"""Plots of a job that has ended, stored beside its files: `plot-KIND.vl.json`, and the same as SVG."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.errors import NotFound
from assay.service.contract.results import Results
from assay.service.files.file_store import FileStore, StoreAway, read_bounded
from assay.service.files.json_bounds import JsonBounds
from assay.service.plots.kinds import LabelledResults, Vega, plots_of
from assay.service.plots.render import RenderError, render
from assay.service.plots.tallies import tally_shards
from assay.service.store.rows import JobRow, OutcomeRow
from assay.service.store.store import Store

log = logging.getLogger(__name__)
# A record for each epoch, with what its recipe measures.
MAX_LOG_BYTES = 64 * 2**20
LOG_BOUNDS = JsonBounds(MAX_LOG_BYTES, values=2_000_000, containers=200_000)
TRAINING_LOG = "training_log.jsonl"  # as workers/training/training_log.py names it; that package needs torch


def tallied(rows: Sequence[OutcomeRow], names: Sequence[str]) -> dict[str, Any]:
    """Counts of an evaluation's examples, from its shards, and the names of its classes."""
    return {**tally_shards([row.columns for row in rows]), "names": names}


def save_plots(
    store: Store, files: FileStore, job: JobRow, results: Results, tallies: Mapping[int, Mapping[str, Any]]
) -> dict[str, Vega]:
    """Store the plots of a job as data; their specs by kind. NotFound of a deleted job, or an OSError."""
    labelled = LabelledResults(job.name or job.id, results, tallies, _training_records(files, job.id))
    plots = plots_of([labelled])
    for kind, spec in plots.items():
        store.artifacts.add(job.id, **files.write(job.id, f"plot-{kind}.vl.json", json.dumps(spec).encode()))
    return plots


def render_plots(store: Store, files: FileStore, job_id: str, plots: Mapping[str, Vega]) -> None:
    """Store plots as SVG once the job has ended; the service renders a plot that failed when asked for it."""
    for kind, spec in plots.items():
        name = f"plot-{kind}.svg"
        try:
            store.artifacts.add(job_id, **files.write(job_id, name, render(spec, "svg")))
        except NotFound:  # the job was deleted meanwhile, with its files
            with contextlib.suppress(OSError):
                files.clear(job_id)
            return
        except (RenderError, OSError) as error:
            log.warning("job %s: %s is not rendered: %s", job_id, name, error)


def _training_records(files: FileStore, job_id: str) -> list[dict[str, Any]]:
    try:
        content = read_bounded(files, job_id, TRAINING_LOG, "", MAX_LOG_BYTES)
        LOG_BOUNDS.check(content)
        records = [json.loads(line) for line in content.decode().splitlines()]
    except FileNotFoundError:
        return []
    except StoreAway:
        raise
    except (OSError, ValueError, RecursionError) as error:
        log.warning("job %s: no training curves: %s", job_id, error)
        return []
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("epoch"), int)]

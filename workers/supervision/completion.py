"""After a finished shard: merges its evaluation, and ends a job without shards left."""

from __future__ import annotations

import contextlib
import fnmatch
import logging

from assay.service.contract.errors import NotFound
from assay.service.contract.fleet import traces
from assay.service.contract.states import JobState
from assay.service.files.file_store import StoreAway
from assay.service.store.rows import Claim, Finished
from assay.service.store.store import Store
from assay.workers.jobs import merge
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.ledger import DATABASE_UNAVAILABLE
from assay.workers.supervision.public_errors import in_words, without_paths

log = logging.getLogger(__name__)
CHECKPOINTS = "step-*.pt"  # as workers/training/checkpoint.py, which needs torch


def merge_and_finish(store: Store, settings: WorkerSettings, claim: Claim, finished: Finished) -> None:
    """Merge the evaluation and end the job, where this claim's shard completed them."""
    if finished.job_done:
        finish_job(store, settings, claim.job_id)
    elif finished.evaluation_done:
        finish_evaluation(store, settings, claim.job_id, claim.evaluation)


def finish_evaluation(store: Store, settings: WorkerSettings, job_id: str, evaluation: int) -> None:
    """Merge an evaluation of a running job; repeatable and concurrent."""
    _save(store, settings, job_id, evaluation)


def finish_job(store: Store, settings: WorkerSettings, job_id: str) -> None:
    """Merge missing results, then end the job; repeatable and concurrent: results are equal."""
    _save(store, settings, job_id, None)
    _drop_checkpoints(store, settings, job_id)


def _save(store: Store, settings: WorkerSettings, job_id: str, evaluation: int | None) -> None:
    try:
        with traces.span("merge", store.jobs.get(job_id).trace, job=job_id):
            if evaluation is None:
                merge.save_job(store, settings.file_store, job_id, svg=settings.render_plots)
            else:
                merge.save_evaluation(store, settings.file_store, job_id, evaluation)
    except (*DATABASE_UNAVAILABLE, StoreAway) as error:
        # Recorded: missing results are merged at the job's end, at the latest by the reaper.
        log.warning("job %s: the database or the store of files is away, merging later: %s", job_id, error)
    except NotFound:
        log.info("job %s: deleted before its results were merged", job_id)
    except merge.MixedIdentities as error:
        log.error("job %s: %s", job_id, error)
        store.jobs.fail(job_id, "mixed_identities", str(error))
    except Exception as error:  # a result that cannot be saved fails the job
        log.exception("job %s: the results could not be saved", job_id)
        said = without_paths(in_words(error), settings, job_id)
        store.jobs.fail(job_id, "save_failed", f"the results could not be saved: {said}")


def _drop_checkpoints(store: Store, settings: WorkerSettings, job_id: str) -> None:
    try:
        succeeded = store.jobs.get(job_id).state == JobState.SUCCEEDED
    except (NotFound, *DATABASE_UNAVAILABLE):
        return
    if succeeded:
        with contextlib.suppress(StoreAway):  # they go with the job's files
            for name in fnmatch.filter(settings.file_store.sizes(job_id), CHECKPOINTS):
                settings.file_store.remove(job_id, name)

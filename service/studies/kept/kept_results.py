"""Results of ended studies, kept in the store: 500 runs have thousands of results to read.

A kept text counts for the study and its results as they were, and for the code that made it: after a late
merge, a retry, a deleted job or an upgrade the results are made once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections import Counter
from functools import cache

from sqlalchemy.exc import DBAPIError

from assay.service.catalog.catalog import load
from assay.service.contract.errors import NoResults, NotFound
from assay.service.contract.extras import version_of
from assay.service.contract.fleet.release import CODE, ROOT, source_sha256
from assay.service.store.tenants import TenantStore
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.rows import StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.stored_results import results_of

log = logging.getLogger(__name__)
NOTHING = ""  # kept of a study without results to keep, so that the service tries once
MAX_TRIES = 3
PARTS = (*CODE, "service/api", "service/store", "service/studies")


def kept_results_of(store: TenantStore, study: StudyRow) -> StudyResults:
    """As `results_of`; the results of a study that has ended are made once."""
    code, studies = _code(), store.features.of(Studies)
    if code is None or not study.ended:
        return results_of(store, study)
    measured = studies.measured(study.id)
    sha256 = hashlib.sha256(f"{code}{study!r}{measured}".encode()).hexdigest()
    known = studies.kept_text(study.id, sha256)
    if known:
        return StudyResults.model_validate_json(known)
    try:
        found = results_of(store, study)
    except NoResults:
        if known is None:
            _keep(studies, study, (sha256, measured), NOTHING)
        raise
    if known is None:
        _keep(studies, study, (sha256, measured), _text(found))
    return found


def keep_one(store: TenantStore, tries: Counter[str]) -> None:
    """Makes the results of a study that has ended, if there is such a study; `tries` are of this process."""
    studies = store.features.of(Studies)
    study_id = studies.without_text([one for one, count in tries.items() if count >= MAX_TRIES])
    if study_id is not None:
        tries[study_id] += 1
        with contextlib.suppress(NoResults, NotFound):
            kept_results_of(store, studies.get(study_id))


def _keep(studies: Studies, study: StudyRow, state: tuple[str, str], text: str) -> None:
    sha256, measured = state
    if studies.measured(study.id) != measured:  # merged, or begun once more, in the meantime
        return
    try:
        studies.keep_text(study.id, sha256, text)
    except DBAPIError as error:  # Another process was quicker, it was deleted, or the database is full.
        log.info("the results of study %s are not kept: %s", study.id, error)


def _text(found: StudyResults) -> str:
    """The results as JSON, if JSON gives the same results back."""
    try:
        text = found.model_dump_json()
        return text if StudyResults.model_validate_json(text) == found else NOTHING
    except ValueError:
        return NOTHING


@cache
def _code() -> str | None:
    source = source_sha256(ROOT, PARTS)
    libraries = [version_of(name) for name in ("numpy", "scipy")]
    return None if source is None else f"{source}{load().digest}{libraries}"

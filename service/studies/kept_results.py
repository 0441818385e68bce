"""Results of ended studies, kept in the store: 500 runs have thousands of results to read.

A kept text counts for the study as it was and for the code that made it: after a retry, a deleted job or an
upgrade the results are made once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from functools import cache

from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError

from assay.service.contract.errors import NoResults, NotFound
from assay.service.contract.fleet.release import CODE, ROOT, source_sha256
from assay.service.store.tenants import TenantStore
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.rows import StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.stored_results import results_of

log = logging.getLogger(__name__)
NOTHING = ""  # kept of a study without results to keep, so that the service tries once


def kept_results_of(store: TenantStore, study: StudyRow) -> StudyResults:
    """As `results_of`; the results of a study that has ended are made once."""
    code = _code()
    if code is None or not study.ended:
        return results_of(store, study)
    studies, sha256 = store.features.of(Studies), hashlib.sha256(f"{code}{study!r}".encode()).hexdigest()
    text = studies.kept_text(study.id, sha256)
    if text:
        return StudyResults.model_validate_json(text)
    try:
        found = results_of(store, study)
    except DBAPIError:
        raise
    except Exception:
        _keep(studies, study, sha256, NOTHING)
        raise
    if text is None:
        _keep(studies, study, sha256, _text(found))
    return found


def keep_one(store: TenantStore) -> None:
    """Makes the results of an ended study of which nothing was ever kept, if there is such a study."""
    studies = store.features.of(Studies)
    study_id = studies.without_text()
    if study_id is not None:
        with contextlib.suppress(NoResults, NotFound):
            kept_results_of(store, studies.get(study_id))


def _keep(studies: Studies, study: StudyRow, sha256: str, text: str) -> None:
    try:
        studies.keep_text(study.id, sha256, text)
    except DBAPIError as error:  # Another process was quicker, it was deleted, or the database is full.
        log.debug("the results of study %s are not kept: %s", study.id, error)


def _text(found: StudyResults) -> str:
    """The results as JSON, if JSON gives the same results back."""
    text = found.model_dump_json()
    try:
        return text if StudyResults.model_validate_json(text) == found else NOTHING
    except ValidationError:
        return NOTHING


@cache
def _code() -> str | None:
    return source_sha256(ROOT, (*CODE, "service/api", "service/studies"))

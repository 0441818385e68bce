"""Routes of signatures: signed results, and the public keys that check them.

The service has the key; workers and evaluators do not. It signs when first asked, and keeps the signature
as a file of the job.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence

from fastapi import Response

from assay.service.api.artifacts import remove_artifacts
from assay.service.api.authentication import SIGNING_KEYS_PATH
from assay.service.api.deps import CatalogDep, JobDep, SettingsDep, StoreDep, StrictRouter
from assay.service.api.errors import documented
from assay.service.api.results import finished_results
from assay.service.api.views import JOBS_PATH
from assay.service.contract.errors import InvalidState, NotFound, Unavailable
from assay.service.contract.results import Results
from assay.service.contract.times import iso
from assay.service.files.file_store import StoreAway, read_bounded
from assay.service.files.job_files import SIGNATURE_FILE
from assay.service.settings import Settings
from assay.service.signing.keys import BadKey, keyring, public_keys
from assay.service.signing.statement import SignedFile, content_of, sign
from assay.service.signing.verify import BadSignature, opened
from assay.service.signing.wire import Envelope, KeySet
from assay.service.store.rows import ArtifactRow
from assay.service.store.tenants import TenantStore

logger = logging.getLogger(__name__)
router = StrictRouter(tag="signatures")
ROUTERS, BEFORE = (router,), "artifacts"
CANNOT_SIGN = "the service cannot use its signing key; its log says why"
# Enough for results with thousands of evaluations; a longer file in the job's folder is not ours.
MAX_SIGNATURE_BYTES = 256 * 1024**2
PLACING_SECONDS = 1.0  # In which another call's file has its second name no more, and can be read


@router.get(SIGNING_KEYS_PATH, summary="Public keys of signatures", responses=documented(Unavailable))
def list_signing_keys(settings: SettingsDep) -> KeySet:
    """The keys that sign results, as a JSON Web Key Set; needs no API key."""
    try:
        return keyring(settings).public()
    except (BadKey, OSError) as error:
        logger.error("no public keys can be given: %s", error)
        raise Unavailable(CANNOT_SIGN) from error


@router.get(
    f"{JOBS_PATH}/{{job_id}}/signature",
    summary="Signature of a job's results",
    response_model=Envelope,
    responses=documented(NotFound, InvalidState, Unavailable),
)
def get_signature(job: JobDep, store: StoreDep, catalog: CatalogDep, settings: SettingsDep) -> Response:
    """The complete results, their provenance and the hashes of the job's files, signed.

    A DSSE envelope around an in-toto statement, made at the first call; later calls give the same envelope.
    """
    results = finished_results(store, job, catalog) if job.state.terminal else None
    if results is None or not results.complete:
        raise InvalidState(f"job {job.id} is {job.state.value}; only complete results are signed")
    rows = store.artifacts.of(job.id)
    try:
        if any(row.expired_at is not None for row in rows):
            content = _signed(
                settings, results, rows
            )  # the job's folder is gone, a new folder would soon be gone too
        else:
            content = _kept(store, settings, results, rows)
    except (BadKey, OSError) as error:
        logger.error("job %s: no signature: %s", job.id, error)
        raise Unavailable(CANNOT_SIGN) from error
    return Response(content, media_type="application/json", headers={"X-Content-Type-Options": "nosniff"})


def _signed(settings: Settings, results: Results, rows: Sequence[ArtifactRow]) -> bytes:
    files = [SignedFile(row.name, row.size, row.sha256) for row in rows]
    envelope = sign(keyring(settings).private(), content_of(results), files, iso(time.time()))
    return (envelope.model_dump_json(indent=2) + "\n").encode()


def _kept(store: TenantStore, settings: Settings, results: Results, rows: Sequence[ArtifactRow]) -> bytes:
    """The signature among the job's files; a new one is put there if it is missing."""
    content = _found(settings, results.job)
    if content is None:
        content = _signed(settings, results, rows)
        try:
            content = _placed(settings, results.job, content)
        except OSError as error:
            logger.warning("job %s: its signature is not kept: %s", results.job, error)
            return content
    digest = hashlib.sha256(content).hexdigest()
    if not any(row.name == SIGNATURE_FILE and row.sha256 == digest for row in rows):
        try:
            store.artifacts.add(
                results.job, SIGNATURE_FILE, SIGNATURE_FILE, len(content), digest, "application/json"
            )
        except NotFound:  # the job was just deleted
            remove_artifacts(settings.file_store, results.job)
            raise
    return content


def _found(settings: Settings, job_id: str) -> bytes | None:
    """The content of a signature file, if this service has signed it, for this job."""
    # Evaluators write to the job's folder too: the file may be anything, of any size.
    try:
        content = read_bounded(settings.file_store, job_id, SIGNATURE_FILE, "", MAX_SIGNATURE_BYTES)
    except StoreAway:
        raise
    except OSError:
        return None
    try:
        signed = opened(content, public_keys(keyring(settings).public()))
    except BadSignature:
        return None
    return content if signed.job == job_id else None


def _placed(settings: Settings, job_id: str, content: bytes) -> bytes:
    """Writes a signature; the first of several at once stays, and is returned."""
    try:
        settings.file_store.write(job_id, SIGNATURE_FILE, content, once=True)
    except FileExistsError:
        until = time.monotonic() + PLACING_SECONDS
        while (others := _found(settings, job_id)) is None and time.monotonic() < until:
            time.sleep(PLACING_SECONDS / 100)
        if others is not None:
            return others
        settings.file_store.write(job_id, SIGNATURE_FILE, content)
    return content

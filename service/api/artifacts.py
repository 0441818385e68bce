"""Routes of artifacts: files written by a job."""

from __future__ import annotations

import logging
import os
import re
from typing import BinaryIO

from fastapi import Request, Response
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from assay.service.api.deps import JobDep, SettingsDep, StoreDep, StrictRouter, unchanged
from assay.service.api.errors import documented
from assay.service.api.views import JOBS_PATH, artifact_view
from assay.service.contract.errors import NotFound, Unavailable
from assay.service.contract.results import Artifact, Page
from assay.service.contract.times import iso
from assay.service.files.file_store import FileStore, StoreAway
from assay.service.files.job_files import media_type_of
from assay.service.store.rows import ArtifactRow

logger = logging.getLogger(__name__)
ONE_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})", re.ASCII)
# A file that is gone, too large, or kept by a store that is away: what pages do without.
UNREADABLE = (NotFound, Unavailable, OSError)
router = StrictRouter(prefix=JOBS_PATH, tag="artifacts")


@router.get("/{job_id}/artifacts", summary="List the files of a job", responses=documented(NotFound))
def list_artifacts(job: JobDep, store: StoreDep) -> Page[Artifact]:
    """Name, size, sha256 and media type of every file."""
    return Page(items=[artifact_view(job.id, row) for row in store.artifacts.of(job.id)])


@router.get(
    "/{job_id}/artifacts/{name}",
    summary="Download a file of a job",
    response_class=FileResponse,
    responses={
        200: {
            "description": "The file, in its own media type; its ETag is its sha256",
            "content": {"*/*": {}},
        },
        206: {"description": "The part of the file that `Range` names; other ranges answer the whole file"},
        304: {"description": "The file has the sha256 given in `If-None-Match`"},
        **documented(NotFound, Unavailable),
    },
)
def download_artifact(
    job: JobDep, name: str, request: Request, store: StoreDep, settings: SettingsDep
) -> Response:
    """Streams the file. The name is looked up among the job's artifacts; the path is of job and name."""
    if not name.isprintable():
        raise NotFound(f"job {job.id} has no artifact {name[:100]!r}")
    row = store.artifacts.get(job.id, name)
    if row.expired_at is not None:
        raise NotFound(
            f"artifact {row.name!r} expired on {iso(row.expired_at)}: the service deletes the files of jobs"
            " that ended long ago, and keeps their results"
        )
    etag = f'"{row.sha256}"'
    if (same := unchanged(request, etag)) is not None:
        return same
    file = open_artifact(settings.file_store, row)
    ignore_odd_ranges(request, os.fstat(file.fileno()).st_size)
    return OpenFileResponse(file, row.name, etag)


class OpenFileResponse(FileResponse):
    """Sends the file that was opened, not what its job has put under that name since."""

    def __init__(self, file: BinaryIO, name: str, etag: str) -> None:
        self._file = file
        super().__init__(  # An attachment: a browser must never run a job's file as a page of ours.
            f"/dev/fd/{file.fileno()}",
            media_type=media_type_of(name),
            filename=name,
            headers={"ETag": etag},
            stat_result=os.fstat(file.fileno()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; at the first part of the body its number is open a second time, and closed here."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                self._file.close()
            await send(message)

        with self._file:
            await super().__call__(scope, receive, sent)


def ignore_odd_ranges(request: Request, size: int) -> None:
    """Drops a `Range` header that Starlette would refuse without the error envelope."""
    match = ONE_RANGE.fullmatch(request.headers.get("range", "").strip())
    if match is None or not int(match[1]) < min(int(match[2] or size) + 1, size):
        request.scope["headers"] = [item for item in request.scope["headers"] if item[0] != b"range"]


def open_artifact(files: FileStore, row: ArtifactRow) -> BinaryIO:
    """The file of an artifact, by job and name, not by its row's path; or one of `UNREADABLE`."""
    try:
        return files.open(row.job_id, row.name, row.sha256)
    except StoreAway as error:
        logger.error("artifact %r of job %s: %s", row.name, row.job_id, error)
        raise Unavailable(f"the file of artifact {row.name!r} cannot be had now: {error.strerror}") from None
    except OSError as error:
        logger.error("artifact %r of job %s: %s", row.name, row.job_id, error)
        raise NotFound(f"the file of artifact {row.name!r} is gone") from None


def read_artifact(files: FileStore, row: ArtifactRow, most: int) -> bytes:
    """The content of an artifact; one of `UNREADABLE`: not there, or more than `most` bytes."""
    with open_artifact(files, row) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise NotFound(f"the file of artifact {row.name!r} has more than {most:,} bytes")
    return content


def remove_artifacts(files: FileStore, job_id: str) -> None:
    """Removes the files of a deleted job; failures are logged, and the job is gone all the same."""
    try:
        files.clear(job_id)
    except OSError as error:
        logger.warning("could not remove the files of deleted job %s: %s", job_id, error)

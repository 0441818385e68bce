"""Files of a claim: what its job needs comes from here, what it leaves is placed in its job's folder.

Only while the claim stands, and only files that the claim's job names: weights of its sources, checkpoints of
its own training, and files that it may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from assay.service.api.artifacts import OpenFileResponse
from assay.service.api.authentication import GATEWAY_PATH
from assay.service.api.deps import BodyDep, StrictRouter, validated
from assay.service.api.upload_file import Upload
from assay.service.contract.errors import InvalidSpec, InvalidState, NotFound, TooLarge
from assay.service.contract.fleet import gateway as wire
from assay.service.contract.records import ArtifactDescription, OutcomeExtra
from assay.service.files.job_files import is_job_file, media_type_of, open_job_file
from assay.service.gateway.calls import GatewayDep, WorkerGateway, WorkerRoute
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.rows import Claim
from assay.service.submission.dependencies import dependencies_of

router = StrictRouter(prefix=GATEWAY_PATH, tag="gateway", route_class=WorkerRoute)
STEP = re.compile(wire.STEP_FILE)
OF_MERGE = re.compile(r"(plot|outcomes|gallery)-\w+(-\w+)?(\.\w+)+")  # Files that the merge writes itself
MAX_FILES = 1000
CHUNK = 1024**2
SHA256 = r"^[0-9a-f]{64}$"


@router.post("/sources", include_in_schema=False)
def sources(body: BodyDep, gateway: GatewayDep) -> dict[str, Any]:
    """Specs of the jobs that the claim's job depends on, the checkpoints that it loads, its files' names."""
    held = gateway.claim(validated(wire.HeldCall, body).token)
    gateway.tokens.spec(held)
    needed = gateway.store.checkpoints.needed_by(held.job_id)
    specs = {job: gateway.store.jobs.get(job).spec for job in _needed_jobs(gateway, held)}
    return {
        "specs": specs,
        "checkpoints": {name: asdict(row) for name, row in needed.items()},
        "artifacts": sorted(Path(row.path).name for row in gateway.store.artifacts.of(held.job_id)),
        "steps": [path.name for path in _steps(gateway, held)],
    }


@router.post("/download", include_in_schema=False, response_class=FileResponse)
def download(body: BodyDep, gateway: GatewayDep) -> Response:
    """A file that the claim's job needs, with its hash where it is known; 304 for an equal copy."""
    call = validated(wire.DownloadCall, body)
    held = gateway.claim(call.token)
    sha256 = _sha256_of(gateway, held, call.job, call.name)
    if sha256 and sha256 == call.known:
        return Response(status_code=304)
    try:
        file = open_job_file(gateway.settings.artifacts / call.job, call.name)
    except OSError:
        raise NotFound(f"job {call.job} has no file {call.name}") from None
    return OpenFileResponse(file, call.name, f'"{sha256}"')


@router.post("/upload", include_in_schema=False)
async def upload(
    request: Request,
    gateway: GatewayDep,
    name: Annotated[str, Query(max_length=200)],
    sha256: Annotated[str, Query(pattern=SHA256)],
    token: Annotated[str, Header(alias="Assay-Claim", max_length=4000)],
) -> None:
    """Places a file of the claim in its job's folder."""
    held = gateway.claim(token)
    target, there = await run_in_threadpool(_target, gateway, held, name, sha256)
    written = await run_in_threadpool(
        Upload, gateway.settings.artifacts, gateway.settings.max_checkpoint_bytes
    )
    arriving, come = gateway.shared.arriving, 0
    try:
        async for chunk in request.stream():
            come += len(chunk)
            arriving[held.job_id] += len(chunk)
            _check_room(gateway, there + arriving[held.job_id])
            await run_in_threadpool(written.write, chunk)
        await run_in_threadpool(written.close)
        await run_in_threadpool(_place, gateway, held, written, target, sha256)
    finally:
        arriving[held.job_id] -= come
        if arriving[held.job_id] <= 0:
            del arriving[held.job_id]
        written.discard()


def placed(gateway: WorkerGateway, held: Claim, extra: OutcomeExtra) -> OutcomeExtra:
    """The outcome with its files as they lie here. Raises InvalidSpec: a file is another, or missing."""
    folder = gateway.settings.artifacts / held.job_id
    found = extra.copy()
    if "artifacts" in extra:
        found["artifacts"] = [_described(folder, one) for one in extra["artifacts"]]
    if "gallery" in extra:
        found["gallery"] = _described(folder, extra["gallery"])
    return found


def _described(folder: Path, stated: ArtifactDescription) -> ArtifactDescription:
    name, digest, size = stated["name"], hashlib.sha256(), 0
    try:
        with open_job_file(folder, name) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError:
        raise InvalidSpec(f"the outcome names the file {name!r}, which was not sent") from None
    if (size, digest.hexdigest()) != (stated["size"], stated["sha256"]):
        raise InvalidSpec(f"the outcome names another file {name!r} than was sent")
    return {**stated, "path": str(folder / name), "media_type": media_type_of(name)}


def _needed_jobs(gateway: WorkerGateway, held: Claim) -> list[str]:
    """Training jobs that the claim's job depends on; deleted jobs are left out."""
    named = {one.job for one in dependencies_of(gateway.tokens.spec(held)) if one.checkpoint is None}
    found = []
    for job in sorted(named):
        try:
            gateway.store.jobs.get(job)
        except NotFound:
            continue
        found.append(job)
    return found


def _sha256_of(gateway: WorkerGateway, held: Claim, job: str, name: str) -> str:
    """The hash of a file that the claim may read, empty where its name has it. Raises InvalidState."""
    spec = gateway.tokens.spec(held)
    if STEP.fullmatch(name) and job == held.job_id and spec["kind"] == "train":
        return ""
    if name == WEIGHTS:
        uploads = {
            row.job_id: row.sha256 for row in gateway.store.checkpoints.needed_by(held.job_id).values()
        }
        if job in uploads:
            return uploads[job]
        if held.kind == "check" and job == held.job_id:
            return gateway.tokens.upload_sha256(job)
        if job in _needed_jobs(gateway, held):
            return gateway.store.artifacts.get(job, WEIGHTS).sha256
    raise InvalidState(f"the claim needs no file {name[:100]!r} of job {job[:100]!r}")


def _check_room(gateway: WorkerGateway, size: int) -> None:
    """Raises TooLarge: the files of a job, also of its uploads in flight, would have too many bytes."""
    allowed = gateway.settings.max_job_files_bytes
    if allowed and size > allowed:
        raise TooLarge(
            f"the job's files have {size:,} bytes; allowed: {allowed:,} (ASSAY_MAX_JOB_FILES_BYTES)"
        )


def _target(gateway: WorkerGateway, held: Claim, name: str, sha256: str) -> tuple[Path, int]:
    """Where a file of the claim belongs, and the bytes of the job's other files.

    Raises InvalidState: not a name that it may write.
    """
    spec, folder = gateway.tokens.spec(held), gateway.settings.artifacts / held.job_id
    step = STEP.fullmatch(name)
    if step is not None:
        allowed = held.kind == "train" and sha256.startswith(step[2])
    elif OF_MERGE.fullmatch(name):
        allowed = False
    else:
        weights = name == WEIGHTS and spec["kind"] != "train"
        allowed = held.kind in ("train", "evaluate") and is_job_file(name) and not weights
    if not allowed:
        raise InvalidState(f"the claim may leave no file {name[:100]!r}")
    others = [*_sizes(folder, name)]
    if len(others) >= MAX_FILES:
        raise InvalidState(f"the job has {MAX_FILES:,} files; allowed: no more")
    return folder / name, sum(others)


def _sizes(folder: Path, apart: str) -> Iterator[int]:
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # an older step was removed
            if path.name != apart:
                yield path.stat().st_size


def _place(gateway: WorkerGateway, held: Claim, written: Upload, target: Path, sha256: str) -> None:
    if written.sha256 != sha256:
        raise InvalidSpec(f"the file has the hash {written.sha256}, {sha256} was stated")
    _, there = _target(gateway, held, target.name, sha256)  # It may have been claimed again meanwhile.
    _check_room(gateway, there + written.size)
    written.place(target)
    if STEP.fullmatch(target.name):
        for old in _steps(gateway, held)[wire.MAX_CHECKPOINTS :]:
            old.unlink(missing_ok=True)


def _steps(gateway: WorkerGateway, held: Claim) -> list[Path]:
    """The checkpoints of the claim's training, newest first."""
    folder = gateway.settings.artifacts / held.job_id
    return sorted((path for path in folder.glob("step-*.pt") if STEP.fullmatch(path.name)), reverse=True)

"""Files of a claim: what its job needs comes from here, what it leaves is placed in its job's folder.

Only while the claim stands, and only files that the claim's job names: weights of its sources, checkpoints of
its own training, and files that it may write.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from assay.service.api.artifacts import OpenFileResponse
from assay.service.api.authentication import GATEWAY_PATH
from assay.service.api.deps import BodyDep, StrictRouter, validated
from assay.service.api.upload_file import Upload
from assay.service.contract.errors import InvalidSpec, InvalidState, NotFound, TooLarge, Unavailable
from assay.service.contract.fleet import gateway as wire
from assay.service.contract.records import ArtifactDescription, OutcomeExtra
from assay.service.files.file_store import FileStore, StoreAway, described
from assay.service.files.job_files import RESERVED, is_job_file
from assay.service.files.s3_files import PRESIGNED_SECONDS
from assay.service.gateway.calls import GatewayDep, WorkerGateway, WorkerRoute
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.rows import Claim
from assay.service.store.uploads import PromisedFiles
from assay.service.submission.dependencies import dependencies_of

router = StrictRouter(prefix=GATEWAY_PATH, tag="gateway", route_class=WorkerRoute)
STEP = re.compile(wire.STEP_FILE)
OF_MERGE = re.compile(r"(plot|outcomes|gallery)-\w+(-\w+)?(\.\w+)+")  # Files that the merge writes itself
MAX_FILES = 1000
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
        "artifacts": sorted(row.name for row in gateway.store.artifacts.of(held.job_id)),
        "steps": _steps(gateway, held),
    }


@router.post("/download", include_in_schema=False, response_class=FileResponse)
def download(body: BodyDep, gateway: GatewayDep) -> Response:
    """A file that the claim's job needs, with its hash where it is known; 304 for an equal copy."""
    call = validated(wire.DownloadCall, body)
    held = gateway.claim(call.token)
    sha256 = _sha256_of(gateway, held, call.job, call.name)
    if sha256 and sha256 == call.known:
        return Response(status_code=304)
    step = STEP.fullmatch(call.name)
    try:
        file = gateway.settings.file_store.open(call.job, call.name, step[2] if step else sha256)
    except StoreAway as error:
        raise Unavailable(f"file {call.name} of job {call.job} cannot be had now: {error.strerror}") from None
    except OSError:
        raise NotFound(f"job {call.job} has no file {call.name}") from None
    return OpenFileResponse(file, call.name, f'"{sha256}"')


@router.post("/presign", include_in_schema=False)
def presign(body: BodyDep, gateway: GatewayDep) -> dict[str, Any]:
    """A call to the store itself, instead of `download` or `upload`; without `url` there is no way there.

    `held`: the file is there already, as when the answer to its outcome was lost.
    """
    call = validated(wire.PresignCall, body)
    held, files, sha256 = gateway.claim(call.token), gateway.settings.file_store, call.sha256
    if call.method == "GET":
        sha256 = _sha256_of(gateway, held, call.job, call.name)
    elif not sha256:
        raise InvalidSpec("sha256: missing; a put is bound to it")
    elif call.job != held.job_id or call.size > gateway.settings.max_checkpoint_bytes:
        raise InvalidState(f"the claim may leave no file {call.name[:100]!r} of {call.size:,} bytes there")
    else:
        others = _other_files(gateway, held, call.name, sha256)
        _check_room(gateway, sum(others.values()) + call.size)
        _remove_old_steps(gateway, held)
    found = files.presign(call.method, call.job, call.name, sha256, call.size)
    if found is None:
        return {"url": None}
    answer = {**asdict(found), "sha256": sha256}
    if call.method == "PUT":
        if _holds(files, call):
            return {**answer, "held": True}
        most, promises = gateway.settings.max_job_files_bytes, gateway.store.part(PromisedFiles)
        size = promises.add(held.job_id, call.name, call.size, PRESIGNED_SECONDS, others, most)
        _check_room(gateway, size)
    return answer


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
    there = sum((await run_in_threadpool(_other_files, gateway, held, name, sha256)).values())
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
        await run_in_threadpool(_place, gateway, held, written, name, sha256)
    finally:
        arriving[held.job_id] -= come
        if arriving[held.job_id] <= 0:
            del arriving[held.job_id]
        written.discard()


def placed(gateway: WorkerGateway, held: Claim, extra: OutcomeExtra) -> OutcomeExtra:
    """The outcome with its files as they lie here. Raises InvalidSpec: a file is another, or missing."""
    files, found = gateway.settings.file_store, extra.copy()
    if "artifacts" in extra:
        found["artifacts"] = [_described(files, held.job_id, one) for one in extra["artifacts"]]
    if "gallery" in extra:
        found["gallery"] = _described(files, held.job_id, extra["gallery"])
    named = [*found.get("artifacts", []), *([found["gallery"]] if "gallery" in found else [])]
    if named:
        gateway.store.part(PromisedFiles).forget(held.job_id, [one["name"] for one in named])
    return found


def _holds(files: FileStore, call: wire.PresignCall) -> bool:
    try:
        return files.holds(call.job, call.name, call.sha256, call.size)
    except OSError:  # it is put, and then looked at again
        return False


def _described(files: FileStore, job: str, stated: ArtifactDescription) -> ArtifactDescription:
    name = stated["name"]
    try:
        if files.holds(job, name, stated["sha256"], stated["size"]):
            return described(name, f"{job}/{name}", stated["size"], stated["sha256"])
    except StoreAway as error:
        raise Unavailable(f"the file {name!r} cannot be looked at now: {error.strerror}") from None
    except OSError:
        raise InvalidSpec(f"the outcome names the file {name!r}, which was not sent") from None
    raise InvalidSpec(f"the outcome names another file {name!r} than was sent")


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


def _other_files(gateway: WorkerGateway, held: Claim, name: str, sha256: str) -> dict[str, int]:
    """The bytes of each other file of the job, also of those that presigned puts may still bring.

    Raises InvalidState: a name that the claim may not write, or too many files; Unavailable.
    """
    spec = gateway.tokens.spec(held)
    step = STEP.fullmatch(name)
    if step is not None:
        allowed = held.kind == "train" and sha256.startswith(step[2])
    elif OF_MERGE.fullmatch(name):
        allowed = False
    else:
        weights = name == WEIGHTS and spec["kind"] != "train"
        own = is_job_file(name) and name not in RESERVED
        allowed = held.kind in ("train", "evaluate") and own and not weights
    if not allowed:
        raise InvalidState(f"the claim may leave no file {name[:100]!r}")
    sizes = {**gateway.store.part(PromisedFiles).of(held.job_id), **_sizes(gateway, held)}
    sizes.pop(name, None)
    if len(sizes) >= MAX_FILES:
        raise InvalidState(f"the job has {MAX_FILES:,} files; allowed: no more")
    return sizes


def _place(gateway: WorkerGateway, held: Claim, written: Upload, name: str, sha256: str) -> None:
    if written.sha256 != sha256:
        raise InvalidSpec(f"the file has the hash {written.sha256}, {sha256} was stated")
    # It may have been claimed again meanwhile.
    _check_room(gateway, sum(_other_files(gateway, held, name, sha256).values()) + written.size)
    written.place(gateway.settings.file_store, held.job_id, name)
    _remove_old_steps(gateway, held)


def _steps(gateway: WorkerGateway, held: Claim) -> list[str]:
    """The checkpoints of the claim's training, newest first."""
    return sorted(filter(STEP.fullmatch, _sizes(gateway, held)), reverse=True)


def _remove_old_steps(gateway: WorkerGateway, held: Claim) -> None:
    if held.kind == "train":
        for old in _steps(gateway, held)[wire.MAX_CHECKPOINTS :]:
            gateway.settings.file_store.remove(held.job_id, old)


def _sizes(gateway: WorkerGateway, held: Claim) -> dict[str, int]:
    try:
        return gateway.settings.file_store.sizes(held.job_id)
    except StoreAway as error:
        raise Unavailable(f"the files of the job cannot be listed now: {error.strerror}") from None

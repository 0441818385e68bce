"""Files of a claim over the gateway: fetched with their hash, sent once, and tidied up on the node."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import uuid
from pathlib import Path

import httpx

from assay.service.contract.errors import AssayError
from assay.service.contract.fleet.gateway import STEP_FILE
from assay.service.contract.records import OutcomeExtra
from assay.service.files.job_files import open_job_file
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.ids import is_id
from assay.service.store.rows import Claim
from assay.workers.gateway.connection import Gateway
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.claim_files import OwnFolder
from assay.workers.supervision.ledger import GatewayAway

log = logging.getLogger(__name__)
STEP = re.compile(STEP_FILE)
CHUNK = 1024**2


class GatewayFiles:
    """The `ClaimFiles` of a node without a shared volume."""

    def __init__(self, gateway: Gateway, settings: WorkerSettings) -> None:
        self._gateway, self._settings = gateway, settings
        self._own = OwnFolder(settings)

    def weights(self, claim: Claim, job_id: str) -> Path:
        """As `ClaimFiles`."""
        self._own.tidy()
        path = self._settings.folder(job_id) / WEIGHTS
        if is_id(job_id):
            self._fetch(claim, job_id, path)
        return path

    def resume(self, claim: Claim) -> None:
        """As `ClaimFiles`."""
        self._own.tidy()
        folder = self._settings.folder(claim.job_id)
        mine = {path.name for path in folder.glob("step-*.pt")}
        theirs: list[str] = self._gateway.call("/sources", {"token": claim.token})["steps"]
        for name in [one for one in theirs[:1] if STEP.fullmatch(one) and one not in mine]:
            self._fetch(claim, claim.job_id, folder / name)

    def keep(self, claim: Claim, step: int) -> None:
        """As `ClaimFiles`."""
        for path in self._settings.folder(claim.job_id).glob(f"step-{step:09d}.*.pt"):
            if STEP.fullmatch(path.name):
                self._send(claim, path, self._own.sha256(path))

    def send(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Sends the files that an outcome names. Raises OSError, LEDGER_AWAY."""
        for path, sha256 in self._own.named(claim, extra).items():
            self._send(claim, path, sha256)

    def forget(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Removes what has been sent."""
        self._own.forget(claim, extra)

    def _send(self, claim: Claim, path: Path, sha256: str) -> None:
        """Sends a file to the store itself, or through the gateway where there is no way to the store."""
        facts = {"sha256": sha256, "size": path.stat().st_size}
        place = self._gateway.presigned(claim, "PUT", claim.job_id, path.name, **facts)
        if place is not None:
            if place.get("held"):  # of an earlier call with the same claim
                return
            try:
                with open_job_file(path.parent, path.name) as file, self._gateway.stored(place, file):
                    return
            except GatewayAway as error:
                log.warning("shard %s: %s goes through the gateway: %s", claim.shard_id, path.name, error)
        self._gateway.upload(claim, path, sha256)

    def _fetch(self, claim: Claim, job_id: str, path: Path) -> None:
        """Brings a file, unless an equal file is there; a missing file is reported by the evaluator."""
        known = self._own.sha256(path) if path.is_file() and not path.is_symlink() else None
        try:
            place = self._gateway.presigned(claim, "GET", job_id, path.name)
            if place is not None:
                try:
                    if place["sha256"] and place["sha256"] == known:
                        os.utime(path.parent)
                        return
                    with self._gateway.stored(place) as answer:
                        self._receive(answer, path, place["sha256"])
                        return
                except (GatewayAway, OSError) as error:
                    log.warning("shard %s: %s comes by the gateway: %s", claim.shard_id, path.name, error)
            body = {"token": claim.token, "job": job_id, "name": path.name, "known": known}
            with self._gateway.download(body) as answer:
                if answer.status_code == 304:
                    os.utime(path.parent)
                else:
                    self._receive(answer, path, answer.headers.get("etag", "").strip('"'))
        except AssayError as error:
            log.warning("shard %s: %s of job %s: %s", claim.shard_id, path.name, job_id, error)

    def _receive(self, answer: httpx.Response, path: Path, stated: str) -> None:
        digest, part = hashlib.sha256(), path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                for chunk in answer.iter_bytes(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
            if not self._is_whole(path.name, digest.hexdigest(), stated):
                job = path.parent.name
                raise OSError(f"{path.name} of job {job} came with another content than stated")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def _is_whole(name: str, found: str, stated: str) -> bool:
        step = STEP.fullmatch(name)
        return found.startswith(step[2]) if step is not None else found == stated

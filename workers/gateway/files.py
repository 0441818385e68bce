"""Files of a claim over the gateway: fetched with their hash, sent once, and tidied up on the node."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.service.contract.errors import AssayError
from assay.service.contract.fleet.gateway import STEP_FILE
from assay.service.contract.records import OutcomeExtra
from assay.service.files.job_files import open_job_file
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.ids import is_id
from assay.service.store.rows import Claim
from assay.workers.gateway.connection import Gateway
from assay.workers.settings import WorkerSettings

log = logging.getLogger(__name__)
STEP = re.compile(STEP_FILE)
CHUNK = 1024**2
KEPT_SECONDS = 86400.0  # Of a job's folder that no shard has used


class GatewayFiles:
    """The `ClaimFiles` of a node without a shared volume."""

    def __init__(self, gateway: Gateway, settings: WorkerSettings) -> None:
        self._gateway, self._settings = gateway, settings
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._tidied_at = float("-inf")

    def weights(self, claim: Claim, job_id: str) -> Path:
        """As `ClaimFiles`."""
        self._tidy()
        path = self._settings.folder(job_id) / WEIGHTS
        if is_id(job_id):
            self._fetch(claim, job_id, path)
        return path

    def resume(self, claim: Claim) -> None:
        """As `ClaimFiles`."""
        self._tidy()
        folder = self._settings.folder(claim.job_id)
        mine = {path.name for path in folder.glob("step-*.pt")}
        theirs: list[str] = self._gateway.call("/sources", {"token": claim.token})["steps"]
        for name in [one for one in theirs[:1] if STEP.fullmatch(one) and one not in mine]:
            self._fetch(claim, claim.job_id, folder / name)

    def keep(self, claim: Claim, step: int) -> None:
        """As `ClaimFiles`."""
        for path in self._settings.folder(claim.job_id).glob(f"step-{step:09d}.*.pt"):
            if STEP.fullmatch(path.name):
                self._gateway.upload(claim, path, self._sha256(path))

    def send(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Sends the files that an outcome names. Raises OSError, LEDGER_AWAY."""
        for path, sha256 in self._named(claim, extra).items():
            self._gateway.upload(claim, path, sha256)

    def forget(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Removes what has been sent; weights stay for shards that need them."""
        for path in self._named(claim, extra):
            if path.name != WEIGHTS:
                path.unlink(missing_ok=True)
        if claim.kind == "train":
            for path in self._settings.folder(claim.job_id).glob("step-*.pt"):
                path.unlink(missing_ok=True)

    def _named(self, claim: Claim, extra: Mapping[str, Any]) -> dict[Path, str]:
        named = [*extra.get("artifacts", []), *([extra["gallery"]] if "gallery" in extra else [])]
        folder = self._settings.folder(claim.job_id)
        return {folder / Path(one["name"]).name: one["sha256"] for one in named}

    def _fetch(self, claim: Claim, job_id: str, path: Path) -> None:
        """Brings a file, unless an equal file is there; a missing file is reported by the evaluator."""
        known = self._sha256(path) if path.is_file() and not path.is_symlink() else None
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        body = {"token": claim.token, "job": job_id, "name": path.name, "known": known}
        try:
            with self._gateway.download(body) as answer:
                if answer.status_code == 304:
                    os.utime(path.parent)
                    return
                digest = hashlib.sha256()
                path.parent.mkdir(parents=True, exist_ok=True)
                with part.open("xb") as file:
                    for chunk in answer.iter_bytes(CHUNK):
                        digest.update(chunk)
                        file.write(chunk)
                stated = answer.headers.get("etag", "").strip('"')
            if not self._is_whole(path.name, digest.hexdigest(), stated):
                raise OSError(f"{path.name} of job {job_id} came with another content than stated")
            part.replace(path)
        except AssayError as error:
            log.warning("shard %s: %s of job %s: %s", claim.shard_id, path.name, job_id, error)
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def _is_whole(name: str, found: str, stated: str) -> bool:
        step = STEP.fullmatch(name)
        return found.startswith(step[2]) if step is not None else found == stated

    def _sha256(self, path: Path) -> str:
        facts = path.stat()
        place = (str(path), facts.st_size, facts.st_mtime_ns)
        if place not in self._hashes:
            digest = hashlib.sha256()
            with open_job_file(path.parent, path.name) as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
            self._hashes = {**dict([*self._hashes.items()][-100:]), place: digest.hexdigest()}
        return self._hashes[place]

    def _tidy(self) -> None:
        """Removes folders of jobs that this node has not served for a day."""
        if time.monotonic() - self._tidied_at < KEPT_SECONDS / 24:
            return
        self._tidied_at = time.monotonic()
        for folder in self._settings.artifacts.glob("*"):
            if is_id(folder.name) and time.time() - folder.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)

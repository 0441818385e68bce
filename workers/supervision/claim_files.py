"""Files of a shard that other workers write or read: on a shared volume they are where they belong."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from assay.service.contract.errors import NotFound
from assay.service.contract.fleet.gateway import MAX_CHECKPOINTS, STEP_FILE
from assay.service.contract.records import OutcomeExtra
from assay.service.files.file_store import StoreAway, digest_of
from assay.service.files.job_files import open_job_file
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.ids import is_id
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings

log = logging.getLogger(__name__)
STEP = re.compile(STEP_FILE)
KEPT_SECONDS = 86400.0  # Of a job's folder that no shard has used


class ClaimFiles(Protocol):
    """What a claim reads and leaves; an OSError or one of `LEDGER_AWAY` where a file cannot be moved."""

    def weights(self, claim: Claim, job_id: str) -> Path:
        """Path of the weights of a job that the claim needs; nothing is there without such weights."""
        ...

    def resume(self, claim: Claim) -> None:
        """Brings the last checkpoint of a training into its job's folder."""
        ...

    def keep(self, claim: Claim, step: int) -> None:
        """Leaves the checkpoint of a step to whoever goes on with the training."""
        ...


class OwnFolder:
    """The folders of jobs on a worker that shares them with no other."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._tidied_at = float("-inf")

    def named(self, claim: Claim, extra: Mapping[str, Any]) -> dict[Path, str]:
        """The files that an outcome names, with their hashes."""
        named = [*extra.get("artifacts", []), *([extra["gallery"]] if "gallery" in extra else [])]
        folder = self._settings.folder(claim.job_id)
        return {folder / Path(one["name"]).name: one["sha256"] for one in named}

    def forget(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Removes what has been sent; weights stay for shards that need them."""
        for path in self.named(claim, extra):
            if path.name != WEIGHTS:
                path.unlink(missing_ok=True)
        if claim.kind == "train":
            for path in self._settings.folder(claim.job_id).glob("step-*.pt"):
                path.unlink(missing_ok=True)

    def sha256(self, path: Path) -> str:
        """The hash of a file, read again once it has changed. Raises OSError."""
        facts = path.stat()
        place = (str(path), facts.st_size, facts.st_mtime_ns)
        if place not in self._hashes:
            with open_job_file(path.parent, path.name) as file:
                found = digest_of(file)[0]
            self._hashes = {**dict([*self._hashes.items()][-100:]), place: found}
        return self._hashes[place]

    def tidy(self) -> None:
        """Removes folders of jobs that this worker has not served for a day."""
        if time.monotonic() - self._tidied_at < KEPT_SECONDS / 24:
            return
        self._tidied_at = time.monotonic()
        for folder in self._settings.artifacts.glob("*"):
            if is_id(folder.name) and time.time() - folder.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


class SharedFiles:
    """The files of a state folder that all workers share."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings

    def weights(self, claim: Claim, job_id: str) -> Path:
        """As `ClaimFiles`."""
        return self._settings.folder(job_id) / WEIGHTS

    def resume(self, claim: Claim) -> None:
        """It is there."""

    def keep(self, claim: Claim, step: int) -> None:
        """It is kept."""

    def send(self, claim: Claim, extra: OutcomeExtra) -> None:
        """They are where they belong."""

    def forget(self, claim: Claim, extra: OutcomeExtra) -> None:
        """They stay."""


class StoredFiles:
    """The `ClaimFiles` of an object store. Its methods raise StoreAway."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self._store, self._settings, self._files = store, settings, settings.file_store
        self._own = OwnFolder(settings)

    def weights(self, claim: Claim, job_id: str) -> Path:
        """As `ClaimFiles`."""
        self._own.tidy()
        path = self._settings.folder(job_id) / WEIGHTS
        try:
            self._fetch(job_id, path, self._sha256_of(claim, job_id))
        except (NotFound, FileNotFoundError) as error:  # missing weights are reported by the evaluator
            log.warning("shard %s: %s", claim.shard_id, error)
        return path

    def resume(self, claim: Claim) -> None:
        """As `ClaimFiles`."""
        for name in self._steps(claim.job_id)[:1]:
            self._fetch(claim.job_id, self._settings.folder(claim.job_id) / name, name.split(".")[1])

    def keep(self, claim: Claim, step: int) -> None:
        """As `ClaimFiles`."""
        for path in self._settings.folder(claim.job_id).glob(f"step-{step:09d}.*.pt"):
            if STEP.fullmatch(path.name):
                self._files.put(path, claim.job_id, path.name, self._own.sha256(path), keep=True)
        for name in self._steps(claim.job_id)[MAX_CHECKPOINTS:]:
            self._files.remove(claim.job_id, name)

    def send(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Moves the files that an outcome names to the store; a lost file keeps back no measurement."""
        for path, sha256 in self._own.named(claim, extra).items():
            try:
                self._files.put(path, claim.job_id, path.name, sha256)
            except StoreAway:
                raise
            except OSError as error:
                log.error("shard %s: its file %s is lost: %s", claim.shard_id, path.name, error)

    def forget(self, claim: Claim, extra: OutcomeExtra) -> None:
        """Removes what has been sent."""
        self._own.forget(claim, extra)

    def _fetch(self, job_id: str, path: Path, sha256: str) -> None:
        if path.is_file() and not path.is_symlink() and self._own.sha256(path).startswith(sha256):
            os.utime(path.parent)
        else:
            self._files.fetch(job_id, path.name, sha256, path)

    def _steps(self, job_id: str) -> list[str]:
        return sorted(filter(STEP.fullmatch, self._files.sizes(job_id)), reverse=True)

    def _sha256_of(self, claim: Claim, job_id: str) -> str:
        """The hash of weights. Raises NotFound."""
        if claim.kind == "check" and job_id == claim.job_id:
            return str((claim.spec["model"]["weights"] or {})["sha256"])
        uploads = {row.job_id: row.sha256 for row in self._store.checkpoints.needed_by(claim.job_id).values()}
        return uploads.get(job_id) or self._store.artifacts.get(job_id, WEIGHTS).sha256

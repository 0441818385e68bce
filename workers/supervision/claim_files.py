"""Files of a shard that other workers write or read: on a shared volume they are where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from assay.service.store.artifacts import WEIGHTS
from assay.service.store.rows import Claim
from assay.workers.settings import WorkerSettings


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

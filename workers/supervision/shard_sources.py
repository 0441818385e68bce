"""Where a shard's weights and other models' weights are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar, cast

from assay.service.contract.errors import NotFound
from assay.service.contract.messages import ModelSource
from assay.service.contract.stored_specs import EvaluateJobSpec, TrainJobSpec
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.artifacts import WEIGHTS
from assay.service.store.rows import Claim
from assay.service.submission.dependencies import dependencies_of
from assay.workers.supervision.claim_files import ClaimFiles
from assay.workers.supervision.ledger import WorkLedger

T = TypeVar("T")


class Insist(Protocol):
    """Asks the database until it answers."""

    def __call__(self, ask: Callable[[], T], /) -> T:
        """The answer."""
        ...


class ShardSources:
    """Paths for the request of a claim."""

    def __init__(self, claim: Claim, ledger: WorkLedger, files: ClaimFiles, insist: Insist) -> None:
        self._claim = claim
        self._ledger = ledger
        self._files = files
        self._insist = insist

    def weights(self) -> str | None:
        """Path of the model's initial weights; None without a stored file."""
        weights = self._claim.spec["model"].get("weights") or {}
        source = weights.get("job")
        if self._claim.kind == "check":
            source = self._claim.job_id
        elif "checkpoint" in weights:
            # The evaluator reports a missing checkpoint.
            found = self._uploads().get(weights["checkpoint"])
            source = f"checkpoint-{weights['checkpoint']}" if found is None else found.job_id
        return None if source is None else self._path(source)

    def others(self) -> dict[str, ModelSource]:
        """Other models of the shard, by job or upload; a plan has all evaluations'."""
        claim = self._claim
        required = [
            dependency for dependency in dependencies_of(claim.spec) if dependency.evaluation is not None
        ]
        mine = {
            dependency.job: dependency.checkpoint
            for dependency in required
            if claim.kind == "plan" or dependency.evaluation == claim.evaluation
        }
        uploads = self._uploads() if any(mine.values()) else {}
        found: dict[str, ModelSource] = {}
        for job_id, checkpoint in sorted(mine.items()):
            # The evaluator reports a missing checkpoint.
            if checkpoint is not None:
                if checkpoint in uploads:
                    found[job_id] = self._uploaded(uploads[checkpoint])
                continue
            with contextlib.suppress(NotFound):
                # Only trainings and checks of uploads have dependents.
                spec = cast(TrainJobSpec, self._insist(partial(self._ledger.spec_of, claim, job_id)))
                found[job_id] = {"spec": spec, "weights": self._path(job_id)}
        return found

    def _uploads(self) -> Mapping[str, CheckpointRow]:
        return self._insist(lambda: self._ledger.needed_checkpoints(self._claim))

    def _uploaded(self, checkpoint: CheckpointRow) -> ModelSource:
        claim = self._claim
        weights = {"checkpoint": checkpoint.name, "sha256": checkpoint.sha256, **checkpoint.reading}
        spec = claim.spec | {"model": {**checkpoint.model, "weights": weights}}
        return {"spec": cast(EvaluateJobSpec, spec), "weights": self._path(checkpoint.job_id)}

    def _path(self, job_id: str) -> str:
        """The weights of a job; a link or other non-file in their place is no weights."""
        path = self._insist(partial(self._files.weights, self._claim, job_id))
        # The evaluator reports missing weights.
        is_other = path.is_symlink() or (path.exists() and not path.is_file())
        return str(path.with_name(f"{WEIGHTS}-is-no-file") if is_other else path)

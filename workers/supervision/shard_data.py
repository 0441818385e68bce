"""The data sets of a claimed shard, hashed before its evaluator reads them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import cast

from assay.service.catalog.catalog import load
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import Plan, PlanWithShards
from assay.service.contract.stored_specs import EvaluateJobSpec
from assay.service.store.rows import Claim
from assay.service.submission.requirements import label_of, planned_requirements
from assay.workers.supervision.evaluator_process import EvaluatorDied
from assay.workers.supervision.inventory import Hashed, Inventory, other_data
from assay.workers.supervision.warm_evaluator import WarmEvaluator

log = logging.getLogger(__name__)
RECEIVE_SECONDS = 0.2
STALLS = 12.0  # Most time for a data set, in times of a shard without progress


class OtherDataHere(Exception):
    """A data set is not the planned one; the message has both hashes."""


class ShardData:
    """The data sets of a claim below the data root; `evaluator` hashes unknown sets."""

    def __init__(
        self,
        claim: Claim,
        inventory: Inventory,
        evaluator: WarmEvaluator,
        interrupted: Callable[[], bool],
        stall_seconds: float,
    ) -> None:
        self._claim = claim
        self._inventory = inventory
        self._evaluator = evaluator
        self._interrupted = interrupted
        self._seconds = STALLS * stall_seconds
        self._cold = evaluator.job != claim.job_id
        self._walked: set[tuple[str, ...]] = set()
        self._read_hashes: dict[str, str] = {}

    def hashes(self) -> dict[str, str]:
        """The hash of each readable data set of the shard by its label."""
        if self._claim.kind not in ("plan", "evaluate"):
            return {}
        spec, found = cast(EvaluateJobSpec, self._claim.spec), dict[str, str]()
        mine = range(len(spec["evaluations"])) if self._claim.kind == "plan" else [self._claim.evaluation]
        for evaluation in mine:
            label, folders = label_of(load(), spec, evaluation)
            if folders and label not in found:
                digest = self._hash(spec, evaluation, label, folders)
                found |= {} if digest is None else {label: digest}
        planned = {} if self._claim.plan is None else self._claim.plan["data_sha256"]
        for label, digest in found.items():
            if planned.get(label, digest) != digest:
                raise OtherDataHere(other_data(label, digest, planned[label]))
        self._read_hashes = found
        return found

    def differing(self) -> str | None:
        """Which data set of the shard, read again, is not the planned one; None where all are."""
        if self._claim.kind != "evaluate" or self._claim.plan is None:
            return None
        spec, planned = cast(EvaluateJobSpec, self._claim.spec), self._claim.plan["data_sha256"]
        own_label, folders = label_of(load(), spec, self._claim.evaluation)
        before = self._inventory.fingerprint(folders) if folders else None
        for label, digest in self._ask(spec, self._claim.evaluation).items():
            if label == own_label and before is not None:
                self._inventory.keep(label, Hashed(tuple(folders), before, digest))
            if planned.get(label, digest) != digest:
                return other_data(label, digest, planned[label])
        return None

    def trusted(self, plan: PlanWithShards) -> PlanWithShards:
        """A plan with hashes that this worker has read, of data below the data root."""
        spec = cast(EvaluateJobSpec, self._claim.spec)
        of_folders = {
            label
            for label, folders in (label_of(load(), spec, index) for index in range(len(spec["evaluations"])))
            if folders
        }
        stated = {label: sha256 for label, sha256 in plan["data_sha256"].items() if label not in of_folders}
        return {**plan, "data_sha256": stated | self._read_hashes}

    def requirements(self, plan: Plan) -> list[Requirements]:
        """Requirements on the workers of each evaluation's shards, for this worker's plan."""
        spec, gpu = cast(EvaluateJobSpec, self._claim.spec), self._evaluator.health.gpu
        count = len(spec["evaluations"])
        return [planned_requirements(load(), spec, plan, index, gpu) for index in range(count)]

    def _hash(self, spec: EvaluateJobSpec, evaluation: int, label: str, folders: list[str]) -> str | None:
        # Once for a new job, whose evaluator has read nothing yet.
        walk = self._cold and (*folders,) not in self._walked
        self._walked.add((*folders,))
        known = self._inventory.known(label, folders, walk=walk)
        if known is not None:
            return known
        with self._inventory.hashing(self._interrupted) as mine:
            if not mine:
                raise EvaluatorDied("the hashing of its data was interrupted")
            # Another worker of this machine may have hashed it.
            known = self._inventory.known(label, folders, walk=False)
            return known or self._read(spec, evaluation, label, folders)

    def _read(self, spec: EvaluateJobSpec, evaluation: int, label: str, folders: list[str]) -> str | None:
        before, begun = self._inventory.fingerprint(folders), time.monotonic()
        digest = None if before is None else self._ask(spec, evaluation).get(label)
        if digest is None or before is None:  # the shard says what is missing
            return None
        log.info(
            "the data set %s has the content %s, read in %.1f s", label, digest, time.monotonic() - begun
        )
        if self._inventory.fingerprint(folders) == before:  # else files changed meanwhile
            self._inventory.keep(label, Hashed(tuple(folders), before, digest))
        return digest

    def _ask(self, spec: EvaluateJobSpec, evaluation: int) -> dict[str, str]:
        process = self._evaluator.ready(self._interrupted)
        self._evaluator.job, self._evaluator.shards = (None, 0)  # its template ends a job's evaluator first
        process.send(
            {"kind": "hash", "folder": "", "weights": None, "spec": spec, "evaluations": [evaluation]}
        )
        deadline = time.monotonic() + self._seconds
        while not self._interrupted():
            message = process.receive(timeout=RECEIVE_SECONDS)
            if message is None and time.monotonic() > deadline:
                raise EvaluatorDied(f"its data could not be hashed within {self._seconds:g} s")
            if message is not None and message["type"] == "hashed":
                return message["data_sha256"]
            if message is not None and message["type"] == "error":
                log.warning("data not hashed: %s: %s", message["error_type"], message["message"])
                return {}
        raise EvaluatorDied("the hashing of its data was interrupted")

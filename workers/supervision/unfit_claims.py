"""A shard's evaluator says that its worker is not fit: the worker finds out for itself.

Code that got out of a model writes such reports, too. Believed, they would take every worker out of service,
one after the other, and run the shard for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.workers import identity
from assay.workers.supervision.evaluator_process import EvaluatorDied, UnfitWorker
from assay.workers.supervision.shard_data import ShardData
from assay.workers.supervision.warm_evaluator import (
    DEVICE_FAULT,
    OTHER_DATA,
    OTHER_IDENTITY,
    UNFIT,
    WarmEvaluator,
)

LOOKED_AT = {
    OTHER_IDENTITY: "its code is as it was when the worker started",
    OTHER_DATA: "its data have the planned content",
    DEVICE_FAULT: "its devices have passed another self-test",
}
FINGERPRINT = "unfit"  # Two in succession, of any worker, fail the shard's job


def is_claim(error_type: str) -> bool:
    """Whether an evaluator's error says that its worker is not fit."""
    return error_type in UNFIT


def confirmed(
    error_type: str, evaluator: WarmEvaluator, data: ShardData, interrupted: Callable[[], bool]
) -> str | None:
    """Why the worker is not fit, by its own measurement; None where it is, or was interrupted.

    The job's evaluator is ended first: the asked evaluator has read nothing of the job.
    """
    evaluator.end()
    try:
        if error_type == OTHER_IDENTITY:
            return None if identity.is_unchanged() else f"{identity.CHANGED}: restart the worker"
        if error_type == OTHER_DATA:
            return data.differing()
        if evaluator.health.judges:
            before = {*evaluator.health.faults}
            evaluator.health.doubt()
            evaluator.ready(interrupted)
            new = {name: why for name, why in evaluator.health.faults.items() if name not in before}
            return "; ".join(f"{name}: {why}" for name, why in new.items()) or None
    except UnfitWorker as error:
        return str(error)
    except EvaluatorDied:
        evaluator.end()
    return None

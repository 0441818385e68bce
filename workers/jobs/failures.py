"""Maps exceptions in the evaluator to the job's error, and decides on a retry."""

from __future__ import annotations

import torch

from assay.service.contract.errors import AssayError, NotFound
from assay.service.contract.messages import Failure
from assay.workers.containment.settings import from_environment
from assay.workers.data.formats.dataset import MissingData
from assay.workers.discovery.packages import ComponentMissing
from assay.workers.training.result import TrainingDiverged

# Of torch, for memory of the CPU: a RuntimeError.
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"
SAME_CATALOG = "they need the same version of Assay, and ASSAY_CATALOG the same file"


class BadWeights(ValueError):
    """The weights do not fit the model; the message lists the keys at fault."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this process got no memory; torch says so in words alone."""
    return isinstance(error, MemoryError) or NO_MEMORY in str(error)


class OtherData(Exception):
    """The data set of this worker has another content than that of the worker that planned the job."""


class FailedElsewhere(Exception):
    """Another process failed, and has reported the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def _limit() -> str:
    """The limit that this process has, in words; empty without one."""
    chosen = from_environment()
    if chosen is None or chosen.mode == "off" or not chosen.limits.memory:
        return ""
    most = f"at most {chosen.limits.memory:,} bytes (ASSAY_MAX_EVALUATOR_BYTES)"
    least = "of a training, what its model, data and batch need"
    return f": the evaluator's memory limit is what the plan of the job needs several times, {most}; {least}"


# The error's type in the contract, and whether another worker may succeed.
NAMED: dict[type[Exception], tuple[str, bool]] = {
    OtherData: ("other_data", True),
    MissingData: ("data_missing", False),
    BadWeights: ("bad_weights", False),
    TrainingDiverged: ("training_diverged", False),
    ComponentMissing: ("component_missing", False),
}


def describe(error: Exception) -> Failure:
    """Name the failure; only transient ones are worth a retry."""
    if isinstance(error, FailedElsewhere):
        return error.failure
    for kind, (error_type, retry) in NAMED.items():
        if isinstance(error, kind):
            return Failure(error_type=error_type, message=str(error), retry=retry)
    if isinstance(error, NotFound):
        text = f"{error.message}: the catalog of this worker is not that of the service; {SAME_CATALOG}"
        return Failure(error_type="component_missing", message=text, retry=False)
    if isinstance(error, AssayError):
        text = "; ".join([error.message, *(detail.message for detail in error.details)])
        return Failure(error_type=error.type, message=text, retry=False)
    if isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error):
        message = f"out of memory{_limit()}; a smaller execution.batch_size may help. {error}".strip()
        return Failure(error_type="out_of_memory", message=message, retry=False)
    if isinstance(error, ValueError):
        return Failure(error_type="invalid_value", message=str(error), retry=False)
    return Failure(error_type="evaluator_raised", message=f"{type(error).__name__}: {error}", retry=True)

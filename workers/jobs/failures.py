"""Maps exceptions in the evaluator to the job's error, and decides on a retry."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import socket
import traceback
from pathlib import Path

import torch
from safetensors import SafetensorError

from assay.service.contract.errors import AssayError, NotFound
from assay.service.contract.extras import explained
from assay.service.contract.messages import Failure
from assay.workers import accelerator
from assay.workers.containment.settings import from_environment
from assay.workers.data.formats.dataset import MissingData
from assay.workers.discovery.packages import ComponentMissing
from assay.workers.exhaustion import is_disk_full, is_out_of_memory
from assay.workers.training.result import TrainingDiverged

_PHRASES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("failures.json").read_text(encoding="utf-8")
)
# Faults of a device, a driver, or of other processes on it, as CUDA and torch say them: not the job's.
DEVICE_FAULTS = _PHRASES["device_faults"]
ASSERTION = "device-side assert"
# The program asked for what no device of this kind does.
OF_THE_PROGRAM = ("invalid configuration argument", "invalid argument", "too many resources requested")
ABOUT_CUDA = re.compile(r"cuda|cudnn|cublas|cusolver|cufft|nvml|nccl|nvidia", re.IGNORECASE)
NO_REPEATABLE_KERNEL = re.compile(r"(\S+) does not have a deterministic implementation")
# Errors after which a process cannot use its device any more.
CONTEXT_LOST = frozenset({"device_fault", "device_assertion"})
# Memory that other processes hold when this one gets none: above this share it is they that are at fault.
OTHERS_SHARE = 0.25
SAME_CATALOG = "they need the same version of Assay, and ASSAY_CATALOG the same file"


class BadWeights(ValueError):
    """The weights do not fit the model; the message lists the keys at fault."""


class OtherData(Exception):
    """The data set of this worker has other content than it has at the worker that planned the job."""


class OtherIdentity(Exception):
    """This worker has other code, packages or another catalog than the worker that planned the job."""


class FailedElsewhere(Exception):
    """Another process failed, and has reported the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def is_device_fault(error: BaseException) -> bool:
    """Whether a device or its driver failed, or other processes hold its memory: torch says so in words."""
    if isinstance(error, torch.OutOfMemoryError):
        return _taken_by_others()
    text = str(error)
    if not isinstance(error, RuntimeError | AssertionError) or ASSERTION in text:
        return False
    if isinstance(error, torch.AcceleratorError):
        return not any(phrase in text for phrase in OF_THE_PROGRAM)
    return ABOUT_CUDA.search(text) is not None and any(phrase in text for phrase in DEVICE_FAULTS)


def _taken_by_others() -> bool:
    """Whether other processes hold more of the GPU's memory than this one, and much of it."""
    if not accelerator.is_available() or not accelerator.is_in_use():
        return False
    try:
        found = accelerator.memory()
    except RuntimeError:  # it cannot be asked any more
        return True
    others = found.total - found.free - found.reserved
    return others > max(found.reserved, OTHERS_SHARE * found.total)


def _of_device(error: Exception) -> Failure | None:
    text = str(error)
    first = text.partition("\n")[0]
    if is_device_fault(error):
        taken = "other processes hold its memory: " if isinstance(error, torch.OutOfMemoryError) else ""
        message = f"a device of this worker failed, not the job: {taken}{type(error).__name__}: {first}"
        return Failure(error_type="device_fault", message=message, retry=True)
    if isinstance(error, RuntimeError) and ASSERTION in text:
        message = f"a kernel stopped at an assertion, mostly for an index out of its range: {first}"
        return Failure(error_type="device_assertion", message=message, retry=False)
    if found := NO_REPEATABLE_KERNEL.search(text):
        message = (
            f"the operator {found[1]} has no deterministic implementation on this device, and results that do"
            " not repeat are refused; allowed: a model, an attack or a device without it"
        )
        return Failure(error_type="nondeterministic_operator", message=message, retry=False)
    return None


def _limit() -> str:
    chosen = from_environment()
    if chosen is None or chosen.mode == "off" or not chosen.limits.memory:
        return ""
    most = f"at most {chosen.limits.memory:,} bytes (ASSAY_MAX_EVALUATOR_BYTES)"
    least = "of a training, what its model, data and batch need"
    return f": the evaluator's memory limit is what the plan of the job needs several times, {most}; {least}"


def _not_here(error: Exception) -> Failure | None:
    if isinstance(error, NotFound):
        text = f"{error.message}: this worker has another catalog than the service; {SAME_CATALOG}"
        return Failure(error_type="component_missing", message=text, retry=False)
    if isinstance(error, ImportError) and (said := explained("this job", error)) is not None:
        text = f"{said}, on the worker {socket.gethostname()}"
        return Failure(error_type="package_missing", message=text, retry=False)
    return None


# Errors of the hub's client, which is not imported for them: a component that asked for a download.
OF_THE_HUB = frozenset({"LocalEntryNotFoundError", "OfflineModeIsEnabled", "HfHubHTTPError"})
MISFIT = "Error(s) in loading state_dict"
# A defect of the code, or a model and data that do not fit: the same again with every attempt.
DEFECTS = (TypeError, AttributeError, NameError)
# Defects by these types alone: libraries derive errors with other reasons from them.
EXACT_DEFECTS = frozenset({KeyError, IndexError, NotImplementedError, ZeroDivisionError, RecursionError})
# Tensors that do not fit each other, as torch says it in a plain RuntimeError.
SHAPES = _PHRASES["shapes"]
# Types: the second identical failure is taken for the last; the reasons of a machine have others.
REPEATABLE = EXACT_DEFECTS | {*DEFECTS, RuntimeError, AssertionError, ValueError, StopIteration}
# A machine's reasons that libraries report as a plain RuntimeError: these are tried to the end.
OF_THE_MACHINE = re.compile(
    r"cuda|cudnn|cublas|nvml|nccl|nvidia|gpu|driver|gloo|connect|socket|time[d ]*out|network|memory|mmap"
    r"|alloc|disk|no space|i/o|file|thread|fork|process|worker|ancdata|signal|killed|interrupt|temporar|busy",
    re.IGNORECASE,
)


def _of_weights(error: Exception) -> Failure | None:
    if OF_THE_HUB & {kind.__name__ for kind in type(error).__mro__}:
        message = f"jobs read pulled weights alone, and no network: {error}"
        return Failure(error_type="weights_unavailable", message=message, retry=False)
    if isinstance(error, SafetensorError) or (isinstance(error, RuntimeError) and MISFIT in str(error)):
        return Failure(error_type="bad_weights", message=str(error), retry=False)
    return None


# The error's type in the contract, and whether another worker may succeed.
NAMED: dict[type[Exception], tuple[str, bool]] = {
    OtherData: ("other_data", True),
    OtherIdentity: ("other_identity", True),
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
    if (failure := _not_here(error)) is not None:
        return failure
    if isinstance(error, AssayError):
        text = "; ".join([error.message, *(detail.message for detail in error.details)])
        return Failure(error_type=error.type, message=text, retry=False)
    if (failure := _of_device(error) or _of_weights(error)) is not None:
        return failure
    if is_disk_full(error):
        # The limit of a file is the same on every worker.
        retry = isinstance(error, OSError) and error.errno != errno.EFBIG
        text = f"a file of the job found no room: {error}"
        return Failure(error_type="disk_full", message=text, retry=retry)
    if is_out_of_memory(error):
        message = f"out of memory{_limit()}; a smaller execution.batch_size may help. {error}".strip()
        return Failure(error_type="out_of_memory", message=message, retry=False)
    if isinstance(error, ValueError):
        return Failure(error_type="invalid_value", message=str(error), retry=False)
    return _raised(error)


def _raised(error: Exception) -> Failure:
    """An error that no list names: retried, unless it is a defect; with its fingerprint if it may be one."""
    of_code, text = _is_of_code(error), str(error)
    final = isinstance(error, DEFECTS) or (
        of_code
        and (type(error) in EXACT_DEFECTS or (type(error) is RuntimeError and any(p in text for p in SHAPES)))
    )
    failure = Failure(
        error_type="evaluator_raised", message=f"{type(error).__name__}: {error}", retry=not final
    )
    if of_code and not final and OF_THE_MACHINE.search(text) is None:
        failure["fingerprint"] = fingerprint(error)
    return failure


def _is_of_code(error: BaseException) -> bool:
    """Whether an error and all errors behind it have types that no lack of a machine has."""
    behind: BaseException | None = error
    while behind is not None:
        if type(behind) not in REPEATABLE:
            return False
        behind = behind.__cause__ or behind.__context__
    return True


def fingerprint(error: BaseException) -> str:
    """A digest of an error's type, text and place (file and line), to recognise it when it comes again."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return hashlib.sha256(f"{type(error).__name__}\0{error}\0{place}".encode()).hexdigest()

"""Classification of failures: the user's, and transient ones."""

from __future__ import annotations

import sys

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from safetensors import SafetensorError

from assay.service.contract.errors import InvalidSpec, NotFound, WeightsUnavailable
from assay.service.contract.messages import Failure
from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs.failures import BadWeights, OtherData, describe
from assay.workers.training.result import TrainingDiverged


@pytest.mark.parametrize(
    ("error", "error_type", "text"),
    [
        (BadWeights("missing head"), "bad_weights", "missing head"),
        (
            TrainingDiverged("the loss is not finite", step=3, steps=9, loss=float("nan")),
            "training_diverged",
            "step 3 of 9",
        ),
        (torch.OutOfMemoryError("tried to allocate 9 GiB"), "out_of_memory", "execution.batch_size may help"),
        (MemoryError(), "out_of_memory", "execution.batch_size may help"),
        (ValueError("epsilon is -1"), "invalid_value", "epsilon is -1"),
        (NotFound("no attack 'pdg'"), "component_missing", "no attack 'pdg'"),
        (WeightsUnavailable("Run: assay pull timm:a"), "weights_unavailable", "assay pull timm:a"),
        (LocalEntryNotFoundError("not in the cache"), "weights_unavailable", "no network: not in the cache"),
        (OfflineModeIsEnabled("offline mode"), "weights_unavailable", "no network: offline mode"),
        (SafetensorError("incomplete metadata"), "bad_weights", "incomplete metadata"),
        (RuntimeError("Error(s) in loading state_dict for Net"), "bad_weights", "state_dict for Net"),
        (TypeError("build() got an unexpected keyword"), "evaluator_raised", "TypeError: build() got"),
        (KeyError("head.weight"), "evaluator_raised", "KeyError: 'head.weight'"),
        (
            RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x8 and 9x2)"),
            "evaluator_raised",
            "RuntimeError: mat1 and mat2",
        ),
    ],
)
def test_what_would_fail_again_is_not_tried_again(error: Exception, error_type: str, text: str) -> None:
    failure = describe(error)
    assert failure["error_type"] == error_type
    assert text in failure["message"]
    assert failure["retry"] is False


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cleverhans", None)
    failure = describe(ModuleNotFoundError("No module named 'cleverhans'", name="cleverhans"))
    assert (failure["error_type"], failure["retry"]) == ("package_missing", False)
    assert "pip install 'assay-robustness[reference]'" in failure["message"]


def test_missing_data_is_no_mere_value_error() -> None:
    error = MissingData.__new__(MissingData)
    error.args = ("no folder pictures",)
    assert describe(error) == {"error_type": "data_missing", "message": "no folder pictures", "retry": False}


def test_another_worker_may_have_the_right_data() -> None:
    assert describe(OtherData("x")) == {"error_type": "other_data", "message": "x", "retry": True}


def test_details_of_a_spec_error_are_told() -> None:
    from assay.service.contract.errors import ErrorDetail

    detail = ErrorDetail(loc=["data", "name"], message="unknown data 'digit'")
    failure = describe(InvalidSpec("the spec is invalid", [detail]))
    assert failure["error_type"] == "invalid_spec"
    assert "unknown data 'digit'" in failure["message"]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("cuBLAS failed"), OSError(5, "Input/output error"), RuntimeError("two views overlap")],
)
def test_an_unforeseen_error_is_tried_again(error: Exception) -> None:
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == ("evaluator_raised", True)
    assert type(error).__name__ in failure["message"]


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors"),
        torch.AcceleratorError("CUDA error: unspecified launch failure"),
        torch.AcceleratorError("CUDA error: something that no list has"),
        RuntimeError("CUDA error: no CUDA-capable device is detected"),
        RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
        RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        AssertionError("Torch not compiled with CUDA enabled"),
    ],
)
def test_faults_of_a_device_are_not_the_jobs(error: Exception) -> None:
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == ("device_fault", True)
    assert failure["message"].startswith("a device of this worker failed, not the job: ")
    assert "\n" not in failure["message"]


@pytest.mark.parametrize(
    ("error", "error_type", "retry"),
    [
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), "device_assertion", False),
        (RuntimeError("CUDA error: device-side assert triggered"), "device_assertion", False),
        (torch.AcceleratorError("CUDA error: invalid configuration argument"), "evaluator_raised", True),
        (RuntimeError("unknown error in the model's own code"), "evaluator_raised", True),
    ],
)
def test_errors_of_the_program_are_no_faults_of_the_device(
    error: Exception, error_type: str, retry: bool
) -> None:
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == (error_type, retry)


@pytest.mark.parametrize(
    ("free", "own", "error_type"),
    [(1, 10, "device_fault"), (1, 70, "out_of_memory"), (60, 10, "out_of_memory")],
)
def test_memory_that_other_processes_hold_is_the_workers_matter(
    monkeypatch: pytest.MonkeyPatch, free: int, own: int, error_type: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: own)
    failure = describe(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"))
    assert failure["error_type"] == error_type
    assert failure["retry"] is (error_type == "device_fault")


def test_an_operator_that_does_not_repeat_is_named() -> None:
    text = (
        "adaptive_max_pool2d_backward_cuda does not have a deterministic implementation, but you set"
        " 'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
    )
    failure = describe(RuntimeError(text))
    assert (failure["error_type"], failure["retry"]) == ("nondeterministic_operator", False)
    assert "the operator adaptive_max_pool2d_backward_cuda has no deterministic" in failure["message"]


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_an_error_of_the_code_has_a_fingerprint_of_type_text_and_place() -> None:
    def failing(text: str) -> Failure:
        return describe(raised(RuntimeError(text)))

    assert failing("two views overlap")["retry"] is True
    assert failing("two views overlap") == failing("two views overlap")
    assert failing("two views overlap")["fingerprint"] != failing("three views overlap")["fingerprint"]
    elsewhere = describe(RuntimeError("two views overlap"))  # never raised
    assert elsewhere["fingerprint"] != failing("two views overlap")["fingerprint"]


@pytest.mark.parametrize(
    "error",
    [
        raised(KeyError("x"), OSError(5, "Input/output error")),
        raised(RuntimeError("no answer"), ConnectionError("reset by peer")),
        raised(RuntimeError("no answer"), MemoryError()),
        torch.AcceleratorError("CUDA error: invalid configuration argument"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("[gloo] Connection closed by peer"),
        RuntimeError("received 0 items of ancdata"),
        RuntimeError("DataLoader worker exited unexpectedly"),
        TimeoutError("timed out"),
        OSError(28, "No space left on device"),
        InterruptedError("interrupted"),
    ],
)
def test_a_lack_of_the_machine_is_tried_to_the_end(error: Exception) -> None:
    failure = describe(error)
    assert failure["retry"] is True
    assert "fingerprint" not in failure

"""Classification of failures: the user's, and transient ones."""

from __future__ import annotations

import pytest
import torch

from assay.service.contract.errors import InvalidSpec, NotFound
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
    ],
)
def test_what_would_fail_again_is_not_tried_again(error: Exception, error_type: str, text: str) -> None:
    failure = describe(error)
    assert failure["error_type"] == error_type
    assert text in failure["message"]
    assert failure["retry"] is False


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
    "error", [RuntimeError("cuBLAS failed"), OSError(5, "Input/output error"), KeyError("x")]
)
def test_what_nobody_foresaw_is_tried_again(error: Exception) -> None:
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == ("evaluator_raised", True)
    assert type(error).__name__ in failure["message"]

"""Confidences, anomaly scores, and classifiers of which some logits count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.anomalies import classify_with_confidence, confidence_of, score_anomalies
from assay.workers.weights.fit import restricted

LOGITS = torch.tensor(
    [
        [0.0, 1.0, 2.0],
        [40.0, -40.0, 0.0],
        [torch.nan, 0.0, 0.0],
        [torch.inf, 0.0, 0.0],
        [-torch.inf, 1.0, 1.0],
    ]
)
IDS = ["a", "b", "c", "d", "e"]


class Table(nn.Module):
    """Answers image i, whose pixels are i / 10, with row i."""

    def forward(self, images: Tensor) -> Tensor:
        return LOGITS[(images[:, 0, 0, 0] * 10).round().long()]


def images_of(rows: object) -> Tensor:
    return torch.tensor(list(rows)).float().view(-1, 1, 1, 1) / 10  # type: ignore[call-overload]


def test_confidence_is_the_largest_softmax_in_float64() -> None:
    confidence = confidence_of(LOGITS)
    assert confidence.dtype == torch.float64
    first = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).exp()
    assert confidence[0].item() == pytest.approx((first[2] / first.sum()).item(), abs=1e-15)
    assert confidence[1] == 1
    assert confidence[2:4].isnan().all()
    assert confidence[4].item() == pytest.approx(0.5)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_answers_and_confidences_in_any_batch(batch_size: int) -> None:
    labels, seen = torch.tensor([2, 1, 0, 0, 1]), []
    options = {"batch_size": batch_size, "progress": seen.append}
    outcomes = classify_with_confidence(Table(), images_of, labels, IDS, **options)
    columns = outcomes.columns()
    assert columns["confidence"] == [pytest.approx(0.6652409557748219), 1.0, None, None, pytest.approx(0.5)]
    assert columns["correct"] == [True, False, False, False, True]
    assert (outcomes.nonfinite, seen[-1]) == (2, 5)
    scores = score_anomalies(Table(), images_of, torch.tensor([1, 0, 1, 0, 0]), IDS, batch_size=batch_size)
    assert scores.columns()["confidence"] == columns["confidence"]
    assert scores.columns()["prediction"] == columns["prediction"] == [2, 0, -1, -1, 1]
    assert scores.columns()["anomaly"] == [True, False, True, False, False]
    assert scores.evidence() == {"nonfinite": 2}
    assert int(scores.forward.sum()) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_restricted_classifier_shares_parameters_and_keeps_the_rest(dtype: torch.dtype) -> None:
    whole = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    whole.to(dtype).eval().requires_grad_(False)
    some = restricted(whole, [[3], [0]])
    images = torch.rand(4, 3, 2, 2, dtype=dtype)
    torch.testing.assert_close(some(images), whole(images)[:, [3, 0]], rtol=0, atol=0)
    assert some(images).dtype == dtype
    assert not some.training
    assert {p.data_ptr() for p in some.parameters()} == {p.data_ptr() for p in whole.parameters()}
    assert torch.equal(some.normalize(images), whole.normalize(images))

"""Records a classifier's confidence for each image of known and unknown classes. Legend: n examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from assay.attacks.judgement import finite, judge
from assay.attacks.kernel import frozen
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, listed
from assay.workers.evaluation.engine.loader import Images, Loader, Running
from assay.workers.evaluation.engine.outcomes import WithFaults
from assay.workers.evaluation.engine.protocols import classify


@dataclass(frozen=True)
class AnomalyScores(WithFaults):
    """One row per image, in the order of `ids`."""

    ids: tuple[str, ...]
    anomaly: Tensor  # whether the image is of no class that the model knows, bool (n,)
    # Largest softmax, float64 (n,); NaN where the logits are not finite. Its negative is the anomaly score
    confidence: Tensor
    prediction: Tensor  # the model's answer, -1 where the logits are not finite, int64 (n,)
    forward: Tensor
    backward: Tensor
    nonfinite: int = 0  # number of images with logits that are not finite
    noted: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; a confidence that is not finite is None."""
        return {
            "id": list(self.ids),
            "anomaly": self.anomaly.tolist(),
            "prediction": self.prediction.tolist(),
            "confidence": listed(self.confidence),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }


def score_anomalies(
    model: nn.Module,
    images_of: Images,
    labels: Tensor,
    ids: Sequence[str],
    **running: Unpack[Running],
) -> AnomalyScores:
    """Runs the model on unattacked images; `labels` are 1 for anomalies, 0 for others, int64 (n,)."""
    loader = Loader(model, images_of, labels, ids, **running)
    confidence = torch.full((len(ids),), torch.nan, dtype=torch.float64)
    prediction = torch.full((len(ids),), -1, dtype=torch.int64)
    done = 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            logits = loader.load(rows)[1]
            confidence[rows] = confidence_of(logits)
            prediction[rows] = judge(
                logits, torch.zeros_like(logits[:, 0], dtype=torch.int64)
            ).prediction.cpu()
            done += len(rows)
            loader.tell(done)
    passes = torch.ones(len(ids), dtype=torch.int64)
    return AnomalyScores(
        ids=tuple(ids),
        anomaly=labels.bool(),
        confidence=confidence,
        prediction=prediction,
        forward=passes,
        backward=torch.zeros_like(passes),
        nonfinite=int(confidence.isnan().sum()),
        noted=loader.noted(),
    )


def confidence_of(logits: Tensor) -> Tensor:
    """The largest softmax of logits (B, K), float64 (B,) on the CPU; NaN where they are not finite."""
    confidence = logits.double().softmax(1).amax(1)
    return confidence.masked_fill(~finite(logits), torch.nan).cpu()


def classify_with_confidence(
    model: nn.Module, images_of: Images, labels: Tensor, ids: Sequence[str], **options: Any
) -> ExampleOutcomes:
    """Runs the model on unattacked images and records its confidence; otherwise as `classify`."""
    confidence = torch.full((len(ids),), torch.nan, dtype=torch.float64)

    def note(rows: Tensor, logits: Tensor) -> None:
        confidence[rows] = confidence_of(logits)

    outcomes = classify(model, images_of, labels, ids, observe=note, **options)
    return replace(outcomes, confidence=confidence)

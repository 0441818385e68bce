"""How sure a classifier is of its answers: the largest softmax, example by example.

Hendrycks and Gimpel 2017, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
Networks". In float64, where the released code has float32: fewer examples tie at 1.

Legend: n examples, B batch, K logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.attacks.judgement import finite
from assay.workers.evaluation.engine.ledger import Outcomes
from assay.workers.evaluation.engine.loader import Images
from assay.workers.evaluation.engine.protocols import classify


def confidence_of(logits: Tensor) -> Tensor:
    """The largest softmax of logits (B, K), float64 (B,) on the CPU; NaN where they are not finite."""
    confidence = logits.double().softmax(1).amax(1)
    return confidence.masked_fill(~finite(logits), torch.nan).cpu()


def classify_with_confidence(
    model: nn.Module, images_of: Images, labels: Tensor, ids: Sequence[str], **options: Any
) -> Outcomes:
    """Runs the model on unattacked images and notes its confidence; the rest is as in `classify`."""
    confidence = torch.full((len(ids),), torch.nan, dtype=torch.float64)

    def note(rows: Tensor, logits: Tensor) -> None:
        confidence[rows] = confidence_of(logits)

    outcomes = classify(model, images_of, labels, ids, observe=note, **options)
    return replace(outcomes, confidence=confidence)

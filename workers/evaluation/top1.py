"""Accuracy and calibration on the images as they are: for ImageNet and the natural shifts of it.

The confidence is the largest softmax of the logits that count, in float64 (Hendrycks and Gimpel 2017).
Its calibration is measured by `service/metrics/tables/calibration.py`.

    top1 = 1/n sum_i [argmax_k z_ik = y_i]
    ECE   = sum_b |B_b| / n |mean confidence - accuracy of B_b|            bins of equal width
    RMS   = sqrt(sum_b |B_b| / n (mean confidence - accuracy of B_b)^2)    bins of equal size, less the last
    AURRA = 1/n sum_k accuracy of the k most confident
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.workers.evaluation.engine.anomalies import classify_with_confidence
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["top1"]

TASKS = ("classification", "sequence", "series")
TABLE = "calibration"
PAPER = "Hendrycks et al. 2021, Natural Adversarial Examples (accuracy, RMS calibration error, AURRA)"
PASSES = ("1", "0")


def top1(
    *,
    ece_bins: Annotated[int, Interval(ge=1, le=1000)] = 15,
    rms_bin_size: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    rms_bins: Literal["released", "all"] = "released",
) -> Evaluation:
    """Accuracy on unattacked images, and calibration of the confidence: ECE, RMS error, AURRA.

    Args:
        ece_bins: bins of equal width for the expected calibration error.
        rms_bin_size: examples in a bin for the RMS calibration error.
        rms_bins: "released" leaves out the bin of the most confident examples, as the authors' code does;
            "all" counts it.
    """
    del ece_bins, rms_bin_size, rms_bins  # the merge reads them
    return _Top1()


class _Top1:
    def measure(self, shard: Shard) -> ExampleOutcomes:
        """One row per example, with its confidence."""
        subject = (shard.classifier, shard.inputs, shard.labels, shard.ids)
        sequences = shard.task == "sequence"
        return classify_with_confidence(*subject, sequences=sequences, **shard.running)

"""Detection of images of unknown classes by low confidence: ImageNet-O.

Hendrycks and Gimpel 2017, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
Networks"; Hendrycks et al. 2021, "Natural Adversarial Examples". The run is in
`workers/evaluation/engine/anomalies.py`, the area under the curve in `service/metrics/tables/anomaly.py`.

    AUPR = 1/P sum over anomalies i of TP_i / (TP_i + FP_i),    confidence = max_k softmax(z)_k
    TP_i, FP_i = anomalies and others that are at most as confident as i,    P = anomalies
"""

from __future__ import annotations

from assay.workers.evaluation.engine.anomalies import AnomalyScores, score_anomalies
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["aupr"]

TASKS = ("anomaly_detection",)
TABLE = "anomaly"
PAPER = "Hendrycks et al. 2021, Natural Adversarial Examples"
PASSES = ("1", "0")


def aupr() -> Evaluation:
    """Area under the precision-recall curve of anomalies, scored by minus the largest softmax."""
    return _Aupr()


class _Aupr:
    def measure(self, shard: Shard) -> AnomalyScores:
        """One row per image, with its anomaly score."""
        return score_anomalies(shard.classifier, shard.inputs, shard.labels, shard.ids, **shard.running)

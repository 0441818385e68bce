"""Accuracy without an attack.

Outcomes of classification come from `workers/evaluation/engine/protocols.py`, outcomes of segmentation from
`workers/evaluation/engine/segmentation/pixel_counts.py`.

    top1 = 1/n sum_i [argmax_k z_ik = y_i]    where an example has a class
    mIoU = mean_k I_k / (T_k + P_k - I_k)     where a pixel has one: over the classes k that occur
    T_k, P_k, I_k = pixels of all images with the label k, with the prediction k, with both
"""

from __future__ import annotations

from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts, segment
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["clean"]

ALSO = ("accuracy", "acc", "standard accuracy", "natural")
TASKS = ("classification", "segmentation", "sequence", "series")
TABLE = {task: "segmentation" if task == "segmentation" else "classification" for task in TASKS}
PASSES = ("1", "0")


def clean() -> Evaluation:
    """Accuracy on unattacked images, texts or time series."""
    return _Clean()


class _Clean:
    def measure(self, shard: Shard) -> ExampleOutcomes | PixelCounts:
        """One row per example: of segmentation the counts of its pixels, as whole squares."""
        model, images, ids, running = shard.classifier, shard.inputs, shard.ids, shard.running
        if shard.task == "segmentation":
            return segment(model, images, shard.truth, ids, classes=shard.classes, **running)
        sequences = shard.task == "sequence"
        return classify(model, images, shard.labels, ids, sequences=sequences, **running)

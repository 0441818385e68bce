"""Average precision of a detector."""

from __future__ import annotations

import torch
from toydet.assay.outcomes import Detected

from assay.attacks.kernel import frozen
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["average_precision"]

TASKS = ("detection",)
TABLE = "toydet.assay.tables:TABLE"
PASSES = ("1", "0")
PAPER = "Everingham et al. 2010, The PASCAL Visual Object Classes (VOC) Challenge"


def average_precision() -> Evaluation:
    """Average precision where a detection overlaps a box by half, a mean over classes."""
    return _AveragePrecision()


class _AveragePrecision:
    def measure(self, shard: Shard) -> Detected:
        """One row per image."""
        loader, found = shard.loader(), Detected(shard, (1, 0))
        with torch.no_grad(), frozen(shard.classifier):
            for rows in loader.batches():
                _, outputs = loader.load(rows)
                found.claim(outputs, loader.labels_of(rows))
                shard.progress(int(rows[-1]) + 1)
        found.noted = loader.noted()
        return found

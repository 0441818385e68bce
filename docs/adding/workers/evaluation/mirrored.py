"""Accuracy on mirrored images: left is right."""

from __future__ import annotations

from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["mirrored"]

TASKS = ("classification",)
TABLE = "classification"
PASSES = ("1", "0")


def mirrored() -> Evaluation:
    """Accuracy on images that are mirrored left to right."""
    return _Mirrored()


class _Mirrored:
    def measure(self, shard: Shard) -> ExampleOutcomes:
        """One row per example."""
        return classify(
            shard.classifier,
            lambda rows: shard.images(rows).flip(-1),
            shard.labels,
            shard.ids,
            **shard.running,
        )

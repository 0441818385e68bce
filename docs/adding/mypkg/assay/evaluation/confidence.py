"""How sure the model is of its answers, right or wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["confidence"]

TASKS = ("classification",)
TABLE = "mypkg.assay.tables:TABLE"
PASSES = ("1", "0")


def confidence() -> Evaluation:
    """Mean probability of the predicted class, of right and of wrong answers."""
    return _Confidence()


class _Confidence:
    def measure(self, shard: Shard) -> Measured:
        """One row per example."""
        n = len(shard.ids)
        found = torch.zeros(n, dtype=torch.float64)

        def observe(rows: Tensor, logits: Tensor) -> None:
            found[rows] = logits.double().softmax(1).amax(1).cpu()

        given = (shard.classifier, shard.inputs, shard.labels, shard.ids)
        answers = classify(*given, observe=observe, **shard.running)
        values = {"probability": found, "correct": answers.correct}
        return Measured(shard.ids, values, torch.ones(n).long(), torch.zeros(n).long())

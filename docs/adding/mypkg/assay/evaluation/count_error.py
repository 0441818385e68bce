"""Errors of the numbers that a model of counting gives."""

from __future__ import annotations

import torch

from assay.attacks.kernel import frozen
from assay.workers.evaluation.engine.series import SquaredErrors
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["count_error"]

TASKS = ("counting",)
TABLE = "regression"


def count_error() -> Evaluation:
    """Root mean square error of the numbers."""
    return _CountError()


class _CountError:
    def measure(self, shard: Shard) -> SquaredErrors:
        """One row per image."""
        loader = shard.loader()
        numbers = torch.zeros(loader.n, dtype=torch.float64)
        with torch.no_grad(), frozen(shard.classifier):
            for rows in loader.batches():
                numbers[rows] = loader.load(rows)[1][:, 0].double().cpu()
        return SquaredErrors(shard.ids, shard.labels.double(), numbers, None, loader.noted())

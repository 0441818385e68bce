"""Classification of time series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.layers.token_model import reads_series
from assay.service.contract.stored_specs import ModelReference
from assay.workers.data.formats.dataset import ExampleSet, check_length
from assay.workers.evaluation.engine.attack.attacks import SeriesAttack
from assay.workers.evaluation.engine.loader import Images
from assay.workers.evaluation.engine.outcomes import Outcomes
from assay.workers.evaluation.engine.series import compare_answers
from assay.workers.evaluation.engine.shard import Evaluation, Shard
from assay.workers.jobs.loading import image_size_of
from assay.workers.tasks.classification import Task

__all__ = ["series"]

FACTS = {
    "noun": "series",
    # Attacks under the protocol `paper` are on standardised series too.
    "protocols": {"pixel": "series"},
    "validation": True,
    "labelled": True,
    "sizes": {"channels": "features", "length": "steps"},
    "example": {
        "model": "series_transformer",
        "data": "motions",
        "recipe": "small_series",
        "model_params": {"width": 32, "length": 48},
        "recipe_params": {"epochs": 5},
    },
}


class SeriesTask(Task):
    """What workers do for time series."""

    def check_model(self, model: ModelReference, backbone: nn.Module, data: ExampleSet) -> None:
        """Refuse a model of images, or of shorter series."""
        if not reads_series(backbone):
            raise ValueError(f"the model {model['name']!r} does not read the data set {data.name!r}")
        check_length(data, image_size_of(model, backbone))

    def trial_inputs(self, data: ExampleSet, size: int, count: int) -> Tensor:
        """Every step exists."""
        return torch.ones(count, data.channels + 1, size)

    def compare(self, shard: Shard, before: Images, after: Images, norms: Mapping[str, Tensor]) -> Outcomes:
        """Answers to series before and after a perturbation with these norms, (n,)."""
        return compare_answers(shard, before, after, norms)

    def attack(self, made: Any) -> Evaluation:
        """On the standardised series."""
        return SeriesAttack(made)


def series() -> Task:
    """Classification of time series: a class for every series."""
    return SeriesTask()

"""Classification of sequences of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.text import SequenceSet, TextSet
from assay.workers.evaluation.engine.attention_layers import Shown
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.jobs.loading import Loaded, ModelRequest, load_words
from assay.workers.published.language import known_text
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.batches import Source
    from assay.workers.training.recipe import Recipe
    from assay.workers.training.source import Batching

__all__ = ["sequence"]

FACTS = {
    "noun": "sequences",
    "protocols": {"pixel": "sequence", "paper": "sequence"},
    "validation": True,
    "labelled": True,
    "sizes": {"length": "tokens"},
    "example": {
        "model": "sequence_transformer",
        "data": "recall",
        "recipe": "small_sequence",
        "model_params": {"width": 32, "depth": 2, "heads": 2},
        "recipe_params": {"epochs": 2},
    },
}


class _SequenceTask(Task):
    def known_as(self, data: ExampleSet) -> str | None:
        return known_text(data.name, data.classes, len(data.ids))

    def load(self, request: ModelRequest) -> Loaded:
        return load_words(request)

    def trial_inputs(self, data: ExampleSet, size: int, count: int) -> Tensor:
        return torch.ones(count, size, dtype=torch.int64)

    def batches(self, data: ExampleSet, recipe: Recipe, how: Batching) -> Source:
        from assay.workers.training.tokens import texts, token_batches  # trainings alone

        return token_batches(cast(TextSet, data), texts, how)

    def inputs(self, data: ExampleSet, indices: Sequence[int], size: int) -> Tensor:
        return cast(SequenceSet, data).tokens(indices, size)

    def shown(self, shard: Shard, length: int | None) -> Shown:
        """Tokens, with 0 as padding."""
        return super().shown(shard, length)._replace(tokens=length is not None)


def sequence() -> Task:
    """Sequence classification: a class for every text or other sequence of tokens."""
    return _SequenceTask()

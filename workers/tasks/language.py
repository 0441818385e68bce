"""Language modelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import TokenModel
from assay.service.contract.stored_specs import EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.text import LanguageSet, TextSet
from assay.workers.evaluation.engine.attention_layers import Shown, shown_text
from assay.workers.evaluation.engine.probe import Question, losses_question
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.causality import causality_evidence
from assay.workers.evaluation.forced_continuation import ForcedContinuation
from assay.workers.evaluation.perplexity import Perplexity
from assay.workers.jobs.loading import Loaded, ModelRequest, load_words
from assay.workers.published.language import known_text
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.batches import Source
    from assay.workers.training.losses import TrainingLoss
    from assay.workers.training.recipe import Recipe
    from assay.workers.training.source import Batching

__all__ = ["language"]

FACTS = {
    "noun": "windows",
    "protocols": {"pixel": "language", "paper": "language"},
    # One pass over the text; the paper's sliding window takes a pass per word.
    "final": {"name": "perplexity", "params": {"window": "blocks"}},
    "example": {
        "model": "lm",
        "data": "pydoc",
        "recipe": "small_lm",
        "model_params": {"width": 32, "depth": 2, "heads": 4, "hidden": 64, "length": 32},
        "recipe_params": {"epochs": 1},
    },
}


class _LanguageTask(Task):
    def known_as(self, data: ExampleSet) -> str | None:
        return known_text(data.name, data.classes, cast(LanguageSet, data).starts[-1])

    def load(self, request: ModelRequest) -> Loaded:
        return load_words(request)

    def trial_inputs(self, data: ExampleSet, size: int, count: int) -> Tensor:
        return torch.ones(count, size, dtype=torch.int64)

    def trial(self, classifier: Classifier, given: Tensor) -> Callable[[], Tensor]:
        return lambda: cast(TokenModel, classifier).negative_log_likelihood(given, given)

    def windows(self, item: EvaluationItem, data: ExampleSet, size: int) -> float:
        """The windows of a document; a prompt is one."""
        made = catalog.build("evaluation", item["name"], item["params"])()
        if isinstance(made, ForcedContinuation):
            return 1.0
        stride = made.windows(size).stride if isinstance(made, Perplexity) else size
        return max(1.0, cast(LanguageSet, data).mean_tokens / stride)

    def examples_together(self, batch_size: int) -> int:
        """A batch counts windows, and an example is a document of many windows."""
        return 1

    def batches(self, data: ExampleSet, recipe: Recipe, how: Batching) -> Source:
        from assay.workers.training.tokens import token_batches, windows  # trainings alone

        return token_batches(cast(TextSet, data), windows, how)

    def loss(self) -> TrainingLoss:
        from assay.workers.training.losses import WordLoss

        return WordLoss()

    def held_out_loss(self, shard: Shard) -> Callable[[nn.Module], float]:
        perplexity = Perplexity("blocks", None, shard.image_size)

        def loss(model: nn.Module) -> float:
            found = perplexity.measure(replace(shard, classifier=cast(TokenModel, model)))
            return math.fsum(found.nll) / max(sum(found.tokens), 1)

        return loss

    def question(self, shard: Shard, rows: Sequence[int]) -> Question:
        """Windows of the text, whose words have losses."""
        return losses_question(shard)

    def evidence(self, shard: Shard) -> dict[str, Any]:
        return causality_evidence(shard)

    def shown(self, shard: Shard, length: int | None) -> Shown:
        assert length is not None
        return shown_text(shard, length)


def language() -> Task:
    """Language modelling: the next word of a text."""
    return _LanguageTask()

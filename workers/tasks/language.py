"""Language modelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.workers.evaluation.engine.attention_layers import Shown, shown_text
from assay.workers.evaluation.engine.causality import causality_evidence
from assay.workers.evaluation.engine.probe import Question, losses_question
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.tasks.classification import Task

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
    def question(self, shard: Shard, rows: Sequence[int]) -> Question:
        """Windows of the text, whose words have losses."""
        return losses_question(shard)

    def evidence(self, shard: Shard) -> dict[str, Any]:
        """Whether the model sees later words."""
        return causality_evidence(shard)

    def shown(self, shard: Shard, length: int | None) -> Shown:
        """Windows of the text."""
        assert length is not None
        return shown_text(shard, length)


def language() -> Task:
    """Language modelling: the next word of a text."""
    return _LanguageTask()

"""Language modelling."""

from __future__ import annotations

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


def language() -> Task:
    """Language modelling: the next word of a text."""
    return Task()

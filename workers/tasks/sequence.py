"""Classification of sequences of tokens."""

from __future__ import annotations

from assay.workers.tasks.classification import Task

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


def sequence() -> Task:
    """Sequence classification: a class for every text or other sequence of tokens."""
    return Task()

"""Accuracy on the images as they are."""

from __future__ import annotations

from workers.evaluation.engine import Evaluation, classify

__all__ = ["clean"]

TASKS = ("classification",)
PASSES = ("1", "0")


def clean() -> Evaluation:
    """Accuracy on unattacked images."""
    return classify

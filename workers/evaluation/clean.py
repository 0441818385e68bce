"""Accuracy on the images as they are.

Of classification the outcomes come from `workers/evaluation/engine.py`, of segmentation from
`workers/evaluation/segment.py`.
"""

from __future__ import annotations

from workers.evaluation.engine import Evaluation, classify

__all__ = ["clean"]

TASKS = ("classification", "segmentation")
PASSES = ("1", "0")


def clean() -> Evaluation:
    """Accuracy on unattacked images."""
    return classify

"""Accuracy on the images, or texts, as they are.

Of classification the outcomes come from `workers/evaluation/engine/protocols.py`, of segmentation from
`workers/evaluation/engine/segmentation.py`.
"""

from __future__ import annotations

from assay.workers.evaluation.engine.protocols import Evaluation, classify

__all__ = ["clean"]

TASKS = ("classification", "segmentation", "sequence")
PASSES = ("1", "0")


def clean() -> Evaluation:
    """Accuracy on unattacked images or texts."""
    return classify

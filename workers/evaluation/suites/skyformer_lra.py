"""Skyformer's table 1."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.suites.primal_lra import LRA_RULES, primal_lra

__all__ = ["skyformer_lra"]

TASKS = ("sequence",)
RULES = LRA_RULES
PAPER = "Chen et al. 2021, Skyformer: remodel self-attention with Gaussian kernel and Nystrom method, table 1"


def skyformer_lra() -> list[dict[str, Any]]:
    """Accuracy on a task of the Long Range Arena, with calibration.

    The row of `primal_lra`, with the published numbers of Skyformer, kernelized attention and baselines.
    """
    return primal_lra()
